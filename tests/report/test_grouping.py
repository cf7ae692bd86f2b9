"""The text of a report has equal findings once, and of many the first and a summary."""

from __future__ import annotations

from gitops_ds.checks.report import text
from gitops_ds.core.finding import Finding, Place, Severity
from gitops_ds.core.objects import Key
from gitops_ds.core.values import replace
from tests.report import made


def finding(line: int = 1, cluster: str = "eu-1", name: str = "agent", **other: object) -> Finding:
    one = Finding(
        "DS302",
        Severity.WARNING,
        "tolerates every taint",
        Place("a.yaml", line, 1),
        object=Key("apps", "DaemonSet", "logging", name),
        cluster=cluster,
    )
    return replace(one, **other)  # type: ignore[arg-type]


def printed(*findings: Finding, whole: bool = True) -> list[str]:
    return [line for line, _ in text.lines(made.report(*findings), whole=whole)]


def test_equal_findings_are_one_with_clusters_and_objects() -> None:
    lines = printed(finding(), finding(cluster="us-1"), finding(cluster="us-1", name="agent-gpu"))
    assert sum("DS302" in line for line in lines) == 1
    names = "DaemonSet logging/agent, DaemonSet logging/agent-gpu"
    assert f"        = in eu-1, us-1: {names}" in lines
    assert lines[-1].endswith("0 errors, 3 warnings, 0 info (1 distinct)")


def test_one_object_in_several_clusters_is_not_named_again() -> None:
    assert "        = in eu-1, us-1" in printed(finding(), finding(cluster="us-1"))


def test_findings_that_differ_stay_apart() -> None:
    some = (
        finding(),
        finding(line=2),
        finding(rule="DS303"),
        finding(message="another"),
        finding(severity=Severity.ERROR),
    )
    lines = printed(*some)
    assert sum("a.yaml:" in line for line in lines) == len(some)
    assert "distinct" not in lines[-1]
    assert not any(" = in " in line for line in lines)


def test_a_finding_of_one_of_several_clusters_has_its_name() -> None:
    lines = printed(finding(), finding(line=2, cluster="us-1"))
    assert [line for line in lines if " = in " in line] == [
        "        = in eu-1",
        "        = in us-1",
    ]


def test_errors_are_first_and_many_others_are_a_summary_by_rule_with_an_example() -> None:
    error = finding(line=99, rule="DS001", severity=Severity.ERROR)
    note = finding(line=7, rule="DS210", severity=Severity.INFO)
    many = [finding(line=line) for line in range(1, 11)]
    lines = printed(note, *many, error, whole=False)
    assert [line for line in lines if line.startswith("a.yaml:")] == [
        "a.yaml:99:1: error DS001: tolerates every taint"
    ]
    at = next(number for number, line in enumerate(lines) if line.startswith("11 more findings"))
    assert lines[at + 1 : at + 3] == [
        "  a.yaml:1:1: warning DS302: tolerates every taint (and 9 more)",
        "  a.yaml:7:1: info DS210: tolerates every taint",
    ]
    assert sum(line.startswith("a.yaml:") for line in printed(*many, note, error)) == 12


def test_few_findings_are_printed_in_full_with_the_errors_first() -> None:
    error = finding(line=99, severity=Severity.ERROR)
    few = [finding(line=line) for line in range(1, text.OTHERS + 1)]
    assert printed(*few, error, whole=False) == printed(error, *few)


def test_of_many_errors_the_first_are_printed_in_full() -> None:
    many = [finding(line=line, severity=Severity.ERROR) for line in range(1, 51)]
    lines = printed(*many, whole=False)
    assert sum(line.startswith("a.yaml:") for line in lines) == text.ERRORS
    assert "  a.yaml:31:1: error DS302: tolerates every taint (and 19 more)" in lines


def test_names_are_limited() -> None:
    names = [finding(cluster=f"c-{number}") for number in range(text.SHOWN_NAMES + 2)]
    assert text.grouped(names)[0].scope(several=True).endswith("c-7 and 2 more")
