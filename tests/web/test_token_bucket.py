"""A token bucket gives a burst, and then a steady rate."""

from __future__ import annotations

from gitops_ds.core.rate_limits import TokenBucket


def test_a_burst_and_then_the_rate() -> None:
    bucket = TokenBucket(3, 2.0)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert not bucket.take(100.25)
    assert bucket.take(100.5)
    assert [bucket.take(1000.0) for _ in range(4)] == [True, True, True, False]


def test_an_amount_over_the_burst_is_never_granted() -> None:
    bucket = TokenBucket(3, 2.0)
    assert not bucket.take(0.0, 4.0)
    assert bucket.take(0.0, 3.0)


def test_time_that_goes_backwards_refills_nothing() -> None:
    bucket = TokenBucket(1, 1.0)
    assert bucket.take(100.0)
    assert not bucket.take(50.0)
    assert bucket.take(51.0)


def test_borrowed_tokens_are_regained_one_after_the_other() -> None:
    bucket = TokenBucket(2, 10.0)
    assert [bucket.borrow(0.0) for _ in range(4)] == [0.0, 0.0, 0.1, 0.2]
    assert bucket.borrow(0.3) == 0.0
