"""1,000 random worlds with staged rollouts: regardless of people and faults, the seven
invariants of `staged_invariants` hold after each step, and every rollout ends.

`STAGED_SEED=5000 pytest tests/worlds/test_staged_worlds.py -s` plays other ones. A world that fails
is named by its seed, with its story; `STAGED_SEED=N STAGED_COUNT=1` plays it again.
"""

from __future__ import annotations

import os

import pytest

from tests import profiles
from tests.worlds import staged_play
from tests.worlds.staged_events import TABLE

FIRST = int(os.environ.get("STAGED_SEED", "0"))
COUNT = int(os.environ.get("STAGED_COUNT", profiles.random_cases(1000)))
TOGETHER = 50


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, TOGETHER))
def test_people_and_faults_break_no_invariant_of_staged_rollouts(first: int) -> None:
    seeds = range(first, min(first + TOGETHER, FIRST + COUNT))
    print(f"worlds {seeds.start} to {seeds.stop - 1}")
    outcomes = [staged_play.play(seed, TABLE) for seed in seeds]
    wrong = [str(outcome) for outcome in outcomes if outcome.wrong]
    assert not wrong, "\n".join(wrong)


def test_a_world_is_the_same_each_time() -> None:
    assert staged_play.play(7, TABLE) == staged_play.play(7, TABLE)


def test_each_event_has_a_name_of_its_own() -> None:
    names = [row.name for row in TABLE]
    assert len(names) == len(set(names))
