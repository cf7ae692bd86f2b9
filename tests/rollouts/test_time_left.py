"""The estimate of the time left is near the simulation of the same rollout, and shrinks with it."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.rollouts import time_left
from tests.fleet.staged_world import FAST, Watched, watched
from tests.rollouts.rollout_world import SECOND
from tests.rollouts.test_staged_simulation import PACE, preview

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


def left(there: Watched) -> time_left.TimeLeft | None:
    rollout = there.agent().rollout
    assert rollout is not None
    return time_left.time_left(rollout.inputs.policy, rollout.stages, there.world.now, PACE)


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


def test_the_batch_is_that_of_the_open_stage_within_the_cap() -> None:
    rollout = begun(FAST, 10).agent().rollout
    assert rollout is not None
    assert time_left.batch(rollout.inputs.policy, rollout.stages) == 1
