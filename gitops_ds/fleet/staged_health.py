"""The nodes and the state of an agent in a staged rollout. Pure.

A node that waits for its stage runs the proven template and is old, not unhealthy; a parked node,
and one that is set aside, is a fault of the node; a failed node is a fault of the template as soon
as the rollout is halted for it. A halted rollout is Failed, and one with a stage that is not passed
is never Healthy.
"""

from __future__ import annotations

from gitops_ds.fleet.fault_attribution import OUTDATED, NodeFaults
from gitops_ds.fleet.staged_rollouts import StagedRollout
from gitops_ds.model.health import Blame, NodeHealth
from gitops_ds.model.rollouts.staged_rollout import NodeProgress, NodeStep
from gitops_ds.model.values import replace
from gitops_ds.redaction import texts


def faults(judged: NodeFaults, rollout: StagedRollout) -> NodeFaults:
    """The faults by the steps of the nodes; `judged` are those by their pods, with the target as
    the wanted template.
    """
    by_pod = {node.node: node for node in judged.nodes}
    by_node = {
        name: replace(node, blame=Blame.UNKNOWN) if node.blame is Blame.DESIGN else node
        for name, node in by_pod.items()
    }
    for one in rollout.stages.nodes:
        by_node.pop(one.node, None)
        node = _node(one, by_pod.get(one.node))
        if node is not None and node.blame is Blame.TEMPLATE and rollout.halt is None:
            node = replace(node, blame=Blame.UNKNOWN)  # one more node decides the cause
        if node is not None:
            by_node[one.node] = node
    times = [time for time in (judged.again, rollout.stages.wake_at) if time is not None]
    nodes = tuple(by_node[name] for name in sorted(by_node))
    return NodeFaults(judged.eligible, nodes, min(times, default=None))


def moves_with_time(rollout: StagedRollout) -> bool:
    """Whether the rollout waits for a time or a person, so that no progress is expected now."""
    stages = rollout.stages
    return rollout.complete or stages.hold is not None or stages.wake_at is not None


def message(rollout: StagedRollout) -> str:
    """`canary 2/2, rest 3/8; on hold: freeze, until 2027-01-04T00:00:00Z`."""
    if rollout.halt is not None:
        return f"halted in stage {rollout.halt.stage}: {rollout.halt.message}"
    hold = rollout.stages.hold
    return rollout.progress + (f"; on hold: {hold.text}" if hold else "")


def _node(one: NodeProgress, judged: NodeHealth | None) -> NodeHealth | None:
    """The entry of a node that does not run the target well, None for one that does."""
    message = texts.words(one.message)
    match one.step:
        case NodeStep.PROVED | NodeStep.SOAKING:
            return None
        case NodeStep.WAITING:
            return NodeHealth(one.node, OUTDATED, Blame.UNKNOWN, f"waits in stage {one.stage}")
        case NodeStep.PARKED | NodeStep.SET_ASIDE:
            return NodeHealth(one.node, one.reason, Blame.NODE, message)
        case NodeStep.FAILED:
            return NodeHealth(one.node, one.reason, Blame.TEMPLATE, message)
        case NodeStep.REPLACING | NodeStep.STARTING:
            if judged is not None and judged.blame in (Blame.UNKNOWN, Blame.CLUSTER):
                return judged
            return NodeHealth(one.node, "Starting", Blame.UNKNOWN, message)
