"""Bounds of time and number in the decisions."""

from __future__ import annotations

import pytest

from gitops_ds.core import names
from gitops_ds.core.decision import FailedPodBackoff
from gitops_ds.core.objects import version_number
from gitops_ds.daemonset import decide, memory
from gitops_ds.daemonset.competing_controller import CompetingControllers
from gitops_ds.daemonset.indexes import Owned
from gitops_ds.daemonset.memory import OFTEN, WINDOW, PendingWrites, Repetition
from gitops_ds.daemonset.rollout_forecast import RolloutPace
from gitops_ds.daemonset.workqueue import BACKOFF, WorkQueue
from tests.daemonset.world import World, daemonset, node, rolling


@pytest.mark.parametrize(
    ("delay", "since", "expected"),
    [(1.0, 0.0, 2.0), (450.0, 0.0, 900.0), (900.0, 0.0, 900.0), (8.0, -0.1, 1.0)],
)
def test_a_failed_pod_doubles_the_delay_up_to_15_minutes_and_for_half_an_hour(
    delay: float, since: float, expected: float
) -> None:
    last = FailedPodBackoff(since, delay)
    assert memory.next_backoff(last, 1800.0) == FailedPodBackoff(1800.0, expected)
    assert memory.next_backoff(None, 5.0) == FailedPodBackoff(5.0, 1.0)


# Writes of targets: their time, how often, and whether each is futile.
@pytest.mark.parametrize(
    "writes",
    [
        [("a", 100, 5, False), ("b", 110, 1, False), ("ab", 159.9, 1, True), ("a", 160, 1, False)],
        [("a", 1000 + WINDOW * number, 1, False) for number in range(3 * OFTEN)],
        [("a", 30, 5, False), ("a", 65, 1, True)],  # others are swept
        [("a", 30, 1, False), ("b", 60, 1, False), ("a", 90, 5, False), ("a", 90, 1, True)],
        [("b", 100, 1, False), ("a", 120, 5, False), ("b", 160, 1, False), ("a", 180, 1, False)],
        [("a", 100, 1, False), ("a", 160, 5, False), ("a", 160, 1, True)],  # from one again
    ],
)
def test_a_target_is_futile_after_five_writes_in_the_minute_after_its_first(
    writes: list[tuple[str, float, int, bool]],
) -> None:
    assert (OFTEN, WINDOW) == (5, 60.0)
    repetition = Repetition()
    for targets, at, number, futile in writes:
        assert [repetition.note(targets, at) for _ in range(number)] == [futile] * number


def counted(uid: str, *times: int, probe: bool = False) -> dict[str, object]:
    entries = [
        {
            "manager": f"rival-{time}",
            "subresource": "status",
            "time": f"2026-01-01T00:00:0{time}Z",
            "fieldsV1": {"f:status": {"f:desiredNumberScheduled": {}}},
        }
        for time in times
    ]
    labels = {names.PROBE: "true"} if probe else {}
    return {"metadata": {"uid": uid, "labels": labels, "managedFields": entries}}


def test_a_competing_controller_is_detected_by_its_third_write_after_the_first_list() -> None:
    rivals = CompetingControllers()
    assert rivals.changed(counted("a", 1, 2, 3)) == ""
    assert rivals.listed([counted("a", 1, 2, 3)]) == ""
    assert rivals.changed(counted("a", 1, 2, 3)) == ""
    assert rivals.listed([counted("a", 1, 2, 4)]) == ""
    assert rivals.changed(counted("a", 1, 2, 5)) == ""
    assert rivals.changed(counted("a", 6, 2, 5)) == "rival-6"


def test_a_list_with_three_new_writes_names_the_latest() -> None:
    rivals = CompetingControllers()
    rivals.listed([])
    assert rivals.listed([counted("a", 1, 3), counted("b", 2)]) == "rival-3"


def test_a_write_into_the_probe_is_enough() -> None:
    for how in ("an event", "a list"):
        rivals = CompetingControllers()
        rivals.listed([counted("p", probe=True), counted("a", 1)])
        assert rivals.listed([counted("p", probe=True), counted("a", 1)]) == ""
        now = counted("p", 1, probe=True)
        assert (rivals.changed(now) if how == "an event" else rivals.listed([now])) == "rival-1"


def test_a_deleted_daemonset_of_the_same_uid_is_counted_again() -> None:
    rivals = CompetingControllers(patience=1)
    rivals.gone(counted("a", 1))
    rivals.listed([counted("a", 1)])
    rivals.gone(counted("a", 1))
    assert rivals.changed(counted("a", 1)) == "rival-1"


def test_a_deleted_key_is_due_at_once_when_it_returns() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(3):
        queue.add("a", 0.0)
        assert queue.take(1.0) == "a"
        queue.done("a", 1.0)
        assert queue.next_due() is None
        queue.forget("a")
    queue.add("a", 1.0)
    assert queue.next_due() == 1.0


def test_a_pod_of_a_node_that_is_gone_is_in_no_counter() -> None:
    world = World(daemonset(), 2)
    world.settle()
    world.existing("left", "node-9")
    world.turn()
    status = world.body["status"]
    assert (status["desiredNumberScheduled"], status["numberMisscheduled"]) == (2, 0)


def test_a_node_that_is_gone_has_its_place_in_the_order_of_names() -> None:
    world = World(daemonset(), [node("node-1"), node("node-3")])
    for name in ("node-4", "node-0", "node-2"):
        world.existing(f"on-{name}", name)
    layout = decide.layout(world.observe())
    assert [one.node for one in layout.nodes] == [f"node-{number}" for number in range(5)]


def test_the_usual_pace_is_half_a_minute_to_start_and_five_seconds_to_stop() -> None:
    assert RolloutPace() == RolloutPace(start=30.0, stop=5.0)


def test_with_surge_the_old_pod_of_an_ineligible_node_is_deleted_with_its_replacement() -> None:
    world = World(daemonset(updateStrategy=rolling(0, 1)), 1)
    world.settle()
    world.edit("agent:2")
    world.turn()
    world.kubelets()
    world.nodes = [node("node-0", taints=[{"key": "a", "effect": "NoSchedule"}])]
    world.settle()
    assert world.images() == {"node-0": ["agent:2"]}


def test_a_deleted_key_has_no_failures_when_it_returns() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waits = []
    for turn in range(4):
        now = 100.0 * turn
        queue.add("a", now)
        assert queue.take(now) == "a"
        queue.done("a", now, failed=True)
        due = queue.next_due()
        assert due is not None
        waits.append(round(due - now, 6))
        assert queue.take(due) == "a"
        queue.done("a", due, failed=True)
        queue.forget("a")
        after = queue.next_due()
        assert after is not None
        assert queue.take(after) == "a"
        queue.done("a", after)
    assert waits == [BACKOFF.delay(1)] * 4


@pytest.mark.parametrize(
    ("version", "number"), [("", 0), ("x", 0), ("-1", 0), ("\u0661", 0), ("1", 1), ("20", 20)]
)
def test_a_version_that_is_not_a_number_delays_nothing(version: str, number: int) -> None:
    assert version_number(version) == number


def test_the_first_version_of_a_cluster_is_kept_until_the_watch_shows_it() -> None:
    for reset in (False, True):
        writes: PendingWrites[str] = PendingWrites()
        if reset:
            writes.advance("9")
            writes.reset("")
        writes.wrote("a", "reply", "1", 0.0)
        assert writes.get("a") == "reply"
        writes.advance("1")
        assert writes.get("a") is None
        writes.wrote("a", "late", "1", 0.0)
        assert writes.get("a") is None


def test_of_two_replies_the_later_version_remains_and_of_one_version_the_later_reply() -> None:
    writes: PendingWrites[str] = PendingWrites()
    for value, version in (("first", "5"), ("again", "5"), ("earlier", "4")):
        writes.wrote("a", value, version, 0.0)
    assert writes.get("a") == "again"


def test_the_other_objects_of_an_owner_remain_when_one_is_dropped() -> None:
    owned: Owned[str] = Owned(lambda one: one, lambda one: ("owner", "ns"))
    for one in ("a", "b", "c"):
        owned.put(one)
    owned.drop("b")
    owned.put("a")
    assert sorted(owned.candidates("owner", "ns")) == ["a", "c"]
