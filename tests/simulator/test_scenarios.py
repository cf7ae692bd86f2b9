"""A thousand random lives of a cluster (scenarios.py): each ends right, and no controller does on
the way what it must never do.
"""

from __future__ import annotations

import pytest

from tests import profiles
from tests.simulator import scenarios

LIVES, IN_ONE_TEST = profiles.random_cases(1000), 20


@pytest.mark.parametrize("first", range(0, LIVES, IN_ONE_TEST))
def test_every_life_ends_right(first: int) -> None:
    for seed in range(first, first + IN_ONE_TEST):
        life = scenarios.play(seed)
        assert not life.wrong, scenarios.tale(seed, life)
