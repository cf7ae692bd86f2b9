"""The problems of a node that are not of its pod."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from gitops_ds.apimachinery import nodes, pods, timestamps
from gitops_ds.model import names
from gitops_ds.model.values import replace
from gitops_ds.rollouts import node_steps
from tests.daemonset.world import OWNER, node
from tests.rollouts.rollout_world import SECOND, RolloutWorld


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        ({"ready": False, "unschedulable": True}, "NodeNotReady"),
        ({"deleting": True, "troubles": ("MemoryPressure",)}, "NodeDeleting"),
        ({"troubles": ("MemoryPressure",), "unschedulable": True}, "MemoryPressure"),
        ({"troubles": ("DiskPressure", "PIDPressure")}, "DiskPressure"),
        ({"unschedulable": True}, "NodeCordoned"),
    ],
)
def test_a_node_has_its_worst_problem(changes: dict[str, Any], expected: str) -> None:
    healthy = nodes.node_of(node("a"))
    assert node_steps.node_problem(replace(healthy, **changes)) == expected


def seconds_to_halt(reasons: list[str] | None) -> float:
    """The simulated time from the commit of an image that never starts to the halt."""
    policy = {"stages": [{"name": "canary", "nodes": {"count": 2}, "soak": "60s"}, "rest"]}
    gates = {} if reasons is None else {"gates": {"pods": {"reasons": reasons}}}
    world = RolloutWorld({**policy, **gates}, 6)
    world.bad_images.add(SECOND)
    world.commit(SECOND)
    began = world.now
    for _ in range(300):
        world.pass_time()
        if world.last is not None and world.stages.halt is not None:
            return world.now - began
    raise AssertionError(world.last)


def test_a_reason_of_the_template_fails_a_pod_at_once_unless_the_gate_allows_it() -> None:
    assert seconds_to_halt(None) < 30
    assert seconds_to_halt(["CrashLoopBackOff"]) < 30
    assert 180 <= seconds_to_halt(["ImagePullBackOff", "ErrImagePull"]) < 240


def test_the_clock_of_a_node_does_not_shorten_the_soak() -> None:
    world = RolloutWorld({"stages": [{"name": "canary", "soak": "1h"}, "rest"]}, 6)
    world.commit(SECOND)
    for _ in range(20):
        world.pass_time()
        for body in world.pods.values():
            for condition in (body.get("status") or {}).get("conditions") or ():
                condition["lastTransitionTime"] = timestamps.text(world.now - 86_400)
    assert len(world.on(SECOND)) == 1
    world.now += 3_600
    world.pass_time()
    assert "canary" in world.stages.record.passed


@pytest.mark.parametrize("owned", [False, True])
def test_a_pod_of_an_edit_to_the_target_is_returned_before_its_stage(owned: bool) -> None:
    policy = {"stages": [{"name": "canary", "nodes": {"count": 2}, "soak": "1h"}, "rest"]}
    world = RolloutWorld(policy, 6, owned=owned)
    canary = world.canary()
    edited = copy.deepcopy(next(one for one in world.revisions.values() if one["revision"] == 0))
    edited["metadata"] |= {
        "name": "agent-edited",
        "labels": {"app": "agent", names.REVISION_HASH: "edited"},
        "ownerReferences": [OWNER],
    }
    world.revisions["agent-edited"] = world._born(edited) | {"revision": 2}
    pod = next(body for body in world.pods.values() if pods.pod_of(body).node not in canary)
    pod["metadata"]["labels"][names.REVISION_HASH] = "edited"
    pod["metadata"]["creationTimestamp"] = timestamps.text(world.now)
    pod["spec"]["containers"][0]["image"] = SECOND
    world.start(pod)
    assert len(world.on(SECOND)) == 3
    for _ in range(20):
        world.pass_time()
    assert world.on(SECOND) == canary


def test_canary_nodes_that_are_replaced_by_machines_with_their_names_halt_nothing() -> None:
    policy = {"stages": [{"name": "canary", "nodes": {"count": 2}, "soak": "1h"}, "rest"]}
    world = RolloutWorld(policy, 6)
    canary = world.canary()
    for body in world.nodes:
        if body["metadata"]["name"] in canary:
            body["metadata"]["creationTimestamp"] = timestamps.text(world.now + 5)
            body["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    world.now += 10
    world.pass_time()
    assert world.stages.halt is None
    reasons = {one.reason for one in world.stages.nodes if one.node in canary}
    assert reasons == {"NodeReplaced"}


@pytest.mark.parametrize("owned", [False, True])
def test_pods_under_the_hash_of_a_deleted_revision_count_as_updated(owned: bool) -> None:
    world = RolloutWorld({"stages": ["rest"]}, 3, owned=owned)
    (hash,) = {pod["metadata"]["labels"][names.REVISION_HASH] for pod in world.pods.values()}
    proof = json.loads(world.body["metadata"]["annotations"][names.PROVEN])
    world.body["metadata"]["annotations"][names.PROVEN] = json.dumps({**proof, "hash": hash})
    (revision,) = world.revisions.values()
    world.revisions.clear()
    again = copy.deepcopy(revision)
    again["metadata"]["name"] = "agent-again"
    again["metadata"]["labels"][names.REVISION_HASH] = "again"
    world.revisions["agent-again"] = again
    uids = set(world.pods)
    for _ in range(4):
        world.pass_time()
    hashes = {pod["metadata"]["labels"][names.REVISION_HASH] for pod in world.pods.values()}
    assert hashes == {"again"}
    assert set(world.pods) == uids
