"""The estimate of the time left is near the simulation of the same rollout, and shrinks with it."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.staged_rollout import (
    Halt,
    HoldKind,
    NodeProgress,
    NodeStep,
    RolloutRecord,
    StageHold,
    StageProgress,
    StagesDecision,
    StageState,
)
from gitops_ds.core.values import replace
from gitops_ds.daemonset.rollout_forecast import RolloutPace
from gitops_ds.rollouts.decisions import staged_forecast
from tests.rollouts.rollout_world import SECOND
from tests.rollouts.test_staged_forecast import PACE, preview
from tests.status.staged_world import FAST, Watched, watched

POLICIES: dict[str, dict[str, Any]] = {
    "default": {"policy": "v1"},
    "fast": FAST,
    "five per cent": {"stages": ["canary", "rest"], "limits": {"atRisk": {"cluster": "5%"}}},
    "one by one": {"stages": [{"name": "rest", "pace": {"max": 1, "every": "60s"}, "soak": "0s"}]},
    "wide": {
        "stages": [{"name": "rest", "pace": {"start": "50%", "max": "50%"}, "soak": "10s"}],
        "limits": {"atRisk": {"cluster": "100%"}},
    },
}


def begun(policy: dict[str, Any], nodes: int = 40, rounds: int = 1) -> Watched:
    there = watched(policy, nodes)
    there.commit(SECOND)
    there.rounds(rounds)
    return there


def left(there: Watched) -> staged_forecast.TimeLeft | None:
    rollout = there.agent().rollout
    assert rollout is not None
    return staged_forecast.time_left(rollout.inputs.policy, rollout.stages, there.world.now, PACE)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_the_estimate_is_near_the_simulation(policy: dict[str, Any]) -> None:
    there = begun(policy)
    simulated = preview(policy, there.world.nodes).seconds
    remaining = left(there)
    assert remaining is not None
    assert simulated is not None
    assert remaining.seconds == pytest.approx(simulated, rel=0.15, abs=45)
    assert not remaining.at_least


def test_the_estimate_shrinks_and_a_halt_has_none() -> None:
    there = begun(FAST, 10, 6)
    before = left(there)
    there.rounds(14)
    after = left(there)
    assert before is not None
    assert after is not None
    assert after.seconds < before.seconds
    there.world.bad_images.add(SECOND)
    for pod in there.world.pods.values():
        if pod["spec"]["containers"][0]["image"] == SECOND:
            there.world.start(pod, ready=False)
    there.rounds(60)
    assert left(there) is None


def test_a_stage_with_an_approval_takes_at_least_that_long() -> None:
    rest = {"name": "rest", "approval": {"from": ["team-a"]}, "soak": "10s"}
    remaining = left(begun({"stages": [FAST["stages"][0], rest]}, 10))
    assert remaining is not None
    assert remaining.at_least


STEPS = {
    "W": NodeStep.WAITING,
    "R": NodeStep.REPLACING,
    "A": NodeStep.STARTING,
    "S": NodeStep.SOAKING,
    "P": NodeStep.PROVED,
    "F": NodeStep.FAILED,
    "N": NodeStep.SET_ASIDE,
    "B": NodeStep.PARKED,
}
SLOW: dict[str, Any] = {"name": "rest", "soak": "100s", "pace": {"start": 1, "factor": 1, "max": 1}}


def decision(letters: str, **more: Any) -> StagesDecision:
    """One open stage with such nodes; a soaking one is proved at 1050."""
    nodes = tuple(
        NodeProgress(str(index), "rest", STEPS[one], until=1050.0 if one == "S" else None)
        for index, one in enumerate(letters)
    )
    stage = StageProgress("rest", StageState.OPEN, tuple(node.node for node in nodes))
    record = RolloutRecord(halt=more.pop("halt", None))
    made = StagesDecision((), frozenset(), nodes, (stage,), 0, more.pop("cap", 10), record)
    return replace(made, **more)


@pytest.mark.parametrize(
    ("nodes", "stage", "more", "seconds"),
    [
        ("P", {}, {}, 0),
        ("S", {}, {}, 50),
        ("W", {}, {}, 135),  # 35 s for its pod, then the soak
        ("R", {}, {}, 135),
        ("A", {}, {}, 135),
        ("RA", {}, {}, 135),
        ("AW", {}, {}, 170),
        ("WW", {}, {}, 170),  # one after the other, and the soaks overlap
        ("WWB", {}, {}, 170),
        ("PW", {}, {}, 135),
        ("WW", {}, {"cap": 1}, 270),  # the second after the soak of the first
        ("SW", {}, {"cap": 1}, 185),
        ("WW", {"pace": {"start": 2, "max": 2}}, {}, 135),
        ("WW", {"pace": {"start": 1, "max": 1, "every": "60s"}}, {}, 195),
        ("W", {"pace": {"start": 1, "max": 1, "every": "600s"}}, {}, 135),  # no batch follows
        ("WWW", {"pace": {"start": 2, "factor": 1, "max": 2}}, {}, 170),
        ("NW", {}, {}, 135),
        ("W", {}, {"hold": StageHold("a window", 1300.0, kind=HoldKind.WINDOW)}, 435),
        ("W", {}, {"hold": StageHold("a window", 900.0, kind=HoldKind.WINDOW)}, 135),
        ("W", {}, {"hold": StageHold("a person", kind=HoldKind.APPROVAL)}, None),
        ("WF", {}, {}, None),
        ("W", {}, {"halt": Halt(1.0, "rest", "it crashes")}, None),
    ],
)
def test_the_seconds_left(
    nodes: str, stage: dict[str, Any], more: dict[str, Any], seconds: float | None
) -> None:
    policy = rollout_policy.decode({"stages": [{**SLOW, **stage}]})
    found = staged_forecast.time_left(
        policy, decision(nodes, **more), 1000.0, RolloutPace(30.0, 5.0)
    )
    assert (found.seconds if found else None) == seconds


@pytest.mark.parametrize(
    ("state", "stage", "at_least"),
    [
        (StageState.OPEN, {}, False),
        (StageState.PENDING, {}, False),
        (StageState.PENDING, {"approval": {"from": ["a"]}}, True),
        (StageState.OPEN, {"approval": {"from": ["a"]}}, False),
        (StageState.PENDING, {"windows": ["night"]}, True),
        (StageState.OPEN, {"windows": ["night"]}, False),
        (StageState.OPEN, {"nodesWhen": "idle"}, True),
        (StageState.OPEN, {"oneAtATime": "zone"}, True),
        (StageState.PASSED, {"oneAtATime": "zone"}, False),
        (StageState.HELD, {}, False),
        (StageState.HELD, {"windows": ["night"]}, True),
        (StageState.HELD, {"approval": {"from": ["a"]}}, None),
        (StageState.HELD, {"nodesWhen": "idle"}, None),
    ],
)
def test_the_time_is_at_least_that_where_a_stage_waits_for_more(
    state: StageState, stage: dict[str, Any], at_least: bool | None
) -> None:
    policy = rollout_policy.decode({"stages": [{**SLOW, **stage}]})
    made = decision("W")
    made = replace(made, stages=(replace(made.stages[0], state=state),))
    found = staged_forecast.time_left(policy, made, 1000.0)
    assert (found.at_least if found else None) is at_least


@pytest.mark.parametrize(
    ("nodes", "pace", "cap", "size"),
    [
        ("WWWWWW", {"start": 2, "max": "100%"}, 10, 2),
        ("PPWWWW", {"start": 2, "max": "100%"}, 10, 4),
        ("PSWWWW", {"start": 2, "max": "100%"}, 10, 4),
        ("PAWWWW", {"start": 2, "max": "100%"}, 10, 2),
        ("WWWWWW", {"start": 4, "max": "100%"}, 3, 3),
        ("WW", {"start": 4, "max": 4}, 10, 2),
        ("", {"start": 4, "max": 4}, 10, 1),
    ],
)
def test_the_size_of_a_batch(nodes: str, pace: dict[str, Any], cap: int, size: int) -> None:
    policy = rollout_policy.decode({"stages": [{**SLOW, "pace": pace}]})
    made = decision(nodes, cap=cap)
    assert staged_forecast.batch(policy, made) == size
    passed = replace(made, stages=(replace(made.stages[0], state=StageState.PASSED),))
    assert staged_forecast.batch(policy, passed) == 0


def test_the_batch_is_that_of_the_open_stage_within_the_cap() -> None:
    rollout = begun(FAST, 10).agent().rollout
    assert rollout is not None
    assert staged_forecast.batch(rollout.inputs.policy, rollout.stages) == 1
