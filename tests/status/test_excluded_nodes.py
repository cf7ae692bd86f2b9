"""`status --nodes` has the nodes that get no pod, with the reason."""

from __future__ import annotations

from gitops_ds.cli.status import agent_text
from tests.daemonset.world import node
from tests.status.staged_world import Watched, watched


def lines(there: Watched, *, nodes: bool = True) -> list[str]:
    text = agent_text.text_of(there.agent(), there.world.now, nodes=nodes)
    return [line for line in text.splitlines() if line.startswith("No pod on")]


def test_nodes_without_a_pod_have_the_reason_in_the_template() -> None:
    there = watched(nodes=2)
    assert not lines(there)
    there.world.body["spec"]["template"]["spec"]["nodeSelector"] = {"kind": "gpu"}
    taint = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    cordoned = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    there.world.nodes += [
        node("gpu-1", {"kind": "gpu"}, [taint]),
        node("gpu-2", {"kind": "gpu"}, [taint, cordoned]),
        node("gpu-3", {"kind": "gpu"}, [cordoned]),
    ]
    assert lines(there) == [
        "No pod on 2 nodes, not selected by nodeSelector or node affinity: node-000, node-001",
        "No pod on 2 nodes, not tolerated: dedicated:NoSchedule: gpu-1, gpu-2",
    ]
    assert not lines(there, nodes=False)
