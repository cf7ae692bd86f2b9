"""An unchanged repository gets its cached report; a changed one is checked again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest
from click.testing import Result

from gitops_ds import cli
from gitops_ds.checks.report.findings import CheckedObject, Report
from gitops_ds.cli.check import result_cache
from gitops_ds.cli.check.result_cache import CachedReport, ResultCache
from gitops_ds.core.finding import Finding, Fix, Mend, Place, Severity
from gitops_ds.core.objects import Key, ListMember
from gitops_ds.core.redaction.report import ReportSecrets
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.source.renderers import disk_cache
from tests.checks.test_rule_pages import GOOD
from tests.cli.commands import invoked

AGENT = Key("apps", "DaemonSet", "agents", "agent")
FINDING = Finding(
    "DS401",
    Severity.WARNING,
    "something",
    Place("a.yaml", 3, 5),
    object=AGENT,
    path=("spec", "containers", 0, "image"),
    end=Place("a.yaml", 3, 9),
    fix=Fix("write it", (Mend(("spec", 0), {"a": [1, 1.5, None, True]}),), safe=True),
    other=(replace(AGENT, name="other"), None),
)
REPORT = Report(
    (FINDING, Finding("DS001", Severity.ERROR, "else", refused=True)),
    ("one", "two"),
    {"a.yaml": b"a: b\n"},
    (CheckedObject("eu-1", AGENT, "a.yaml"),),
    root="below",
    suppressed=((FINDING, "we know"),),
    document={"nodes": [{"cluster": "eu-1", "count": 3}]},
    fixable=(1, 2),
    notes=("no nodes",),
)
FILES = SourceTree(None, {PurePosixPath("a.yaml"): b"a: b\n"})


@pytest.fixture
def question(tmp_path: Path) -> CachedReport:
    return CachedReport(
        ResultCache(tmp_path / "checks", "name", b"secret", few=0), ("eu-1",), FILES
    )


def test_a_report_is_given_back_as_it_was(question: CachedReport) -> None:
    assert question.load() is None
    question.save(REPORT, FILES)
    assert question.load() == REPORT


@pytest.mark.parametrize(
    "otherwise",
    [
        lambda entry: replace(entry, inputs=("eu-2",)),
        lambda entry: replace(
            entry, work_tree=SourceTree(None, {PurePosixPath("a.yaml"): b"a: c\n"})
        ),
        lambda entry: replace(
            entry, work_tree=SourceTree(None, {PurePosixPath("b.yaml"): b"a: b\n"})
        ),
        lambda entry: replace(
            entry, work_tree=SourceTree(None, {**FILES.files, PurePosixPath("b.yaml"): b""})
        ),
        lambda entry: replace(entry, work_tree=SourceTree(None, FILES.files, (FINDING,))),
        lambda entry: replace(entry, cache=replace(entry.cache, secret=b"another")),
        lambda entry: replace(entry, cache=replace(entry.cache, name="another")),
    ],
    ids=[
        "words",
        "a byte",
        "a name",
        "one more",
        "what can't be read",
        "another's secret",
        "another repository",
    ],
)
def test_another_question_has_no_answer(
    question: CachedReport, otherwise: Callable[[CachedReport], CachedReport]
) -> None:
    question.save(REPORT, FILES)
    assert otherwise(question).load() is None


@pytest.mark.parametrize(
    ("report", "seen"),
    [
        (replace(REPORT, hidden=ReportSecrets(frozenset({"hush-hush"}))), FILES),
        (replace(REPORT, findings=(replace(FINDING, path=("spec", ListMember("agent"))),)), FILES),
        (replace(REPORT, document={"a": float("nan")}), FILES),
        (replace(REPORT, notes=("\ud800",)), FILES),
        (REPORT, replace(FILES, expanded={PurePosixPath("a"): b""})),
        (REPORT, replace(FILES, consumed=frozenset({PurePosixPath("a")}))),
    ],
    ids=[
        "secrets",
        "a member of a list",
        "no JSON",
        "half a character",
        "made by a program",
        "taken by a program",
    ],
)
def test_a_report_that_depends_on_other_inputs_is_not_cached(
    question: CachedReport, report: Report, seen: SourceTree
) -> None:
    question.save(report, seen)
    assert question.load() is None


class Desk:
    """A repository of a hundred manifests, and a home."""

    def __init__(self, folder: Path) -> None:
        self.home, self.repository = folder / "home", folder / "repository"
        self.repository.mkdir()
        for n in range(100):
            (self.repository / f"{n}.yaml").write_text(
                GOOD.replace("name: agent", f"name: agent-{n}")
            )
        (self.repository / "7.yaml").write_text(GOOD.replace("cpu: 50m", "cpu: 5O m"))

    def check(self, *arguments: str) -> Result:
        unset = dict.fromkeys(("GITOPS_DS_CACHE", "XDG_CACHE_HOME", "XDG_STATE_HOME"))
        environment = {**unset, "HOME": str(self.home), "GITOPS_DS_CACHE_KEY": "known"}
        return invoked("check", self.repository, *arguments, **environment)

    def output_of(self, *arguments: str) -> tuple[object, str, str]:
        done = self.check(*arguments)
        return done.return_value, done.stdout, done.stderr

    def forge(self) -> None:
        """Replaces the findings of the last check by none, under a valid seal. A check that trusts
        it reports none.
        """
        entries = (self.home / ".cache/gitops-ds/checks").iterdir()
        (entry,) = (one for one in entries if b'"fingerprints"' in one.read_bytes())
        data = entry.read_bytes()
        _, _, rest = data.partition(b"\n")
        state, report = rest[:64], json.loads(rest[64:])
        report |= {"findings": [], "fingerprints": [], "replacements": []}
        disk_cache.write(
            entry.parent,
            entry.name,
            state + json.dumps(report).encode(),
            hashlib.sha256(b"known").digest(),
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_an_unchanged_repository_has_the_same_report_in_every_format(desk: Desk) -> None:
    for format in ("text", "json", "junit", "markdown", "gitlab", "github"):
        whole = desk.output_of("-o", format, "--no-cache")
        assert whole[0] == 1
        assert [desk.output_of("-o", format) for _ in range(2)] == [whole, whole]


def test_an_unchanged_repository_is_not_judged_again_and_a_changed_one_is(desk: Desk) -> None:
    whole = desk.output_of()
    assert whole[0] == 1
    others = (
        ["--no-cache"],
        ["-n", "elsewhere"],
        ["--verbose"],
        ["-o", "sarif"],
        [str(desk.repository / "7.yaml")],
    )
    for other in others:
        desk.output_of()
        desk.forge()
        assert desk.output_of()[0] == 0
        assert desk.output_of(*other)[0] == 1, other
    path = desk.repository / "8.yaml"
    path.write_bytes(path.read_bytes() + b"#")
    assert desk.output_of() == whole


def test_the_version_of_a_report_covers_packages_that_exist() -> None:
    packages = Path(cli.__file__).parents[1]
    for name in (*result_cache._REPORT_JUDGES, *result_cache._JUDGES):
        assert (packages / name).is_dir(), name
