"""Limits of a rollout beside nodes at risk: idle nodes, writes, pulls, halts of other rollouts, and
the next try after a lost race with the DaemonSet controller.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.decision import CreatePod, DeletePod
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.staged_rollout import Halt, RolloutRecord
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.kube.apimachinery.pods import pod_of
from gitops_ds.rollouts.decisions import stage_inputs
from gitops_ds.rollouts.decisions.node_selection import RETRY_AFTER
from gitops_ds.rollouts.inputs.rollout_memory import RolloutMemory
from gitops_ds.rollouts.state import keys, target_revisions
from tests.rollouts.rollout_world import SECOND, RolloutWorld, both

OTHER = "DaemonSet logging/other"


def policy(when: str = "any", **more: Any) -> dict[str, Any]:
    stage = {"name": "all", "nodes": {"count": 10}, "nodesWhen": when, "soak": "1s", **more}
    stage["pace"] = {"start": 10, "max": 10}
    return {"stages": [stage, "rest"], "limits": {"atRisk": {"cluster": "100%"}}}


@both
def test_idle_nodes_are_taken_first_and_after_the_time_any(owned: bool) -> None:
    world = RolloutWorld(policy("idle-or-10m"), 10, owned=owned)
    world.busy = frozenset(f"node-{i:03}" for i in range(6))
    world.commit(SECOND)
    began = world.now
    while world.now < began + 590:
        world.pass_time()
        assert not world.on(SECOND) & world.busy
    assert len(world.on(SECOND)) == 4
    hold = world.stages.hold
    assert hold is not None
    assert hold.reason == "6 nodes with other pods (nodesWhen: idle-or-10m)"
    assert hold.until == pytest.approx(began + 600, abs=10)
    world.run()
    assert len(world.on(SECOND)) == 10


@both
def test_a_node_is_taken_when_it_is_idle_and_the_wait_is_overdue_after_its_time(
    owned: bool,
) -> None:
    world = RolloutWorld(policy("idle", until="5m"), 10, owned=owned)
    world.busy = frozenset({"node-003"})
    world.commit(SECOND)
    for _ in range(200):
        world.pass_time()
    assert world.on("agent:1") == {"node-003"}
    assert world.stages.hold is not None
    assert world.hold == "1 node with other pods (nodesWhen: idle), overdue"
    assert world.stages.hold.until is None
    world.busy = frozenset()
    world.run()
    assert len(world.on(SECOND)) == 10


@pytest.mark.parametrize(("seconds", "is_overdue"), [(299.0, False), (300.0, True)])
def test_the_wait_for_idle_nodes_is_overdue_from_its_time_on(
    seconds: float, is_overdue: bool
) -> None:
    world = RolloutWorld(policy("idle", until="5m"), 3)
    world.busy = frozenset({"node-000", "node-001", "node-002"})
    world.commit(SECOND)
    world.one_turn()
    began, hold = world.held_after(seconds)
    assert hold.reason.endswith(", overdue") is is_overdue
    assert hold.about == ("all, overdue" if is_overdue else "all")
    assert hold.until == (None if is_overdue else began + 300.0)


@both
def test_a_revert_does_not_wait_for_idle_nodes(owned: bool) -> None:
    world = RolloutWorld(policy("idle"), 10, owned=owned)
    world.commit(SECOND)
    world.pass_time()
    world.busy = frozenset(f"node-{i:03}" for i in range(10))
    world.commit("agent:1")
    world.run()
    assert len(world.on("agent:1")) == 10


@both
@pytest.mark.parametrize(("image", "number"), [("agent:1", 10), (SECOND, 3)])
def test_a_template_with_the_images_of_the_proven_one_pulls_none(
    owned: bool, image: str, number: int
) -> None:
    document = policy()
    document["limits"]["registry"] = {"concurrentPulls": 3}
    world = RolloutWorld(document, 10, owned=owned)
    world.commit(SECOND)
    inputs = world.inputs()
    assert inputs is not None
    template = copy.deepcopy(dict(inputs.target.template))
    template["spec"]["containers"][0]["image"] = image
    template["spec"]["terminationGracePeriodSeconds"] = 5
    inputs = replace(inputs, target=replace(inputs.target, template=template))
    assert len(world.decide(world.observe(), inputs).stages.take) == number


@pytest.mark.parametrize(("seconds", "is_taken"), [(14.0, False), (15.0, True)])
def test_a_node_whose_pod_was_made_again_is_tried_again_after_15_seconds(
    seconds: float, is_taken: bool
) -> None:
    world = RolloutWorld(policy(), 3)
    world.commit(SECOND)
    inputs = world.inputs()
    assert inputs is not None
    inputs = replace(inputs, record=replace(inputs.record, began=world.now))
    (pod,) = (one for one in world.pods.values() if pod_of(one).node == "node-001")
    pod["metadata"]["creationTimestamp"] = timestamps.text(world.now)
    made_at, world.now = world.now, world.now + seconds
    stages = world.decide(world.observe(), inputs).stages
    assert ("node-001" in stages.take) is is_taken
    assert {"node-000", "node-002"} <= set(stages.take)
    if not is_taken:
        assert stages.wake_at == made_at + 15.0


@both
def test_no_more_nodes_pull_a_new_image_than_the_limit(owned: bool) -> None:
    document = policy()
    document["limits"]["registry"] = {"concurrentPulls": 3}
    world = RolloutWorld(document, 10, owned=owned)
    world.slow_nodes = {f"node-{i:03}" for i in range(10)}
    world.commit(SECOND)
    for _ in range(10):
        world.pass_time()
    assert len(world.on(SECOND)) == 3
    world.slow_nodes.clear()
    world.run()
    assert len(world.on(SECOND)) == 10


@both
def test_writes_are_bounded_by_the_rate(owned: bool) -> None:
    document = policy()
    document["limits"]["api"] = {"writesPerSecond": 4}  # a node in a second
    world = RolloutWorld(document, 10, owned=owned)
    world.body["metadata"]["annotations"][keys.ROLLOUT_POLICY] = target_revisions.policy_text(
        document, ()
    )
    rollouts = RolloutMemory(lambda _: None, lambda: world.now)
    world.commit(SECOND)
    taken = []
    for _ in range(12):
        seen = world.observe()
        inputs = rollouts.inputs(seen)
        assert inputs is not None
        staged = world.decide(seen, inputs)
        rollouts.decided(seen, inputs, staged)
        taken.append(len(staged.stages.take))
        if inputs.at_once == 0:
            assert staged.decision.wake_after is not None
            assert staged.decision.wake_after <= 1
        for action in staged.decision.actions:
            world.perform(action)
        world.now += 0.5
    assert sum(taken) == 6
    assert max(taken) == 1


@both
def test_a_halt_of_scope_cluster_halts_the_other_rollouts_of_the_repository(owned: bool) -> None:
    other = RolloutWorld(policy(), 4)
    metadata = other.body["metadata"]
    metadata |= {"name": "other", "uid": "other-uid"}
    for scope, repository, expected in (
        ("agent", "one", ""),
        ("cluster", "two", ""),
        (
            "cluster",
            "one",
            f"the rollout of {OTHER} is halted (onFailure.scope: cluster): it crashes",
        ),
    ):
        document = {"onFailure": {"scope": scope}}
        metadata["annotations"] |= {
            keys.ROLLOUT_POLICY: target_revisions.policy_text(document, ()),
            names.REPOSITORY: repository,
        }
        other.commit(SECOND)
        name = other.body["metadata"]["annotations"][keys.TARGET]
        record = RolloutRecord(1.0, halt=Halt(2.0, "canary", "it crashes"))
        other.revisions[name]["metadata"]["annotations"][keys.ROLLOUT_RECORD] = (
            target_revisions.encoded(record)
        )
        metadata = other.body["metadata"]
        seen = other.observe()
        world = RolloutWorld(policy(), 4, owned=owned)
        world.body["metadata"]["annotations"][names.REPOSITORY] = "one"
        daemonset = world.observe().daemonset
        reason = stage_inputs.halt_elsewhere(daemonset, [(seen.daemonset, seen.revisions)])
        assert reason == expected
        world.commit(SECOND)
        world.halted_elsewhere = reason
        world.pass_time()
        world.pass_time()
        assert bool(world.on(SECOND)) is not bool(expected)
        world.halted_elsewhere = ""
        world.run()
        assert len(world.on(SECOND)) == 4
        own = stage_inputs.halt_elsewhere(seen.daemonset, [(seen.daemonset, seen.revisions)])
        assert own == ""


def test_the_default_limits_are_none() -> None:
    limits = rollout_policy.decode({}).limits
    assert limits.api.writes_per_second is None
    assert limits.registry.concurrent_pulls is None


POLICY: dict[str, Any] = {
    "stages": [{"name": "canary", "nodes": {"count": 1}, "soak": "10s"}, "rest"],
    "limits": {"atRisk": {"cluster": "100%"}},
}


def test_the_next_try_waits() -> None:
    world = RolloutWorld(POLICY, 3)
    world.commit(SECOND)
    began, tries = world.now, []
    for _ in range(60):
        inputs = world.inputs()
        assert inputs is not None
        staged = world.decide(world.observe(), inputs)
        deleted = [action for action in staged.decision.actions if isinstance(action, DeletePod)]
        if deleted and len(tries) < 3:  # the pod ends at once: the other controller creates first
            tries.append(world.now - began)
            for action in staged.decision.actions:
                if not isinstance(action, CreatePod):
                    world.perform(action)
            for one in deleted:
                world.vanish(one.key.name)
            world.turn()
        else:
            for action in staged.decision.actions:
                world.perform(action)
            world.turn()
        world.deploy()
        world.kubelets()
        assert staged.decision.actions or not tries or staged.decision.wake_after is not None
    assert len(tries) == 3, tries
    assert all(later - earlier >= RETRY_AFTER for earlier, later in itertools.pairwise(tries))
    world.run()
    assert len(world.on(SECOND)) == 3
