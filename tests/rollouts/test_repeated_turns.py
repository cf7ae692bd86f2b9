"""A turn of a rollout again, from its observation and the inputs that a journal keeps."""

from __future__ import annotations

import pytest

from gitops_ds.apimachinery.rollouts import target_revisions
from gitops_ds.model import names
from gitops_ds.model.values import replace
from gitops_ds.rollouts import pinned_pods, stage_inputs
from tests.rollouts.rollout_world import SECOND, RolloutWorld
from tests.rollouts.test_stages import FAST

IDLE = {**FAST, "stages": [{**FAST["stages"][0], "nodesWhen": "idle"}, "rest"]}


def staged() -> RolloutWorld:
    world = RolloutWorld(IDLE, 6)
    world.body["metadata"]["annotations"][names.ROLLOUT_POLICY] = target_revisions.policy_text(
        IDLE, ()
    )
    world.commit(SECOND)
    return world


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("busy", [frozenset[str](), frozenset({"node-000", "node-001"})])
def test_a_repeated_turn_has_the_same_decision(owned: bool, busy: frozenset[str]) -> None:
    world = staged()
    decide = pinned_pods.decide_owned if owned else pinned_pods.decide_pinned
    for _ in range(4):
        seen = world.observe()
        inputs = stage_inputs.observed(seen)
        assert inputs is not None
        inputs = replace(inputs, busy=busy)
        decided = decide(seen, inputs)
        turn = stage_inputs.turn_of(inputs, decided, owned=owned)
        assert turn.owned is owned
        assert turn.outside.busy == busy
        again = stage_inputs.repeated(seen, turn)
        assert again is not None
        assert again.decision == decided.decision
        assert again.stages == decided.stages
        world.pass_time()


def test_without_a_policy_that_can_be_read_no_turn_is_repeated() -> None:
    world = staged()
    seen = world.observe()
    inputs = stage_inputs.observed(seen)
    assert inputs is not None
    turn = stage_inputs.turn_of(inputs, pinned_pods.decide_pinned(seen, inputs), owned=False)
    annotations = world.body["metadata"]["annotations"]
    annotations[names.ROLLOUT_POLICY] = "no policy"
    assert stage_inputs.repeated(world.observe(), turn) is None
    del annotations[names.ROLLOUT_POLICY]
    assert stage_inputs.repeated(world.observe(), turn) is None


def test_a_daemonset_that_is_deleted_or_has_no_selector_or_no_known_target_has_no_rollout() -> None:
    world = staged()
    assert stage_inputs.observed(world.observe()) is not None
    for change in (
        {"metadata": {**world.body["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"spec": {**world.body["spec"], "selector": {}}},
    ):
        other = staged()
        other.body = {**other.body, **change}
        assert stage_inputs.observed(other.observe()) is None
    world.revisions.clear()
    assert stage_inputs.observed(world.observe()) is None
