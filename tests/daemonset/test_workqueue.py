"""The five sentences at the top of the queue, and the rates of retries."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gitops_ds.daemonset.workqueue import LONGEST_FAILED_DELAY, SHORTEST_DELAY, WorkQueue
from tests import profiles


def test_a_key_added_twice_is_taken_once_at_the_earlier_time() -> None:
    queue: WorkQueue[str] = WorkQueue()
    assert queue.add("a", 5.0)
    assert queue.add("a", 2.0)
    assert not queue.add("a", 9.0), "it cannot be taken earlier than before"
    assert (queue.next_due(), queue.take(1.9)) == (2.0, None)
    assert queue.take(2.0) == "a"
    queue.done("a", 2.0)
    assert queue.next_due() is None


def test_the_length_is_the_number_of_waiting_keys() -> None:
    queue: WorkQueue[str] = WorkQueue()
    assert len(queue) == 0
    queue.add("a", 5.0)
    queue.add("a", 2.0)
    queue.add("b", 3.0)
    assert len(queue) == 2


def test_a_key_added_during_its_processing_is_processed_again() -> None:
    queue: WorkQueue[str] = WorkQueue()
    assert queue.add("a", 0.0)
    assert queue.take(0.0) == "a"
    assert not queue.add("a", 0.0)
    assert queue.next_due() is None
    queue.done("a", 0.004)
    due = queue.next_due()
    assert due is not None
    assert 0.004 < due <= 0.054
    assert queue.take(due) == "a"


def test_a_key_that_was_moved_forward_is_still_never_taken_twice() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 5.0)
    queue.add("a", 2.0)
    assert queue.take(2.0) == "a"
    queue.add("a", 5.0)
    assert queue.take(5.0) is None
    queue.done("a", 5.0)
    assert queue.take(5.1) == "a"


def test_failures_are_retried_with_increasing_delay_and_success_resets_it() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 0.0)
    now, waits = 0.0, []
    for _ in range(25):
        assert queue.take(now) == "a"
        queue.done("a", now, failed=True)
        due = queue.next_due()
        assert due is not None
        waits.append(due - now)
        now = due
    assert [round(wait, 6) for wait in waits[:3]] == [0.005, 0.01, 0.02]
    assert round(waits[-1], 6) == 1000.0  # seconds, as client-go
    queue.take(now)
    queue.done("a", now)
    queue.add("a", now)
    now = queue.next_due() or 0.0
    assert queue.take(now) == "a"
    queue.done("a", now, failed=True)
    due = queue.next_due()
    assert due is not None
    assert round(due - now, 6) == 0.005


@pytest.mark.parametrize(("cost", "hold"), [(0.0, 0.005), (0.002, 0.01), (3.0, 0.05)])
def test_the_next_turn_of_a_key_waits_for_what_the_last_one_cost(cost: float, hold: float) -> None:
    """Also a turn that took no time is not followed at once: in virtual time each event would be a
    turn.
    """
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 10.0)
    assert queue.take(10.0) == "a"
    queue.done("a", 10.0 + cost)
    queue.add("a", 10.0 + cost)
    assert queue.next_due() == pytest.approx(10.0 + cost + hold)


def test_news_of_a_key_that_fails_does_not_bring_it_back_at_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    now = 0.0
    queue.add("a", now)
    for _ in range(12):
        due = queue.next_due()
        assert due is not None
        now = due
        assert queue.take(now) == "a"
        queue.done("a", now, failed=True)
    queue.add("a", now)
    assert LONGEST_FAILED_DELAY == 1.0
    assert queue.next_due() == now + LONGEST_FAILED_DELAY


def test_a_forgotten_key_fails_for_the_first_time_again() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 0.0)
    assert queue.take(0.0) == "a"
    for now in range(0, 80, 10):
        queue.done("a", now, failed=True)
        assert queue.take(now + 10.0) == "a"
    queue.forget("a")
    queue.done("a", 80.0, failed=True)
    assert queue.next_due() == pytest.approx(80.005)


def test_keys_that_are_due_at_the_same_time_are_taken_in_the_order_in_which_they_were_added() -> (
    None
):
    queue: WorkQueue[str] = WorkQueue()
    for key in "bca":
        queue.add(key, 1.0)
    assert [queue.take(1.0) for _ in range(3)] == ["b", "c", "a"]


def test_a_sweep_of_obsolete_entries_loses_no_waiting_key_and_no_order() -> None:
    queue: WorkQueue[int] = WorkQueue()
    for key in range(100):
        for earlier in range(4, -1, -1):  # four obsolete entries each
            queue.add(key, 1000.0 + (key * 37) % 100 + 200 * earlier)
    queue.add(-1, 0.0)
    assert queue.take(0.0) == -1
    queue.done(-1, 0.0)
    taken = [queue.take(5000.0) for _ in range(100)]
    assert taken == sorted(range(100), key=lambda key: (key * 37) % 100)
    assert queue.take(5000.0) is None


def test_a_sweep_of_past_delays_keeps_those_of_now() -> None:
    queue: WorkQueue[int] = WorkQueue()
    for key in range(200):
        queue.add(key, float(key))
        assert queue.take(float(key)) == key
        queue.done(key, float(key))
        queue.add(key, float(key))
        assert queue.next_due() == key + SHORTEST_DELAY
        assert queue.take(key + SHORTEST_DELAY) == key
        queue.done(key, key + SHORTEST_DELAY)


def test_many_keys_that_fail_share_a_rate() -> None:
    queue: WorkQueue[int] = WorkQueue()
    for key in range(1000):
        queue.add(key, 0.0)
        assert queue.take(0.0) == key
        queue.done(key, 0.0, failed=True)
    retried = list[float]()
    while (due := queue.next_due()) is not None and due <= 20.0:
        queue.take(due)
        retried.append(due)
    assert sum(due < 0.1 for due in retried) == 100  # the burst, then ten in a second, as client-go
    assert 250 <= len(retried) <= 301


class Traffic(RuleBasedStateMachine):
    """Random traffic: every key that was added is taken, and none twice at once."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: WorkQueue[str] = WorkQueue()
        self.now, self.taken, self.owed = 0.0, set[str](), set[str]()

    @rule(key=st.sampled_from("abc"), delay=st.integers(0, 3))
    def add(self, key: str, delay: int) -> None:
        self.queue.add(key, self.now + delay)
        self.owed.add(key)

    @rule(later=st.integers(0, 2))
    def take(self, later: int) -> None:
        self.now += later
        key = self.queue.take(self.now)
        if key is not None:
            assert key not in self.taken
            self.taken.add(key)
            self.owed.discard(key)

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), failed=st.booleans())
    def done(self, data: st.DataObject, failed: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.taken)))
        self.taken.discard(key)
        self.queue.done(key, self.now, failed)
        if failed:
            self.owed.add(key)

    @invariant()
    def what_is_owed_will_come(self) -> None:
        assert (self.queue.next_due() is not None) == bool(self.owed - self.taken)

    def teardown(self) -> None:
        for key in sorted(self.taken):
            self.queue.done(key, self.now)
        while (due := self.queue.next_due()) is not None:
            self.now = max(self.now, due)
            due_key = self.queue.take(self.now)
            assert due_key is not None
            self.owed.discard(due_key)
            self.queue.done(due_key, self.now)
        assert not self.owed


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(deadline=None, max_examples=profiles.examples(50))
