"""The pages of rules about one object and about a file are true: the rule finds what its page calls
wrong, and nothing in what it calls right.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.checks.engine import catalogue, rule_table, suppressions
from gitops_ds.checks.engine.rule import Violation
from gitops_ds.checks.schema import manifests
from gitops_ds.core.objects import show_path
from gitops_ds.kube.apimachinery import kubernetes_versions
from gitops_ds.source import rules
from gitops_ds.yaml import libyaml, nodes, parser
from gitops_ds.yaml.documents import AMBIGUOUS
from tests import goldens

# Advice about the wrong examples of its page.
ADVICE = Path(__file__).parent / "advice"

# A DaemonSet that no rule has anything against; a part on a page is merged into it, lists of the
# page in place of its own.
GOOD = """
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: agent
  namespace: logging
  labels:
    app.kubernetes.io/name: agent
    app.kubernetes.io/part-of: logging
    app.kubernetes.io/managed-by: gitops-ds
spec:
  selector: {matchLabels: {app.kubernetes.io/name: agent}}
  minReadySeconds: 10
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 10%}}
  template:
    metadata: {labels: {app.kubernetes.io/name: agent}}
    spec:
      priorityClassName: system-node-critical
      serviceAccountName: agent
      automountServiceAccountToken: false
      nodeSelector: {kubernetes.io/os: linux}
      tolerations:
        - {key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: agent
          image: "registry.example.com/agent:1.2.3@sha256:\
            0000000000000000000000000000000000000000000000000000000000000000"
          ports: [{name: metrics, containerPort: 9100}]
          resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 128Mi}}
          readinessProbe: {httpGet: {path: /ready, port: metrics}}
          livenessProbe: {exec: {command: [/bin/alive]}}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
"""


def parsed(text: str) -> dict[str, Any]:
    (document,) = parser.read("page", text.encode()).documents
    assert isinstance(document.value, dict)
    return document.value


def manifest(example: str) -> dict[str, Any]:
    """The manifest that an example means."""
    part = parsed(example)
    return part if "kind" in part else over(parsed(GOOD), part)


def over(base: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(base)
    for key, value in part.items():
        made[key] = (
            over(made[key], value)
            if isinstance(value, dict) and isinstance(made.get(key), dict)
            else value
        )
        if value is None:
            del made[key]
    return made


def found(rule: str, example: str) -> list[Any]:
    """What the rows of a rule find; one that weighs differently from case to case has more than
    one.
    """
    body = manifest(example)
    shape = [
        complaint
        for complaint in manifests.check(body, (kubernetes_versions.NEWEST,))
        if complaint.refused
    ]
    assert {error.rule.id for error in shape} <= {rule}, "another rule sees it first"
    return shape or [hit for row in rule_table.RULES if row.id == rule for hit in row.check(body)]


def described_violation(example: int, violation: Violation) -> str:
    """A violation and its fix: `safe fix` or `proposal`."""
    lines = [f"{example} {show_path(violation.path)}: {violation.message}"]
    if fix := violation.fix:
        lines.append(f"  {'safe fix' if fix.safe else 'proposal'}: {fix.words}")
        lines += [
            f"    {show_path(one.path)} {f'is called {one.key}' if one.key else one.value}"
            for one in fix.mends
        ]
    return "".join(f"{line}\n" for line in lines)


def test_no_rule_has_anything_against_the_manifest_that_the_examples_are_parts_of() -> None:
    body = parsed(GOOD)
    assert not list(manifests.check(body, (kubernetes_versions.NEWEST,)))
    assert not [
        (rule.id, list(rule.check(body))) for rule in rule_table.RULES if list(rule.check(body))
    ]


@pytest.mark.parametrize("rule", sorted({rule.id for rule in rule_table.RULES}))
def test_a_rule_finds_what_its_page_calls_wrong_and_nothing_in_what_it_calls_right(
    rule: str,
) -> None:
    page = catalogue.page_of(rule)
    assert page is not None, f"write gitops_ds/checks/pages/{rule}.md"
    described = []
    for number, example in enumerate(page.wrong, 1):
        hits = found(rule, example)
        assert hits, f"not found in:\n{example}"
        described += [
            described_violation(number, hit) for hit in hits if isinstance(hit, Violation)
        ]
    if any(row.id == rule and not row.refused for row in rule_table.RULES):
        goldens.check(ADVICE / f"{rule}.txt", "".join(described))
    for example in page.right:
        assert not found(rule, example), f"found in:\n{example}"


def of_file(example: str) -> set[str]:
    """The rules with a violation in a file; a part of a DaemonSet is merged into the good one."""
    file = parser.read("page", example.encode())
    rules = {finding.rule for finding in file.findings}
    for one in file.documents:
        body = one.value if "kind" in one.value else over(parsed(GOOD), one.value)
        rules |= {error.rule.id for error in manifests.check(body, BOTH) if error.refused}
    return rules


# About suppressions and rules, without examples.
OF_THE_CHECK = (suppressions.UNUSED, suppressions.UNANSWERED, rule_table.CRASHED)
# The parser and the schemas find the violations of these rules.
OF_FILES = {rule.id for rule in (rules.UNKNOWN_FIELD, rules.WRONG_TYPE, nodes.SYNTAX)}.union(
    rule.id for rule in (libyaml.DUPLICATE, AMBIGUOUS, manifests.API_VERSION, manifests.ELSEWHERE)
)
BOTH = (kubernetes_versions.OLDEST, kubernetes_versions.NEWEST)


@pytest.mark.parametrize("rule", sorted(OF_FILES))
def test_a_rule_about_files_finds_what_its_page_calls_wrong_and_nothing_else(rule: str) -> None:
    page = catalogue.page_of(rule)
    assert page is not None
    assert [example for example in page.wrong if rule not in of_file(example)] == []
    assert [of_file(example) for example in page.right] == [set()] * len(page.right)


def test_the_list_of_rules_is_the_table() -> None:
    written = (Path(__file__).resolve().parents[2] / "docs/rules.md").read_text()
    assert written == catalogue.as_markdown(), "run `make generate`"
