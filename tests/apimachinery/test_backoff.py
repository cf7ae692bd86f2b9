"""The one back-off of the tree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core.rate_limits import Backoff


@pytest.mark.parametrize(
    ("failures", "chance", "seconds"),
    [(1, 0.0, 5.0), (2, 0.0, 10.0), (3, 0.0, 20.0), (7, 0.0, 300.0), (1, 0.5, 5.25)],
)
def test_each_delay_is_twice_the_one_before_up_to_the_longest(
    failures: int, chance: float, seconds: float
) -> None:
    assert Backoff(5.0, 300.0, jitter=0.1).delay(failures, chance) == seconds


@given(st.integers(1, 10**6), st.floats(0, 1, exclude_max=True), st.floats(0, 1))
def test_no_delay_is_shorter_than_the_first_or_longer_than_the_longest_with_its_jitter(
    failures: int, chance: float, jitter: float
) -> None:
    delay = Backoff(0.5, 60.0, jitter=jitter).delay(failures, chance)
    assert 0.5 <= delay <= 60.0 * (1 + jitter)
