"""DS323: where it is reported, and which taints count."""

from __future__ import annotations

import pytest

from gitops_ds.checks.engine import check
from gitops_ds.core.finding import Finding
from gitops_ds.source import render
from tests.render import snapshots

AGENT = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: a, namespace: agents}
spec:
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec:
      tolerations: [%s]
      containers: [{name: a, image: "a:1"}]
"""
OWN = "{key: gitops-ds.io/agents-not-ready, operator: Exists, effect: NoSchedule}"
CILIUM = "{key: node.cilium.io/agent-not-ready, operator: Exists%s}"


def found(tolerations: str, rule: str = "true", **files: str) -> list[Finding]:
    texts = {
        "gitops-ds.yaml": f"version: v1\nrules: {{DS323: {rule}}}\n",
        "agents/a/agent.yaml": "drift: report\nrequiredForWork: true\n",
        "agents/a/daemonset.yaml": AGENT % tolerations,
        **files,
    }
    tree = snapshots.of_texts(texts)
    bundle = render.render(tree)
    return [one for one in check.check(bundle, tree) if one.rule == "DS323"]


def test_it_blocks_the_commit_at_the_line_that_requires_the_agent() -> None:
    (finding,) = found("")
    assert finding.refused
    assert str(finding.place) == "agents/a/agent.yaml:2:18"


def test_the_fix_tolerates_the_taint() -> None:
    (finding,) = found("{key: other}")
    assert finding.fix is not None
    (mend,) = finding.fix.mends
    assert [one["key"] for one in mend.value] == ["other", "gitops-ds.io/agents-not-ready"]


@pytest.mark.parametrize(
    ("tolerations", "missing"),
    [
        (OWN, ["NoSchedule", "NoExecute"]),
        (f"{OWN}, {CILIUM % ''}", []),
        (f"{OWN}, {CILIUM % ', effect: NoSchedule'}", ["NoExecute"]),
    ],
)
def test_the_taints_of_the_settings_count_with_every_effect(
    tolerations: str, missing: list[str]
) -> None:
    rule = "{taints: [gitops-ds.io/agents-not-ready:NoSchedule, node.cilium.io/agent-not-ready]}"
    messages = [one.message for one in found(tolerations, rule)]
    assert [one.rpartition("taint ")[2].split(":")[1] for one in messages] == missing
