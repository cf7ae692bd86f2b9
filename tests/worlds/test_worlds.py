"""A thousand random worlds: regardless of the events, the service harms no objects of others, loses
nothing, and ends in sync with Git.

`WORLDS_SEED=5000 pytest tests/worlds/test_worlds.py -s` plays other ones. A world that fails is
named by its seed, with its story; `WORLDS_SEED=N WORLDS_COUNT=1` plays it again.
"""

from __future__ import annotations

import os

import pytest

from tests import profiles
from tests.worlds import world
from tests.worlds.events import EVENTS

FIRST = int(os.environ.get("WORLDS_SEED", "0"))
COUNT = int(os.environ.get("WORLDS_COUNT", profiles.random_cases(1000)))
TOGETHER = 50


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, TOGETHER))
def test_everything_ends_in_sync_with_git_and_objects_of_others_are_untouched(first: int) -> None:
    seeds = range(first, min(first + TOGETHER, FIRST + COUNT))
    print(f"worlds {seeds.start} to {seeds.stop - 1}")
    outcomes = [world.play(seed, EVENTS) for seed in seeds]
    wrong = [str(outcome) for outcome in outcomes if outcome.wrong]
    assert not wrong, "\n".join(wrong)


def test_a_world_is_the_same_each_time() -> None:
    assert world.play(7, EVENTS) == world.play(7, EVENTS)
