"""The counters of the status, and the messages for people."""

from __future__ import annotations

import pytest

from gitops_ds.core.health import Blame, HealthState
from gitops_ds.status import health
from tests.daemonset.world import World, daemonset, node, rolling


def counts(world: World) -> tuple[int, ...]:
    status = world.body["status"]
    fields = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberMisscheduled",
        "numberReady",
        "updatedNumberScheduled",
    )
    return tuple(status[field] for field in (*fields, "numberAvailable", "numberUnavailable"))


def settled(nodes: int = 3, max_unavailable: int = 1) -> World:
    world = World(daemonset(updateStrategy=rolling(max_unavailable)), nodes)
    world.settle()
    return world


def test_the_counters_follow_the_pods() -> None:
    world = World(daemonset(), 3)
    world.turn()
    assert counts(world) == (3, 0, 0, 0, 0, 0, 3)
    world.turn()
    assert counts(world) == (3, 3, 0, 0, 3, 0, 3)
    world.kubelets()
    world.turn()
    assert counts(world) == (3, 3, 0, 3, 3, 3, 0)
    world.nodes[0] = node("node-0", taints=[{"key": "a", "effect": "NoSchedule"}])
    world.turn()
    assert counts(world) == (2, 2, 1, 2, 2, 2, 0)


def test_the_status_is_written_only_when_it_changed() -> None:
    world = settled()
    assert world.turn().status is None
    world.body["metadata"]["generation"] += 1
    status = world.turn().status
    assert status is not None
    assert status.observed_generation == world.body["metadata"]["generation"]
    assert world.turn().status is None


def test_a_fleet_is_missing_then_progressing_then_healthy() -> None:
    assert health.judge(None).state is HealthState.MISSING
    world = World(daemonset(), 2)
    assert {n.reason for n in health.judge(world.observe()).nodes} == {"NoPod"}
    world.turn()
    assert health.judge(world.observe()).state is HealthState.PROGRESSING
    world.settle()
    judged = health.judge(world.observe())
    assert (judged.state, judged.message, judged.nodes) == (
        HealthState.HEALTHY,
        "2 of 2 nodes available",
        (),
    )


def test_a_bad_image_is_the_templates_fault() -> None:
    world = settled()
    world.bad_images = {"bad"}
    world.edit("bad")
    world.settle()
    judged = health.judge(world.observe())
    assert judged.state is HealthState.FAILED
    assert "ImagePullBackOff: node-0" in judged.message
    assert next((n.node, n.reason, n.blame) for n in judged.nodes) == (
        "node-0",
        "ImagePullBackOff",
        Blame.TEMPLATE,
    )


@pytest.mark.parametrize(("waited", "reason"), [(60.0, "Starting"), (601.0, "NotReady")])
def test_a_pod_that_is_never_ready_becomes_a_failure(waited: float, reason: str) -> None:
    world = World(daemonset(), 1)
    world.turn()
    (pod,) = world.pods.values()
    world.start(pod, ready=False)
    del pod["status"]["containerStatuses"]
    world.now += waited
    judged = health.judge(world.observe())
    assert [n.reason for n in judged.nodes] == [reason]
    assert (judged.state is HealthState.FAILED) == (reason == "NotReady")
    assert [n.message for n in judged.nodes] == ["the pod is not ready yet"]


def test_on_delete_is_healthy_with_earlier_pods_and_reports_them() -> None:
    world = World(daemonset(updateStrategy={"type": "OnDelete"}), 2)
    world.settle()
    world.edit("agent:2")
    world.settle()
    judged = health.judge(world.observe())
    assert judged.state is HealthState.HEALTHY
    assert "2 run an earlier revision" in judged.message


def test_a_number_of_unavailable_nodes_that_is_wrong_alone_is_written_again() -> None:
    world = World(daemonset(), 2)
    world.settle()
    assert world.turn().status is None
    world.body["status"] = {**world.body["status"], "numberUnavailable": 7}
    assert world.turn().status is not None
    assert world.turn().status is None
