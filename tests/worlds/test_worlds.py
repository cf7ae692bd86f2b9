"""A thousand random worlds, and 750 with staged rollouts: regardless of the events, the service
harms no objects of others, loses nothing, and ends in sync with Git; in worlds with staged
rollouts, also of people and faults, and in every fourth of them of a tenant, the invariants of
`staged_invariants` hold after each step, and every rollout ends.

`WORLDS_SEED=5000 pytest tests/worlds/test_worlds.py -s` plays other ones. A world that fails is
named by its seed, with its story; `WORLDS_SEED=N WORLDS_COUNT=1` plays it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests import profiles
from tests.worlds import staged_play, world
from tests.worlds.events import EVENTS
from tests.worlds.staged_events import TABLE
from tests.worlds.world import Outcome

FIRST = int(os.environ.get("WORLDS_SEED", "0"))
COUNT = int(os.environ.get("WORLDS_COUNT", profiles.random_cases(1000)))
# A world with a tenant takes twice as long as others. The first one is the fourth.
STAGED = int(os.environ.get("WORLDS_COUNT", max(4, profiles.random_cases(750))))
TOGETHER = 50


def plain(seed: int) -> Outcome:
    return world.play(seed, EVENTS)


def staged(seed: int) -> Outcome:
    return staged_play.play(seed, TABLE)


def played(play: Callable[[int], Outcome], first: int, count: int) -> str:
    """The worlds that went wrong, with their stories."""
    seeds = range(first, min(first + TOGETHER, FIRST + count))
    print(f"worlds {seeds.start} to {seeds.stop - 1}")
    return "\n".join(str(outcome) for outcome in map(play, seeds) if outcome.wrong)


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, TOGETHER))
def test_everything_ends_in_sync_with_git_and_objects_of_others_are_untouched(first: int) -> None:
    wrong = played(plain, first, COUNT)
    assert not wrong, wrong


@pytest.mark.parametrize("first", range(FIRST, FIRST + STAGED, TOGETHER))
def test_people_and_faults_break_no_invariant_of_staged_rollouts(first: int) -> None:
    wrong = played(staged, first, STAGED)
    assert not wrong, wrong


@pytest.mark.parametrize("play", [plain, staged])
def test_a_world_is_the_same_each_time(play: Callable[[int], Outcome]) -> None:
    assert play(7) == play(7)


def test_each_event_has_a_name_of_its_own() -> None:
    names = [row.name for row in TABLE]
    assert len(names) == len(set(names))
