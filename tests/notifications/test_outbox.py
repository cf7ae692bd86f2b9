"""Pending and sent notifications: bounded, sent once, and the same after a restart."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core.events.definition import Topic
from gitops_ds.core.events.notifications import Notification
from gitops_ds.service.notifications import outbox
from gitops_ds.service.notifications.commit_progress import CommitStage, StageKind
from gitops_ds.service.notifications.outbox import (
    AGAIN,
    BATCH_SIZE,
    COMMITS,
    REMEMBERED,
    WAITING,
    Outbox,
    ReceiverQueue,
)


def news(number: int, topic: Topic = Topic.COMMIT, at: float = 0.0) -> Notification:
    return Notification(topic, at, f"news {number}", str(number), "fleet", f"{number:040x}")


def test_a_commit_is_sent_once_and_a_failure_again_after_an_hour() -> None:
    memory = Outbox()
    assert memory.take(news(1), ["chat"])
    assert not memory.take(news(1, at=AGAIN * 50), ["chat"])
    assert memory.take(news(1, Topic.DRIFT), ["chat"])
    assert not memory.take(news(1, Topic.DRIFT, AGAIN - 1), ["chat"])
    assert memory.take(news(1, Topic.DRIFT, AGAIN), ["chat"])
    assert not memory.take(news(1, Topic.DRIFT, 2 * AGAIN - 1), ["chat"])
    assert [item.topic for item in memory.waiting["chat"].items] == [
        Topic.COMMIT,
        Topic.DRIFT,
        Topic.DRIFT,
    ]


def test_the_outbox_is_bounded_and_dropped_items_are_counted() -> None:
    memory = Outbox()
    for number in range(5_000):
        memory.take(news(number), ["chat", "program"])
        memory.note("fleet", f"{number:040x}", CommitStage(StageKind.DONE))
    assert [len(one.items) for one in memory.waiting.values()] == [WAITING, WAITING]
    assert memory.waiting["chat"].omitted == 5_000 - WAITING
    assert (len(memory.seen), len(memory.commits["fleet"])) == (REMEMBERED, COMMITS)
    assert len(orjson.dumps(memory.show())) < 200_000


def test_a_batch_has_important_items_first_and_counts_the_rest() -> None:
    waiting = ReceiverQueue()
    for number in range(50):
        waiting.put(news(number, Topic.FAILED if number % 10 == 9 else Topic.APPLIED))
    letter = waiting.batch("eu-1")
    assert (len(letter.items), letter.omitted, letter.cluster) == (BATCH_SIZE, 30, "eu-1")
    assert sum(item.loud for item in letter.items) == 5
    assert [int(item.mark) for item in letter.items] == sorted(
        int(item.mark) for item in letter.items
    )


def test_items_added_during_a_delivery_wait_for_the_next_one() -> None:
    waiting = ReceiverQueue()
    for number in range(WAITING + 7):
        waiting.put(news(number))
    batch, omitted = list(waiting.items), waiting.omitted
    for number in range(1000, 1000 + 10):
        waiting.put(news(number))  # ten of the batch are dropped here, and are nevertheless sent
    waiting.sent(batch, omitted)
    assert [int(item.mark) for item in waiting.items] == list(range(1000, 1010))
    assert waiting.omitted == 0


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from(Topic), st.floats(0, 1e6)), max_size=60),
    st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from(StageKind), st.integers(0, 10)), max_size=60
    ),
)
def test_the_outbox_is_the_same_after_a_restart(
    items: list[tuple[int, Topic, float]], stages: list[tuple[int, StageKind, int]]
) -> None:
    memory = Outbox()
    for number, topic, at in items:
        memory.take(news(number, topic, at), ["chat"])
    for number, step, tenth in stages:
        memory.note("fleet", f"{number:040x}", CommitStage(step, tenth))
    again = outbox.parse(orjson.loads(orjson.dumps(memory.show())))
    assert again.show() == memory.show()
    assert list(again.commits.get("fleet", ())) == list(memory.commits.get("fleet", ()))


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"version": "v2"},
        {
            "version": "v1",
            "waiting": {"a": {"items": [{"topic": "x"}], "omitted": 0}},
            "told": {},
            "commits": {},
        },
    ],
)
def test_a_document_of_another_form_is_refused(document: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        outbox.parse(document)
