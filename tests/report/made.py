"""Reports out of what a hostile repository could hold, and the readers of each format, as strict as the real ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from gitops_ds.model.finding import Finding, Fix, Place, Severity
from gitops_ds.model.objects import Key, Member
from gitops_ds.report import findings
from gitops_ds.report.findings import About, Changed, Checked, Report, RuleText

AGENT = Key("apps", "DaemonSet", "logging", "agent")
FILE = "agents/agent/daemonset.yaml"

EVIL = (
    "\n::set-output name=x::y",
    "::error file=a,line=1::boo",
    "  ::stop-commands::now",
    "a\r\n::add-mask::b\r::endgroup::",
    "##[add-path]/evil",
    "##vso[task.setvariable variable=a]b",
    "%0A::warning::x%25",
    "\x1b[31mred\x1b]0;title\x07",
    "\u202egnp.exe\u2066",
    "\x00\x0b\ufffe\udc80\u2028",
    "@everyone @org/team #123 GH-12 owner/repo#1 !45 $6 %7 ~8 &9",
    "<img src=x onerror=alert(1)><script>x</script>&lt;b&gt;",
    "![x](http://evil/p.png) [click](https://evil) https://evil.example www.evil.example me@evil.example",
    "```\n# head\n````diff\n~~~",
    "`a`` b``` \\` c",
    "-->\n<!-- gitops-ds:report key=other v=1 -->",
    "</details></summary><details open>",
    "]]></testcase><testcase name='x'/>",
    "| a | b |\n|---|---|\n",
    "/close\n/merge",
    "a, b: c = d; e",
    "../../etc/passwd /x/ a b:c?d#e%f",
    "é漢字 😀 \u200d\u0301",
    "",
)

words = st.one_of(
    st.sampled_from(EVIL),
    st.text(st.characters(), max_size=30),
    st.lists(st.sampled_from(EVIL) | st.text(st.characters(), max_size=5), max_size=4).map("".join),
)
keys = st.builds(Key, words, words, words, words)
places = st.builds(Place, words, st.integers(0, 50), st.integers(0, 200))
rules = st.sampled_from(["DS001", "DS103", "DS202", "DS501", "DS602", "DS801", "DS904", "DS999"])
one = st.builds(
    Finding,
    rule=rules,
    severity=st.sampled_from(Severity),
    message=words,
    place=st.none() | places,
    refused=st.booleans(),
    object=st.none() | keys,
    path=st.lists(words | st.integers(0, 9) | words.map(Member), max_size=4).map(tuple),
    end=st.none() | places,
    cluster=st.just("") | words,
    fix=st.none() | st.builds(Fix, words, st.just(())),
)
texts = words.map(lambda text: text.encode("utf-8", "surrogatepass"))


@st.composite
def reports(draw: st.DrawFn) -> Report:
    """A report of anything; some files are those that findings are about."""
    found = draw(st.lists(one, max_size=6))
    names = {finding.place.file for finding in found if finding.place}
    files = {name: draw(texts) * draw(st.integers(1, 3)) for name in sorted(names)}
    checked = draw(st.lists(st.builds(Checked, st.just("") | words, keys, words), max_size=5))
    answered = draw(st.lists(st.tuples(one, words), max_size=3))
    made = findings.report(found, files, checked, root=draw(st.just("") | words), suppressed=answered)
    if draw(st.booleans()):
        groups = st.builds(
            Changed, st.lists(words, max_size=2).map(tuple), st.lists(words, max_size=3).map(tuple), gained=st.just(2)
        )
        made = findings.with_changes(made, draw(st.lists(groups, max_size=3)), {"changes": []})
    return made


def about(**more: Any) -> About:
    """What a run says of itself, with a rule that has a page."""
    page = "# DS202: one budget\n\nWhy it matters.\n\n## Wrong\n"
    known = {"DS202": RuleText("DS202", "maxSurge comes with maxUnavailable 0", Severity.ERROR, refused=True, page=page)}
    return About(**{"version": "1.2.3", "rules": known, **more})


def finding(rule: str = "DS202", severity: Severity = Severity.ERROR, line: int = 3, **more: Any) -> Finding:
    """A finding at a line of the agent's manifest."""
    place = Place(FILE, line, 5)
    return Finding(**{"rule": rule, "severity": severity, "message": f"no. {line}", "place": place, "object": AGENT, **more})


def report(*found: Finding, **more: Any) -> Report:
    """A report of these findings, and of the agent."""
    return findings.report(found, **{"files": {FILE: b"kind: DaemonSet\n"}, "checked": [Checked("", AGENT, FILE)], **more})


@dataclass(frozen=True)
class Command:
    """A workflow command as the runner reads it."""

    name: str
    properties: dict[str, str]
    data: str


KNOWN = {
    *("error", "warning", "notice", "group", "endgroup", "debug", "add-mask", "stop-commands", "set-output", "set-env", "add-path"),
    *("save-state", "echo", "add-matcher", "remove-matcher", "internal-set-repo-path"),
}


def commands(log: str) -> Iterator[Command]:
    """What the runner does with what a step prints, by its ActionCommand and ActionCommandManager.

    A command may come after spaces, and in its old form anywhere in a line; after `stop-commands` only the token counts.
    """
    token = ""
    for line in re.split(r"\r\n|\r|\n", log):
        found = _new(line, token) or _old(line, token)
        if found is None or (token and found.name != token):
            continue
        token = found.data if found.name == "stop-commands" else "" if found.name == token else token
        yield found


def _new(line: str, token: str) -> Command | None:
    matched = re.fullmatch(r"\s*::(?P<info>.*?)::(?P<data>.*)", line, re.DOTALL)
    if not matched:
        return None
    name, _, told = matched["info"].partition(" ")
    pairs = dict(pair.split("=", 1) for pair in told.strip().split(",") if "=" in pair)
    properties = {key: _plain(value.replace("%3A", ":").replace("%2C", ",")) for key, value in pairs.items()}
    return Command(name, properties, _plain(matched["data"])) if name in KNOWN | {token} else None


def _old(line: str, token: str) -> Command | None:
    matched = re.search(r"##\[(?P<info>[^\]]*)\](?P<data>.*)", line, re.DOTALL)
    name = matched["info"].partition(" ")[0] if matched else ""
    return Command(f"old {name}", {}, matched["data"]) if matched and name in KNOWN | {token} else None


def _plain(text: str) -> str:
    return text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
