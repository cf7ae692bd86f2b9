"""Health counts every node that needs an agent once, and names no cause without evidence."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gitops_ds.core.health import Blame, HealthState
from gitops_ds.daemonset import decide
from gitops_ds.status import fault_attribution, health
from gitops_ds.status.fault_attribution import JOINING, OUTDATED, FaultScope
from tests.daemonset.test_properties import worlds
from tests.daemonset.world import World

ILLS = ("NotReady", "MemoryPressure", "DiskPressure", "PIDPressure", "cordoned", "leaving")
WAITS = ("ImagePullBackOff", "CrashLoopBackOff", "ContainerCreating", "CreateContainerConfigError")


@st.composite
def troubled(draw: st.DrawFn) -> World:
    """A world in which nodes are ill and pods wait for all kinds of reasons."""
    world = draw(worlds())
    if draw(st.integers(0, 3)):
        world.body["status"] = {"observedGeneration": world.body["metadata"]["generation"]}
    for node in world.nodes:
        ill = draw(st.none() | st.sampled_from(ILLS))
        if ill == "NotReady":
            node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
        elif ill == "cordoned":
            node["spec"]["unschedulable"] = True
        elif ill == "leaving":
            node["spec"]["taints"] = [
                *node["spec"].get("taints", ()),
                {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"},
            ]
        elif ill:
            node["status"]["conditions"] = [
                *node["status"]["conditions"],
                {"type": ill, "status": "True"},
            ]
    for pod in world.pods.values():
        if draw(st.booleans()):
            waiting = {"reason": draw(st.sampled_from(WAITS)), "message": "why"}
            pod["status"] = {
                "phase": "Pending",
                "containerStatuses": [{"name": "agent", "state": {"waiting": waiting}}],
            }
    world.now += draw(st.sampled_from([0, 30, 601, 10**6]))
    return world


@given(world=troubled(), refused=st.sampled_from(["", "exceeded quota"]))
def test_every_node_is_counted_once_and_every_problem_has_one_entry(
    world: World, refused: str
) -> None:
    seen = world.observe()
    judged = health.follow(health.ProgressMarker(), seen, FaultScope(600.0, refused)).health
    if seen.daemonset.deleting or seen.daemonset.selector is None:
        return
    eligible = fault_attribution.judge(decide.layout(seen), FaultScope(600.0, refused)).eligible
    counted = structs.asdict(judged.node_counts)
    assert min(counted.values()) >= 0
    assert sum(counted.values()) == eligible
    names = [node.node for node in judged.nodes]
    assert len(names) == len(set(names)) == eligible - judged.node_counts.updated
    assert names == sorted(names)
    blames = Counter(node.blame for node in judged.nodes)
    node_counts = judged.node_counts
    assert (node_counts.template_fault, node_counts.node_fault) == (
        blames[Blame.TEMPLATE],
        blames[Blame.NODE],
    )
    assert (node_counts.refused, node_counts.parked) == (
        blames[Blame.CLUSTER],
        blames[Blame.DESIGN],
    )
    if not refused:
        assert node_counts.refused == 0


@given(world=troubled())
def test_ill_nodes_alone_never_fail_a_rollout_and_a_failing_template_is_never_healthy(
    world: World,
) -> None:
    seen = world.observe()
    judged = health.judge(seen)
    blamed = {node.blame for node in judged.nodes if node.reason != JOINING}
    if seen.daemonset.observed_generation != seen.daemonset.generation:
        assert judged.state is not HealthState.HEALTHY
        return
    if blamed <= {Blame.NODE, Blame.DESIGN}:
        assert judged.state is not HealthState.FAILED
    if Blame.TEMPLATE in blamed:
        assert judged.state is HealthState.FAILED
    if judged.state is HealthState.HEALTHY:
        assert blamed <= {Blame.DESIGN}


@given(world=troubled())
def test_an_ill_node_is_to_blame_itself(world: World) -> None:
    seen = world.observe()
    ill = {
        node.name for node in seen.nodes if node.troubles or not node.ready or node.unschedulable
    }
    for node in health.judge(seen).nodes:
        if node.node in ill and node.reason != OUTDATED:
            assert node.blame is Blame.NODE
