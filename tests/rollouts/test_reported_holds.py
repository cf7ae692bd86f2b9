"""A hold is one event while it lasts or returns within minutes, for each target; so are other nodes
of a canary after its own died, left or were cordoned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core.events.base import Event
from gitops_ds.core.events.rollouts import RolloutHeld, StageNodesReplaced, StageOpened
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.staged_rollout import (
    HoldKind,
    NodeProgress,
    NodeStep,
    RolloutRecord,
    StageHold,
    StageInputs,
    StageProgress,
    StagesDecision,
    StageState,
)
from gitops_ds.rollouts.decisions import rollout_holds
from gitops_ds.rollouts.decisions.rollout_holds import RETURNS, ReplacedNodes, ReportedHolds
from gitops_ds.rollouts.inputs.rollout_memory import RolloutMemory
from tests.rollouts.rollout_world import SECOND, RolloutWorld
from tests.rollouts.test_stages import FAST

HOLDS = st.sampled_from(
    [
        None,
        StageHold("1 node still starting", kind=HoldKind.SUSPICION),
        StageHold("2 nodes still starting", 5.0, kind=HoldKind.SUSPICION),
        StageHold("gate a", kind=HoldKind.GATE, about="a"),
        StageHold("gate b", kind=HoldKind.GATE, about="b"),
    ]
)
STEPS = st.lists(
    st.tuples(st.floats(0.0, 2 * RETURNS), st.sampled_from(["one", "two"]), HOLDS), max_size=20
)


@given(STEPS)
def test_a_hold_is_new_unless_it_was_in_force_a_few_minutes_ago(
    steps: list[tuple[float, str, StageHold | None]],
) -> None:
    reported, now = ReportedHolds(), 0.0
    ends = dict[object, float]()  # by hold, when it was last in force
    lasting: object = None
    for seconds, target, hold in steps:
        now += seconds
        if lasting is not None:
            ends[lasting] = now
        lasting = (target, hold.kind, hold.about) if hold is not None else None
        reported = reported.after(target, hold, now)
        is_new = lasting is not None and now - ends.get(lasting, -RETURNS * 9) > RETURNS
        assert reported.is_new == is_new


class Service:
    """The rollouts of one process over a world with a freeze."""

    def __init__(self, world: RolloutWorld) -> None:
        self.world, self.events = world, list[Event]()
        self.rollouts = RolloutMemory(self.events.append, lambda: world.now)

    def turn(self) -> int:
        """One round; returns the number of events about holds so far."""
        world = self.world
        inputs, seen = world.inputs(), world.observe()
        assert isinstance(inputs, StageInputs)
        staged = world.staged_turn()
        assert staged is not None
        self.rollouts.decided(seen, inputs, staged)
        world.now += 5.0
        return sum(isinstance(event, RolloutHeld) for event in self.events)


def test_a_restart_repeats_no_event_and_a_new_target_has_its_own() -> None:
    world = RolloutWorld({**FAST, "freeze": [{"from": "2027-01-01", "to": "2027-02-01"}]}, 4)
    service = Service(world)
    world.commit(SECOND)
    assert [service.turn() for _ in range(3)] == [1, 1, 1]
    service = Service(world)
    assert [service.turn() for _ in range(2)] == [0, 0]
    world.commit("agent:3")
    assert [service.turn() for _ in range(2)] == [1, 1]
    world.commit(SECOND)
    assert service.turn() == 1  # within a few minutes, for the same template


def test_a_stage_opens_once_for_each_target_also_over_a_restart() -> None:
    world = RolloutWorld(FAST, 4)
    world.commit(SECOND)
    service = Service(world)
    service.turn()
    assert _opened(service) == 1
    service = Service(world)
    service.turn()
    assert _opened(service) == 0
    world.commit("agent:3")
    service.turn()
    assert _opened(service) == 1


def _opened(service: Service) -> int:
    return sum(isinstance(event, StageOpened) for event in service.events)


ONE: dict[str, Any] = {
    **FAST,
    "stages": [{"name": "canary", "nodes": {"count": 1}, "soak": "60s"}, {"name": "rest"}],
}


def die(world: RolloutWorld) -> None:
    world.nodes[0]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]


def leave(world: RolloutWorld) -> None:
    del world.nodes[0]


@pytest.mark.parametrize(
    ("happens", "reason", "taken"),
    [(die, "NodeNotReady", "node-001"), (leave, "NodeGone", "node-003")],  # of the same zone
)
def test_each_replacement_is_one_event(
    happens: Callable[[RolloutWorld], None], reason: str, taken: str
) -> None:
    world = RolloutWorld(ONE, 4)
    service = Service(world)
    world.commit(SECOND)
    for number in range(12):
        service.turn()
        world.turn()
        world.kubelets()
        if number == 5:
            assert world.on(SECOND) == {"node-000"}
            happens(world)
    replaced = [event for event in service.events if isinstance(event, StageNodesReplaced)]
    assert [(one.stage, one.lost, one.taken) for one in replaced] == [
        ("canary", (f"node-000 ({reason})",), (taken,))
    ]


@pytest.mark.parametrize(
    ("before", "now", "steps", "lost"),
    [
        ("a", "ab", "xw", {"a": "NodeNotReady"}),
        ("ab", "bc", ".xw", {"a": "NodeGone", "b": "NodeNotReady"}),
        ("ab", "bc", ".sw", None),  # one of its nodes is left
        ("ab", "abc", "sww", None),
        ("", "a", "w", None),
        ("a", "ab", "pw", None),  # broken before it was touched
    ],
)
def test_the_nodes_of_a_stage_are_replaced_when_none_of_them_is_left(
    before: str, now: str, steps: str, lost: dict[str, str] | None
) -> None:
    """`.` is a node that left the cluster."""
    words = {
        "x": (NodeStep.SET_ASIDE, "NodeNotReady"),
        "p": (NodeStep.PARKED, "NodeNotReady"),
        "s": (NodeStep.SOAKING, ""),
        "w": (NodeStep.WAITING, ""),
    }
    nodes = tuple(
        NodeProgress(name, "canary", *words[step])
        for name, step in zip(sorted({*before, *now}), steps, strict=True)
        if step != "."
    )

    def decision(members: str) -> StagesDecision:
        stage = StageProgress("canary", StageState.OPEN, tuple(members))
        return StagesDecision((), frozenset(), nodes, (stage,), 0, 1, RolloutRecord())

    found = rollout_holds.replaced(rollout_policy.decode(ONE), decision(before), decision(now))
    taken = tuple(name for name in now if name not in before)
    assert list(found) == ([ReplacedNodes("canary", lost, taken)] if lost else [])
