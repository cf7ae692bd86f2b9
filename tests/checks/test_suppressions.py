"""A suppression hides a finding: with a reason, for a time, and never one that an API server
would refuse.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path, PurePosixPath

import orjson
import pytest

from gitops_ds.checks.report import findings as report
from gitops_ds.cli.check import shown_findings
from gitops_ds.cli.check.model import CheckResult
from gitops_ds.core.errors import UsageError
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.source.render import bundle as rendering

TODAY = date(2030, 6, 15)

AGENT = """\
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: agent
  namespace: logging
  labels:
    app.kubernetes.io/name: agent
    app.kubernetes.io/part-of: logging
    app.kubernetes.io/managed-by: gitops-ds
  annotations: {%(annotations)s}
spec:
  minReadySeconds: 10
  selector: {matchLabels: {app.kubernetes.io/name: agent}}
  template:
    metadata: {labels: {app.kubernetes.io/name: agent}}
    spec:
      priorityClassName: system-node-critical
      tolerations:
        - {key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}
      dnsPolicy: Default
      hostNetwork: true%(comment)s
%(above)s
      hostPID: true
      %(more)s
      containers:
        - name: agent
          image: registry.example.com/agent:1.2.3
          resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 128Mi}}
          readinessProbe: {exec: {command: [/bin/ready]}}
"""
BOTH = ["DS502", "DS504"]


def agent(annotation: str = "", comment: str = "", above: str = "", more: str = "") -> str:
    annotations = f'gitops-ds.io/ignore: "{annotation}"' if annotation else ""
    return AGENT % {"annotations": annotations, "comment": comment, "above": above, "more": more}


def checked(files: dict[str, str], clusters: tuple[str, ...] = ()) -> CheckResult:
    snapshot = SourceTree(
        None, {PurePosixPath(name): text.encode() for name, text in files.items()}
    )
    names = clusters or rendering.clusters(snapshot) or ("",)
    prepared = tuple(prepare.prepare(snapshot, cluster=name) for name in names)
    one = len(prepared) == 1
    result = dict.fromkeys(
        finding.on_cluster("") if one else finding for each in prepared for finding in each.findings
    )
    return CheckResult(snapshot, prepared, tuple(result))


def left(result: CheckResult, **options: frozenset[str]) -> list[str]:
    return sorted(
        finding.rule for finding in shown_findings.without(result, TODAY, **options).findings
    )


def messages(result: CheckResult) -> list[str]:
    remaining = shown_findings.without(result, TODAY).findings
    return [f"{one.place}: {one.message}" for one in remaining if one.rule.startswith("DS90")]


def test_without_a_suppression_every_finding_is_reported() -> None:
    result = checked({"a.yaml": agent()})
    assert left(result) == BOTH
    assert shown_findings.without(result, TODAY).suppressed == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DS502=it listens there", ["DS504"]),
        ("DS502=it listens there; DS504=it shows them", []),
        ("DS502, DS504=both are its work", []),
        ("DS502=it listens there; until=2030-06-15", ["DS504"]),
        ("DS502=it listens there; until=2030-06-14", [*BOTH, "DS903"]),
        ("DS502=it listens there; until=some day", [*BOTH, "DS903"]),
        ("DS502=it listens there; until=2030-06-14; DS504=it shows them", ["DS502", "DS903"]),
        ("DS502", [*BOTH, "DS903"]),
        ("DS502=", [*BOTH, "DS903"]),
        ("all of it", [*BOTH, "DS903"]),
        ("until=2030-12-31", [*BOTH, "DS903"]),
        ("DS502=it listens there; DS501=it was privileged", ["DS504", "DS902"]),
    ],
)
def test_an_annotation_is_for_its_object(text: str, expected: list[str]) -> None:
    other = agent().replace("name: agent", "name: other")
    assert left(checked({"a.yaml": agent(text)})) == expected
    assert left(checked({"a.yaml": agent(text), "b.yaml": other})) == sorted([*expected, *BOTH])


@pytest.mark.parametrize(
    ("comment", "above", "expected"),
    [
        ("  # gitops-ds: ignore DS502 it listens there", "", ["DS504"]),
        ("  # gitops-ds: ignore DS502 it listens there; until=2030-06-14", "", [*BOTH, "DS903"]),
        ("  # gitops-ds: ignore DS502", "", [*BOTH, "DS903"]),
        ("  # gitops-ds: ignore DS504 the line below has it", "", [*BOTH, "DS902"]),
        ("", "      # gitops-ds: ignore DS504 it shows them", ["DS502"]),
        (
            "",
            "      # gitops-ds: ignore DS504 it shows them\n\n      # a continued explanation",
            ["DS502"],
        ),
        ("", "      # gitops-ds: ignore DS502 the line above has it", [*BOTH, "DS902"]),
        ("  # as gitops-ds: shows, ignore DS502", "", BOTH),
    ],
)
def test_a_comment_is_for_its_line_or_the_next_one(
    comment: str, above: str, expected: list[str]
) -> None:
    assert left(checked({"a.yaml": agent(comment=comment, above=above)})) == expected


CLUSTERS = {
    "clusters/eu-1.yaml": "environment: production\n",
    "clusters/eu-2.yaml": "environment: staging\n",
}


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ("reason: it listens there", ["DS504", "DS504"]),
        ("reason: it listens there, environment: production", ["DS502", "DS504", "DS504"]),
        (
            "reason: it listens there, environment: none",
            ["DS502", "DS502", "DS504", "DS504", "DS902"],
        ),
        ('reason: it listens there, object: "DaemonSet logging/*"', ["DS504", "DS504"]),
        (
            'reason: it listens there, object: "DaemonSet dns/*"',
            ["DS502", "DS502", "DS504", "DS504", "DS902"],
        ),
        ('reason: it listens there, path: "agents/*"', ["DS504", "DS504"]),
        ("reason: it listens there, class: cni", ["DS502", "DS502", "DS504", "DS504", "DS902"]),
        ("reason: it listens there, class: logging", ["DS504", "DS504"]),
        (
            "reason: it listens there, until: '2030-06-14'",
            ["DS502", "DS502", "DS504", "DS504", "DS903"],
        ),
        ("object: DaemonSet logging/agent", ["DS502", "DS502", "DS504", "DS504", "DS903"]),
    ],
)
def test_an_exception_is_for_what_meets_its_conditions(
    conditions: str, expected: list[str]
) -> None:
    settings = (
        f"version: v1\nclass: {{logging: [agent]}}\nexceptions:\n  - {{rule: DS502, "
        f"{conditions}}}\n"
    )
    assert (
        left(
            checked(
                {"gitops-ds.yaml": settings, "agents/agent/daemonset.yaml": agent(), **CLUSTERS}
            )
        )
        == expected
    )


def test_an_annotation_that_one_cluster_has_is_for_that_cluster() -> None:
    patch = """
- target: {kind: DaemonSet, name: agent}
  patch:
    - op: add
      path: /metadata/annotations
      value: {gitops-ds.io/ignore: "DS502=it listens there"}
"""
    agents = {"agents/agent/daemonset.yaml": agent(), "agents/agent/patches/production.yaml": patch}
    result = checked({"gitops-ds.yaml": "version: v1\n", **agents, **CLUSTERS})
    remaining = shown_findings.without(result, TODAY).findings
    assert sorted((one.rule, one.cluster) for one in remaining) == [
        ("DS502", "eu-2"),
        ("DS504", "eu-1"),
        ("DS504", "eu-2"),
    ]


def test_a_blocking_finding_is_reported_and_so_is_its_suppression() -> None:
    result = checked({"a.yaml": agent("DS418=we like it so", more="restartPolicy: OnFailure")})
    assert left(result) == ["DS418", *BOTH, "DS902"]
    assert "DS418 is blocking" in messages(result)[0]
    names = frozenset(report.fingerprints(result.findings))
    assert left(result, baseline=names) == ["DS418", "DS902"]


def test_unused_suppressions_are_reported_only_by_a_complete_check() -> None:
    files = {"a.yaml": agent("DS501=it was privileged"), **CLUSTERS}
    assert left(checked(files)).count("DS902") == 1
    assert "DS902" not in left(checked(files, ("eu-1",)))
    refused = {"a.yaml": agent("DS501=it was privileged", more="restartPolicy: OnFailure")}
    assert "DS902" not in left(checked(refused))
    assert "DS902" not in left(
        checked({"a.yaml": agent("DS604=no node has it yet; DS404=off; DS999=unknown")})
    )


def test_a_suppressed_finding_is_kept_with_its_reason() -> None:
    kept = shown_findings.without(
        checked({"a.yaml": agent("DS502=it listens there")}), TODAY
    ).suppressed
    assert [(finding.rule, reason) for finding, reason in kept] == [("DS502", "it listens there")]


def test_the_place_of_a_fault_is_where_it_is_written() -> None:
    annotated = checked({"a.yaml": agent("DS501=it was privileged")})
    assert messages(annotated) == [
        "a.yaml:10:38: the suppression of DS501 matches no finding: remove it"
    ]
    commented = checked({"a.yaml": agent(comment=" # gitops-ds: ignore DS504")})
    assert [text.partition(": ")[0] for text in messages(commented)] == ["a.yaml:21:25"]


def test_a_baseline_matches_a_finding_on_another_line(tmp_path: Path) -> None:
    before = checked({"a.yaml": agent()})
    file = tmp_path / "before.json"
    file.write_bytes(
        orjson.dumps(
            {"findings": [{"fingerprint": one} for one in report.fingerprints(before.findings)]}
        )
    )
    names = shown_findings.read_baseline(str(file))
    moved = checked({"a.yaml": "# a new first line\n\n" + agent(more="hostIPC: true")})
    assert left(moved, baseline=names) == ["DS504"]
    (remaining,) = shown_findings.without(moved, TODAY, names).findings
    assert "hostIPC" in remaining.message


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"findings": [1]}', '{"findings": [{}]}', '{"findings": 1}']
)
def test_a_file_that_is_not_a_report_is_not_a_baseline(tmp_path: Path, text: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(UsageError, match="not a report"):
        shown_findings.read_baseline(str(file))
    with pytest.raises(UsageError, match="No such file"):
        shown_findings.read_baseline(str(tmp_path / "missing.json"))


def test_suppressions_are_read_only_from_files_of_the_repository() -> None:
    settings = 'version: v1\nmanifests: ["*.yaml"]\nignore: ["old/**"]\n'
    comment = "# gitops-ds: ignore DS502\n"
    result = checked(
        {"gitops-ds.yaml": settings, "a.yaml": agent(), "old/b.yaml": comment, "README.md": comment}
    )
    assert left(result) == BOTH


@pytest.mark.parametrize(
    ("switches", "expected"),
    [
        ("{}", BOTH),
        ("{DS502: false}", ["DS504"]),
        ("{DS411: true}", ["DS411", *BOTH]),
        ("{DS416: true, DS504: false}", ["DS416", "DS502"]),
        ("{DS418: false}", ["DS418", *BOTH]),
        ("{DS511: true}", [*BOTH, "DS511"]),
    ],
)
def test_a_repository_switches_advice_on_and_off(switches: str, expected: list[str]) -> None:
    settings = f'version: v1\nmanifests: ["*.yaml"]\nrules: {switches}\n'
    more = "restartPolicy: OnFailure" if "DS418" in switches else "serviceAccountName: agent"
    assert left(checked({"gitops-ds.yaml": settings, "a.yaml": agent(more=more)})) == expected


def test_a_setting_for_an_unknown_rule_is_reported() -> None:
    files = {
        "gitops-ds.yaml": "version: v1\nmanifests: [a.yaml]\nrules:\n  DS4111: true\n",
        "a.yaml": agent(),
    }
    remaining = [finding for finding in checked(files).findings if finding.rule == "DS003"]
    assert [(str(one.place), one.refused, one.message) for one in remaining] == [
        (
            "gitops-ds.yaml:4:3",
            False,
            'rule "DS4111" not found: did you mean "DS411"? (see docs/rules.md)',
        )
    ]
