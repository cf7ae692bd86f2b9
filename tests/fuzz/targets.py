"""What is fuzzed. Each target takes bytes; for any bytes it ends, soon, and nothing that is
printed acts on its reader.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path, PurePosixPath
from typing import Any, Final

from gitops_ds.checks.report import formats
from gitops_ds.checks.report.findings import Report
from gitops_ds.cli.check import check_output, shown_findings
from gitops_ds.cli.check.model import CheckResult
from gitops_ds.core import errors
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.source.render import bundle as rendering
from tests.report import made, test_findings, test_forges, test_junit, test_markdown

Files = Mapping[PurePosixPath, bytes]

ROOT: Final = Path(__file__).resolve().parents[2]
# CPU seconds for one input: a hundred times what the largest of them takes on a slow machine, and
# far less than a bomb would.
PATIENCE: Final = 20.0
# A file of a repository begins at a line with its name.
_FILE: Final = re.compile(rb"^=== ([ -~]{1,80})\n", re.MULTILINE)

# The properties of the reports in all formats, as tests/report has them; here they get what a check
# of the bytes selects.
_OF_REPORTS: Final = (
    test_findings.test_no_control_character_reaches_a_terminal,
    test_findings.test_no_line_of_a_report_is_a_workflow_command,
    test_findings.test_fingerprints_are_unique,
    test_forges.test_gitlab_has_what_it_reads_and_unique_fingerprints,
    test_forges.test_sarif_is_valid_and_in_the_form_of_github,
    test_junit.test_every_report_is_xml_as_its_readers_want_it,
    test_markdown.test_a_repository_can_put_no_mention_link_image_or_html_into_a_comment,
    test_markdown.test_no_line_of_a_comment_is_a_command_to_a_forge_or_a_runner,
)


def checked(files: Files) -> CheckResult:
    """The check of a repository with these files, for all its clusters, as `gitops-ds check` makes
    it.
    """
    snapshot = SourceTree(None, files)
    names = rendering.clusters(snapshot) or ("",)
    prepared = tuple(prepare.prepare(snapshot, cluster=name) for name in names[:3])
    findings = tuple(dict.fromkeys(finding for one in prepared for finding in one.findings))
    return shown_findings.without(CheckResult(snapshot, prepared, findings), date(2026, 1, 1))


def holds(files: Files) -> None:
    """No exception, no crashed rule, not too long, and valid reports without side effects."""
    start = time.process_time()
    result = checked(files)
    report = check_output.report(result, "")
    written = {
        format: formats.written(format, report, made.about()) for format in formats.ReportFormat
    }
    assert time.process_time() - start < PATIENCE
    crashed = [finding.message for finding in result.findings if finding.rule == "DS904"]
    assert not crashed, crashed
    assert all(
        written[format]
        for format in (
            formats.ReportFormat.JSON,
            formats.ReportFormat.SARIF,
            formats.ReportFormat.JUNIT,
        )
    )
    _runs_only_ours(written[formats.ReportFormat.GITHUB])
    keeps_quiet(report)


def keeps_quiet(report: Report) -> None:
    """The properties of tests/report, for this report."""
    if len(report.findings) <= 50:  # above that the formats cut, which has tests of its own
        for property in _OF_REPORTS:
            _inner(property)(report)


def _runs_only_ours(log: str) -> None:
    """What a runner of GitHub Actions takes for commands is annotations, and a list that is stopped
    and started again.
    """
    tokens = re.findall("::stop-commands::([0-9a-f]{64})\n", log)
    names = {command.name for command in made.commands(log)}
    assert names <= {"error", "warning", "notice", "group", "endgroup", "stop-commands", *tokens}, (
        names
    )


def _inner(property: Any) -> Callable[[Report], None]:
    found: Callable[[Report], None] = property.hypothesis.inner_test
    return found


def files(data: bytes) -> Files:
    """The files that the bytes spell: each begins with a line `=== NAME`; text before the
    first is a manifest.
    """
    parts = _FILE.split(data)
    named = {PurePosixPath("manifest.yaml"): parts[0]}
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        path = PurePosixPath(name.decode())
        if not path.is_absolute() and ".." not in path.parts and path.parts:
            named[path] = text
    return named


def manifest(data: bytes) -> None:
    """One file, as YAML and as JSON would be read."""
    holds({PurePosixPath("manifest.yaml"): data})


def repository(data: bytes) -> None:
    """Files of our own format: settings, clusters, agents, values, patches."""
    try:
        holds(files(data))
    except errors.UsageError:
        return  # what a person would read


_ANNOTATED: Final = """apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: agent
  annotations:
    gitops-ds.io/ignore: %s
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      hostNetwork: true # gitops-ds: ignore %s
      containers: [{name: agent, image: agent:latest}]
"""


def answers(data: bytes) -> None:
    """Annotations, comments and exceptions by which findings are left alone."""
    text = data.decode("utf-8", "replace")
    quoted = "'" + text.replace("'", "''").replace("\n", "\n      ") + "'"
    one_line = re.sub(r"[\r\n\x85\u2028\u2029]", " ", text)
    settings = f"exceptions:\n- rule: {one_line}\n  reason: {quoted}\n"
    holds(
        {
            PurePosixPath("agent.yaml"): (_ANNOTATED % (quoted, one_line)).encode(),
            PurePosixPath("gitops-ds.yaml"): b"manifests: [agent.yaml]\n" + settings.encode(),
        }
    )


def reports(data: bytes) -> None:
    """The renderers, with the hostile texts of tests/report and those that bytes make of them."""
    properties: Any = _OF_REPORTS
    for property in properties:
        property.hypothesis.fuzz_one_input(data)


TARGETS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "manifest": manifest,
    "repository": repository,
    "answers": answers,
    "reports": reports,
}


def seeds(target: str) -> Iterator[bytes]:
    """What a target begins with: the manifests of the tests, the repositories of the examples, and
    what was found before.
    """
    yield from (
        path.read_bytes() for path in sorted((Path(__file__).parent / "found" / target).glob("*"))
    )
    if target == "manifest":
        for path in sorted((ROOT / "tests/checks/cases").glob("*/input.yaml")):
            yield path.read_bytes()
            yield from (part.encode() for part in path.read_text().split("\n---\n"))
    elif target == "repository":
        for root in sorted(
            path for path in (ROOT / "tests/render/cases").iterdir() if path.is_dir()
        ):
            yield _spelled(root)
        yield _spelled(ROOT / "examples-repo")
    elif target == "answers":
        yield from (
            b"DS505=reads the log",
            b"DS505,DS502 = why; until=2030-12-31",
            b"DS999",
            b"x\nDS410: y; until: 1",
        )
    else:
        yield from (text.encode("utf-8", "replace") for text in made.EVIL)


def _spelled(root: Path) -> bytes:
    named = (
        path for path in sorted(root.rglob("*")) if path.is_file() and path.stat().st_size < 20_000
    )
    return b"".join(
        b"=== " + path.relative_to(root).as_posix().encode() + b"\n" + path.read_bytes() + b"\n"
        for path in named
    )


def words(target: str) -> list[bytes]:
    """A dictionary for the fuzzer: what our files and those of Kubernetes are made of."""
    found = set(
        re.findall(rb"[A-Za-z][\w./-]{2,40}:?|[\[\]{}&*|>#!%-]+", b"\n".join(seeds(target)))
    )
    return sorted(
        found
        | {
            b"\n=== clusters/a.yaml\n",
            b"<<: *a",
            b"&a ",
            b"!!binary",
            b"\xef\xbb\xbf",
            b"? ",
            b"---\n",
            b"0x",
            b".inf",
            b"${a}",
        }
    )
