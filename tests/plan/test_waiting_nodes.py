"""A plan names the nodes that wait for an agent that becomes required for work."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.change import Change, Operation
from gitops_ds.core.live import JoinTime, Node, NodeImpact, Taint
from gitops_ds.core.objects import Key
from gitops_ds.core.startup_taints import OWN
from gitops_ds.deploy.plan import printers, rollout_impact
from tests.plan.world import daemonset

GPU = Taint("nvidia.com/gpu", "NoSchedule")
NODES = (
    Node("a"),
    Node("b", taints=(OWN,)),
    Node("c", taints=(OWN, GPU)),
    Node("d", taints=(GPU,)),
)


def agent(required: bool) -> dict[str, Any]:
    body = daemonset("agent", "agent:1", "agents")
    tolerations = [{"key": OWN.key, "operator": "Exists"}]
    body["spec"]["template"]["spec"]["tolerations"] = tolerations
    body["metadata"]["annotations"] = {names.REQUIRED_FOR_WORK: "true"} if required else {}
    return body


@pytest.mark.parametrize(
    ("old", "new", "waiting"),
    [
        (None, agent(True), ("a", "b")),
        (agent(False), agent(True), ("a", "b")),
        (agent(True), agent(True), ()),
        (agent(True), agent(False), ()),
        (None, agent(False), ()),
    ],
)
def test_eligible_nodes_wait_for_an_agent_that_becomes_required(
    old: dict[str, Any] | None, new: dict[str, Any], waiting: tuple[str, ...]
) -> None:
    found = rollout_impact.with_waiting(NodeImpact(gained=("x",)), old, new, NODES)
    assert found == NodeImpact(gained=("x",), waiting=waiting)


def test_text_and_json_name_them() -> None:
    key = Key("apps", "DaemonSet", "agents", "agent")
    nodes = NodeImpact(waiting=("a", "b"))
    change = Change(Operation.UPDATE, key, None, nodes=nodes)
    (line,) = [one for one in printers.change_lines([change]) if "startup taint" in one]
    assert line.endswith("required for work from now on, with a startup taint: 2 nodes: a, b")
    assert printers.change_json(change)["waiting"] == ["a", "b"]
    assert "waiting" not in printers.change_json(Change(Operation.UPDATE, key, None))


def test_the_measured_time_of_joined_nodes_is_named() -> None:
    key = Key("apps", "DaemonSet", "agents", "agent")
    nodes = NodeImpact(waiting=("a",), joined=JoinTime(42.0, 3))
    change = Change(Operation.UPDATE, key, None, nodes=nodes)
    (line,) = [one for one in printers.change_lines([change]) if "startup taint" in one]
    assert line.endswith("it was available 42 s after a node joined, the median of 3 nodes")
    assert printers.change_json(change)["joinTime"] == {"seconds": 42.0, "nodes": 3}
