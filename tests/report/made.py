"""Reports of hostile repositories, and the readers of each format, as strict as the real ones."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops_ds.checks.report import findings
from gitops_ds.checks.report.findings import (
    CheckedObject,
    Report,
    ReportContext,
    ReportedChange,
    RuleText,
)
from gitops_ds.core.finding import Finding, Fix, Place, Severity
from gitops_ds.core.objects import Key, ListMember
from tests import profiles

T = TypeVar("T")

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
    (
        "![x](http://evil/p.png) [click](https://evil) https://evil.example www.evil.example "
        "me@evil.example"
    ),
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
RULES = ("DS001", "DS103", "DS202", "DS501", "DS602", "DS801", "DS904", "DS999")


class _Pick:
    """Findings and objects of a few texts, by chance that a seed decides: to draw every part of
    each by itself takes too long.
    """

    def __init__(self, texts: list[str], seed: int) -> None:
        self.chance = random.Random(seed)
        self.texts = texts

    def text(self) -> str:
        return self.chance.choice(self.texts)

    def key(self) -> Key:
        return Key(self.text(), self.text(), self.text(), self.text())

    def place(self) -> Place | None:
        is_known = self.chance.random() < 0.8
        return (
            Place(self.text(), self.chance.randrange(50), self.chance.randrange(200))
            if is_known
            else None
        )

    def finding(self) -> Finding:
        other = (self.key(), self.place()) if self.chance.random() < 0.3 else None
        steps: tuple[str | int, ...] = (
            self.text(),
            self.chance.randrange(9),
            ListMember(self.text()),
        )
        return Finding(
            self.chance.choice(RULES),
            self.chance.choice(list(Severity)),
            self.text(),
            self.place(),
            self.chance.random() < 0.5,
            self.key() if self.chance.random() < 0.7 else None,
            steps[: self.chance.randrange(4)],
            self.place(),
            self.text() if self.chance.random() < 0.5 else "",
            Fix(self.text(), ()) if self.chance.random() < 0.3 else None,
            other,
        )

    def some(self, make: Callable[[], T], most: int) -> list[T]:
        return [make() for _ in range(self.chance.randrange(most + 1))]

    def report(self) -> Report:
        reported = self.some(self.finding, 8)
        files = {
            one.place.file: "\n".join(self.some(self.text, 9)).encode("utf-8", "surrogatepass")
            for one in reported
            if one.place
        }
        checked = self.some(lambda: CheckedObject(self.text(), self.key(), self.text()), 5)
        answered = self.some(lambda: (self.finding(), self.text()), 3)
        return findings.report(reported, files, checked, root=self.text(), suppressed=answered)

    def changed(self) -> ReportedChange:
        return ReportedChange(
            tuple(self.some(self.text, 2)),
            tuple(self.some(self.text, 3)),
            gained=2,
            time=self.text(),
        )


@st.composite
def reports(draw: st.DrawFn) -> Report:
    """A report of anything that a repository could hold; some files are those that findings are
    about.
    """
    pick = _Pick([*draw(st.lists(words, min_size=1, max_size=6)), ""], draw(st.integers(0, 2**32)))
    made = pick.report()
    return (
        findings.with_changes(
            made, pick.some(pick.changed, 3), {"changes": [{"old": pick.text(), pick.text(): 1}]}
        )
        if pick.chance.random() < 0.5
        else made
    )


def some_reports(test: Callable[..., None]) -> Callable[..., None]:
    """The test with a hundred reports, without a time limit."""
    return settings(max_examples=profiles.examples(100), deadline=None)(given(reports())(test))


def about(**more: Any) -> ReportContext:
    """The metadata of a run, with a rule that has a page."""
    page = "# DS202: one budget\n\nWhy it matters.\n\n## Wrong\n"
    known = {
        "DS202": RuleText(
            "DS202", "maxSurge requires maxUnavailable 0", Severity.ERROR, refused=True, page=page
        )
    }
    return ReportContext(**{"version": "1.2.3", "rules": known, **more})


def finding(
    rule: str = "DS202", severity: Severity = Severity.ERROR, line: int = 3, **more: Any
) -> Finding:
    """A finding at a line of the agent's manifest."""
    place = Place(FILE, line, 5)
    return Finding(
        **{
            "rule": rule,
            "severity": severity,
            "message": f"no. {line}",
            "place": place,
            "object": AGENT,
            **more,
        }
    )


def report(*reported: Finding, **more: Any) -> Report:
    """A report of these findings, and of the agent."""
    return findings.report(
        reported,
        **{
            "files": {FILE: b"kind: DaemonSet\n"},
            "checked": [CheckedObject("", AGENT, FILE)],
            **more,
        },
    )


@dataclass(frozen=True)
class Command:
    """A workflow command as the runner reads it."""

    name: str
    properties: dict[str, str]
    data: str


KNOWN = {
    *(
        "error",
        "warning",
        "notice",
        "group",
        "endgroup",
        "debug",
        "add-mask",
        "stop-commands",
        "set-output",
        "set-env",
        "add-path",
    ),
    *("save-state", "echo", "add-matcher", "remove-matcher", "internal-set-repo-path"),
}


def commands(log: str) -> Iterator[Command]:
    """The commands that a runner executes in the output of a step, by its ActionCommand and
    ActionCommandManager.

    A command may follow spaces, and in its old form be anywhere in a line; after `stop-commands`
    only the token counts.
    """
    token = ""
    for line in re.split(r"\r\n|\r|\n", log):
        matched = _new(line, token) or _old(line, token)
        if matched is None or (token and matched.name != token):
            continue
        token = (
            matched.data
            if matched.name == "stop-commands"
            else ""
            if matched.name == token
            else token
        )
        yield matched


def _new(line: str, token: str) -> Command | None:
    matched = re.fullmatch(r"\s*::(?P<info>.*?)::(?P<data>.*)", line, re.DOTALL)
    if not matched:
        return None
    name, _, rest = matched["info"].partition(" ")
    pairs = dict(pair.split("=", 1) for pair in rest.strip().split(",") if "=" in pair)
    properties = {
        key: _plain(value.replace("%3A", ":").replace("%2C", ",")) for key, value in pairs.items()
    }
    return Command(name, properties, _plain(matched["data"])) if name in KNOWN | {token} else None


def _old(line: str, token: str) -> Command | None:
    matched = re.search(r"##\[(?P<info>[^\]]*)\](?P<data>.*)", line, re.DOTALL)
    name = matched["info"].partition(" ")[0] if matched else ""
    return (
        Command(f"old {name}", {}, matched["data"]) if matched and name in KNOWN | {token} else None
    )


def _plain(text: str) -> str:
    return text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
