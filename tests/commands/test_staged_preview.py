"""The stages of a rollout in check and plan, before anything is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import schemas
from tests.cli.commands import invoked
from tests.commands.test_what_a_change_does import CLUSTER, Change, asking, inventory, node
from tests.plan.world import daemonset

AGENT, POLICY = "agents/a/daemonset.json", "agents/a/rollout.yaml"
POOLS = """pools:
  general: {match: [{key: pool, in: [general]}], nodes: 8}
  gpu: {match: [{key: pool, in: [gpu]}], nodes: 2}
"""
STAGES = """
stages:
  - {name: canary, nodes: {count: 2}, soak: 10m}
  - {name: general, where: {pool: general}, pace: {max: 50%}}
  - {name: gpu, where: {pool: gpu}, windows: [night]}
  - rest
limits: {atRisk: {cluster: 50%}}
windows: {night: {cron: "0 1 * * *", length: 4h}}
"""


@pytest.fixture
def change(tmp_path: Path) -> Change:
    return Change(tmp_path)


def of(change: Change, policy: str, pools: str = POOLS) -> None:
    """A commit with another image, of an agent with this policy."""
    settings = "version: v1\nname: agents\n"
    base = {"gitops-ds.yaml": settings, "clusters/one.yaml": CLUSTER + pools, POLICY: policy}
    before, after = asking("10m", "10Mi"), asking("10m", "10Mi", "registry.example.com/agent:2")
    change.of({**base, AGENT: before}, {AGENT: after})


def nodes() -> list[dict[str, Any]]:
    pools = ["general"] * 8 + ["gpu"] * 2
    return [node(f"node-{number}", pool=pool) for number, pool in enumerate(pools)]


EXPECTED = """\
      staged rollout of 10 nodes in 4 stages, about 16 min without faults \
(a pod starts in 30 s and stops in 5 s), at most 5 at risk:
        canary: 2 nodes: node-0, node-1; from 0 s to 11 min
        general: 6 nodes: node-2, node-3, node-4, node-5, node-6, node-7; from 11 min to 14 min
        gpu: 2 nodes: node-8, node-9; from 14 min to 16 min; waits for window night
        rest: 0 nodes
"""


def test_a_check_shows_the_stages_with_their_first_nodes_and_times(
    change: Change, tmp_path: Path
) -> None:
    of(change, STAGES)
    snapshot = inventory(tmp_path, *nodes())
    text = change.check("--snapshot", snapshot).stdout
    assert EXPECTED in text
    assert "at a time" not in text
    markdown = change.check("--snapshot", snapshot, "-o", "markdown").stdout
    assert "canary: 2 nodes: node-0, node-1" in markdown


def test_the_json_of_a_check_has_every_node_in_its_order(change: Change, tmp_path: Path) -> None:
    of(change, STAGES)
    document = change.report("--snapshot", inventory(tmp_path, *nodes()))
    (one,) = document["changes"][0]["changes"]
    stages = one["stages"]
    assert [(stage["name"], stage["nodes"]) for stage in stages["stages"]] == [
        ("canary", ["node-0", "node-1"]),
        ("general", [f"node-{number}" for number in range(2, 8)]),
        ("gpu", ["node-8", "node-9"]),
        ("rest", []),
    ]
    assert stages["stages"][2]["waits"] == ["window night"]
    assert stages["stages"][0]["begins"] == 0
    assert "rehearsal" not in one


def test_declared_nodes_are_counted_by_pool(change: Change) -> None:
    of(change, STAGES)
    assert "canary: 2 nodes of pool general; from 0 s" in change.check().stdout
    (one,) = change.report()["changes"][0]["changes"]
    assert [(s["count"], s["nodes"]) for s in one["stages"]["stages"]][:2] == [(2, []), (6, [])]


def test_without_nodes_the_stages_alone_are_named(change: Change) -> None:
    of(change, "stages: [canary, rest]\n", pools="")
    assert "staged rollout in 2 stages: canary, rest" in change.check().stdout


def test_a_new_agent_and_a_change_beside_the_template_begin_no_rollout(
    change: Change, tmp_path: Path
) -> None:
    settings = {"gitops-ds.yaml": "version: v1\nname: agents\n", "clusters/one.yaml": CLUSTER}
    policy = {POLICY: "stages: [canary, rest]\n", "agents/b/rollout.yaml": "stages: [canary]\n"}
    same, labelled = asking("10m", "10Mi"), asking("10m", "10Mi")
    labelled["metadata"]["labels"] = {"team": "x"}
    other = daemonset("b", namespace="logging")
    change.of(
        {**settings, **policy, AGENT: same}, {AGENT: labelled, "agents/b/daemonset.json": other}
    )
    assert "staged" not in change.check("--snapshot", inventory(tmp_path, *nodes())).stdout


def test_a_plan_shows_the_stages_over_the_nodes_of_the_snapshot(
    change: Change, tmp_path: Path
) -> None:
    of(change, STAGES)
    live = asking("10m", "10Mi")
    live["metadata"] |= {"uid": "u", "generation": 1}
    snapshot = inventory(tmp_path, *nodes(), live)
    words = ("plan", change.upstream.path, "--snapshot", snapshot)
    assert EXPECTED in invoked(*words).stdout
    document = json.loads(invoked(*words, "-o", "json").stdout)
    schemas.check(document, "plan")
    (update,) = [one for one in document["changes"] if one["operation"] == "update"]
    assert update["stages"]["stages"][0]["nodes"] == ["node-0", "node-1"]
    markdown = invoked(*words, "-o", "markdown").stdout
    assert "canary: 2 nodes: node-0, node-1" in markdown
