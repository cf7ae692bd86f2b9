"""The pages of the rules about reading a file: their examples as files, and the findings."""

from __future__ import annotations

import pytest

from gitops_ds.apimachinery import kubernetes_versions
from gitops_ds.checks.engine import catalogue
from gitops_ds.checks.engine.rule import Rule
from gitops_ds.checks.schema import manifests
from gitops_ds.yaml import parser
from tests.checks.test_rule_pages import over, parsed

VERSIONS = (kubernetes_versions.OLDEST, kubernetes_versions.NEWEST)


def found(example: str) -> set[str]:
    """The rules that have something against a file; a part of a DaemonSet is merged into the good
    one.
    """
    file = parser.read("page", example.encode())
    reported = {finding.rule for finding in file.findings}
    for one in file.documents:
        body = one.value if "kind" in one.value else over(parsed(GOOD), one.value)
        reported |= {
            complaint.rule for complaint in manifests.check(body, VERSIONS) if complaint.refused
        }
    return reported


GOOD = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: logging}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers: [{name: agent, image: "registry.example.com/agent:1"}]
"""


@pytest.mark.parametrize("rule", manifests.RULES, ids=lambda rule: rule.id)
def test_wrong_examples_of_a_page_have_findings_and_right_ones_have_none(rule: Rule) -> None:
    page = catalogue.page_of(rule.id)
    assert page is not None
    assert page.text.startswith(f"# {rule.id}: {rule.summary}\n")
    assert page.sources
    assert page.wrong
    assert len(page.right) >= 2
    assert [rule.id in found(example) for example in page.wrong] == [True] * len(page.wrong)
    assert [found(example) for example in page.right] == [set()] * len(page.right)
