"""What the cache keeps of a DaemonSet, and for how long; whose observation changed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from gitops_ds.core.cluster import EventType
from gitops_ds.core.decision import Decision, FailedPodBackoff
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, NODE, POD, Body
from gitops_ds.core.values import replace
from gitops_ds.daemonset.cache import Cache
from gitops_ds.daemonset.memory import DaemonSetMemory
from gitops_ds.kube.apimachinery import daemonsets, revisions
from tests.daemonset.test_cache import (
    FOREIGN,
    KEY,
    ORPHAN,
    TAINT,
    filled,
    observe,
    pod,
    revision,
    settled,
)
from tests.daemonset.world import START, daemonset, node

MODIFIED, DELETED = EventType.MODIFIED, EventType.DELETED


def name_for(body: Body) -> str:
    return revisions.name_for(daemonsets.daemonset_of(body))


def namesake(cache: Cache) -> str:
    """The UID of the foreign revision with our name, empty without one."""
    found = observe(cache).namesake
    return found.uid if found is not None else ""


NewsOf = Callable[[dict[str, Any]], list[tuple[Any, EventType, dict[str, Any]]]]


def named(body: Body, uid: str = "r") -> dict[str, Any]:
    return revision(**FOREIGN, name=name_for(body), uid=uid)


def edited(body: Body) -> dict[str, Any]:
    changed = copy.deepcopy(dict(body))
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "agent:2"
    return changed


NAMESAKES: dict[str, tuple[NewsOf, str]] = {
    "seen": (lambda body: [], "r"),
    "a collision count": (
        lambda body: [(DAEMONSET, MODIFIED, {**body, "status": {"collisionCount": 1}})],
        "",
    ),
    "another template": (lambda body: [(DAEMONSET, MODIFIED, edited(body))], ""),
    "deleted": (lambda body: [(CONTROLLER_REVISION, DELETED, named(body))], ""),
    "an earlier one is deleted": (
        lambda body: [
            (CONTROLLER_REVISION, EventType.ADDED, named(body, "later")),
            (CONTROLLER_REVISION, DELETED, named(body)),
        ],
        "later",
    ),
}


@pytest.mark.parametrize(("news", "uid"), NAMESAKES.values(), ids=NAMESAKES)
def test_a_foreign_revision_with_our_name_is_observed(news: NewsOf, uid: str) -> None:
    world = settled()
    cache = filled(world)
    cache.apply(CONTROLLER_REVISION, EventType.ADDED, named(world.body), "200")
    assert (namesake(cache), namesake(cache)) == ("r", "r")
    for number, event in enumerate(news(world.body)):
        cache.apply(*event, str(201 + number))
    assert namesake(cache) == uid


@pytest.mark.parametrize("owner", [{}, ORPHAN])
def test_an_own_revision_and_a_selected_orphan_are_not_namesakes(owner: dict[str, Any]) -> None:
    world = settled()
    cache = filled(world)
    own = revision(**owner, name=name_for(world.body))
    cache.apply(CONTROLLER_REVISION, EventType.ADDED, own, "200")
    assert namesake(cache) == ""


def a_pod_vanished(cache: Cache) -> None:
    cache.apply(POD, EventType.ADDED, pod(), "200")
    cache.apply(POD, DELETED, pod(), "201")
    assert observe(cache).vanished == {"node-0": "p"}


def test_a_daemonset_keeps_its_memory_through_its_own_changes() -> None:
    cache = filled(settled())
    a_pod_vanished(cache)
    cache.apply(DAEMONSET, MODIFIED, daemonset("agent:2"), "202")
    assert observe(cache).vanished == {"node-0": "p"}
    cache.replace(DAEMONSET, [daemonset("agent:3")], "203")
    assert observe(cache).vanished == {"node-0": "p"}


@pytest.mark.parametrize("how", ["an event", "a list"])
def test_nothing_is_kept_of_a_deleted_daemonset(how: str) -> None:
    cache = filled(settled())
    a_pod_vanished(cache)
    if how == "an event":
        assert cache.apply(DAEMONSET, DELETED, daemonset(), "202") == {KEY}
    else:
        assert cache.replace(DAEMONSET, [], "202") == {KEY}
    assert (cache.observe(KEY, START), cache.keys) == (None, ())
    assert cache.apply(DAEMONSET, EventType.ADDED, daemonset(), "203") == {KEY}
    assert observe(cache).vanished == {}


def test_the_end_of_a_former_daemonset_of_the_name_leaves_the_present_one() -> None:
    cache = filled(settled())
    former = daemonset()
    former["metadata"]["uid"] = "former"
    assert cache.apply(DAEMONSET, DELETED, former, "202") == {KEY}
    assert cache.keys == (KEY,)


@pytest.mark.parametrize("how", ["an event", "a list"])
def test_everything_about_a_deleted_node_is_forgotten(how: str) -> None:
    cache = filled(settled())
    a_pod_vanished(cache)
    if how == "an event":
        cache.apply(NODE, DELETED, node("node-0"), "202")
    else:
        cache.replace(NODE, [node("node-1")], "202")
    seen = observe(cache)
    assert [one.name for one in seen.nodes] == ["node-1"]
    assert seen.vanished == {}
    cache.apply(NODE, EventType.ADDED, node("node-0"), "203")
    seen = observe(cache)
    assert [one.name for one in seen.nodes] == ["node-0", "node-1"]
    assert seen.vanished == {}


def test_a_pod_on_a_node_that_is_gone_is_not_remembered() -> None:
    cache = filled(settled())
    cache.apply(POD, EventType.ADDED, pod(), "200")
    cache.apply(NODE, DELETED, node("node-0"), "201")
    cache.apply(POD, DELETED, pod(), "202")
    cache.apply(NODE, EventType.ADDED, node("node-0"), "203")
    assert observe(cache).vanished == {}


def test_a_pod_that_vanished_from_a_list_is_remembered() -> None:
    cache = filled(settled())
    cache.apply(POD, EventType.ADDED, pod(), "200")
    cache.replace(POD, [], "201")
    assert observe(cache).vanished["node-0"]


def test_only_recently_created_pods_that_the_watch_has_not_shown_are_unshown() -> None:
    cache = filled(settled())
    recent = "2027-01-15T08:00:00Z"  # START
    cache.wrote(POD, pod(uid="a", resourceVersion="200", creationTimestamp=recent), START)
    cache.wrote(POD, pod(uid="b", resourceVersion="201", creationTimestamp=recent), START)
    assert observe(cache).unshown == 2
    cache.wrote(POD, pod(uid="x", resourceVersion="202", **FOREIGN), START)
    assert observe(cache).unshown == 2
    shown = pod(uid="a", resourceVersion="199", creationTimestamp=recent)
    cache.apply(POD, EventType.ADDED, shown, "199")
    assert observe(cache).unshown == 1
    cache.wrote(POD, pod(uid="b", resourceVersion="203", creationTimestamp=recent), START + 200)
    assert (observe(cache, START + 299).unshown, observe(cache, START + 300).unshown) == (1, 0)


def moved(cache: Cache) -> bool:
    return KEY in cache.take_moved()


def test_the_event_of_an_own_write_is_not_a_second_change() -> None:
    cache, body = filled(settled()), daemonset()
    body["metadata"]["resourceVersion"] = "300"
    cache.wrote(DAEMONSET, body, START)
    assert moved(cache)
    cache.apply(DAEMONSET, MODIFIED, body, "300")
    assert not moved(cache)
    body["metadata"]["resourceVersion"] = "301"
    cache.apply(DAEMONSET, MODIFIED, body, "301")
    assert moved(cache)


def test_changes_are_returned_once() -> None:
    cache = filled(settled())
    assert moved(cache)
    assert not moved(cache)


CHANGES: dict[str, tuple[Any, Body, bool]] = {
    "an own pod": (POD, pod(), True),
    "a foreign pod": (POD, pod(**FOREIGN), False),
    "an own revision": (CONTROLLER_REVISION, revision(), True),
    "a foreign revision": (CONTROLLER_REVISION, revision(**FOREIGN), False),
    "the DaemonSet": (DAEMONSET, daemonset("agent:2"), True),
    "a label of a node where it runs": (NODE, node("node-0", {"a": "b"}), True),
    "a taint of a node where it runs": (NODE, node("node-0", taints=TAINT), True),
    "a node": (NODE, node("node-9"), True),
    "the same node": (NODE, node("node-0"), False),
}


@pytest.mark.parametrize(("resource", "body", "changes"), CHANGES.values(), ids=CHANGES)
def test_an_event_changes_the_observation_of_those_that_it_concerns(
    resource: Any, body: Body, changes: bool
) -> None:
    cache = filled(settled())
    cache.take_moved()
    cache.apply(resource, MODIFIED, body, "200")
    assert moved(cache) == changes


def test_a_label_of_a_node_where_it_does_not_run_changes_no_observation() -> None:
    cache = filled(settled())
    cache.apply(NODE, EventType.ADDED, node("node-9", taints=TAINT), "200")
    cache.take_moved()
    cache.apply(NODE, MODIFIED, node("node-9", {"a": "b"}, taints=TAINT), "201")
    assert not moved(cache)


@pytest.mark.parametrize("resource", [POD, CONTROLLER_REVISION, DAEMONSET])
def test_an_own_write_changes_the_observation(resource: Any) -> None:
    cache = filled(settled())
    cache.take_moved()
    bodies = {POD: pod(), CONTROLLER_REVISION: revision(), DAEMONSET: daemonset()}
    body: dict[str, Any] = copy.deepcopy(bodies[resource])
    body["metadata"]["resourceVersion"] = "300"
    cache.wrote(resource, body, START)
    assert moved(cache)
    cache.wrote(resource, {"metadata": {"name": "x"}}, START)
    assert not moved(cache)


@pytest.mark.parametrize("resource", [POD, CONTROLLER_REVISION, DAEMONSET, NODE])
def test_a_new_list_changes_every_observation_but_the_same_nodes_none(resource: Any) -> None:
    world = settled()
    cache = filled(world)
    cache.take_moved()
    items = {DAEMONSET: [world.body], NODE: world.nodes}.get(resource, [])
    assert cache.replace(resource, items, "300") == {KEY}
    assert moved(cache) == (resource is not NODE)


def test_a_list_of_daemonsets_wakes_those_that_are_new_and_those_that_are_gone() -> None:
    cache, other = filled(settled()), daemonset()
    other["metadata"] |= {"name": "other", "uid": "other"}
    assert cache.replace(DAEMONSET, [other], "300") == {KEY, replace(KEY, name="other")}


def test_a_revision_that_we_wrote_and_a_new_list_does_not_hold_is_dropped() -> None:
    cache = filled(settled())
    cache.wrote(CONTROLLER_REVISION, revision(uid="own", resourceVersion="500"), START)
    assert "own" in {one.uid for one in observe(cache).revisions}
    cache.replace(CONTROLLER_REVISION, [], "501")
    assert observe(cache).revisions == ()


def test_lost_replies_change_every_observation() -> None:
    cache = filled(settled())
    cache.wrote(POD, pod(resourceVersion="500"), START)
    cache.asks(POD)
    cache.take_moved()
    assert cache.answered(NODE, "400") == set()
    assert not moved(cache)
    assert cache.answered(POD, "400") == {KEY}
    assert moved(cache)


def test_a_backoff_lapses_half_an_hour_after_its_failed_pod() -> None:
    memory = DaemonSetMemory()
    memory.backoffs = {"a": FailedPodBackoff(0.0, 1.0), "b": FailedPodBackoff(100.0, 1.0)}
    memory.lapse(1800.0)
    assert memory.backoffs.keys() == {"a", "b"}
    memory.lapse(1900.0)
    assert memory.backoffs.keys() == {"b"}


def test_the_backoffs_of_a_decision_are_observed_for_half_an_hour() -> None:
    cache = filled(settled())
    backoffs = {name: FailedPodBackoff(START, 1.0) for name in ("node-0", "node-1")}
    for name, backoff in backoffs.items():
        cache.remember(observe(cache).daemonset, Decision(backoffs={name: backoff}))
    cache.remember(observe(cache).daemonset, Decision())
    assert observe(cache, START + 1800).backoffs == backoffs
    assert observe(cache, START + 1801).backoffs == {}


def test_the_backoff_of_a_deleted_node_is_forgotten() -> None:
    cache = filled(settled())
    memory = cache._memories.of(observe(cache).daemonset)
    memory.backoffs |= {name: FailedPodBackoff(START, 1.0) for name in ("node-0", "node-1")}
    cache.apply(NODE, DELETED, node("node-0"), "202")
    assert observe(cache).backoffs.keys() == {"node-1"}


def test_a_backoff_of_an_earlier_generation_is_dropped() -> None:
    cache = filled(settled())
    kept = observe(cache)
    memory = cache._memories.of(kept.daemonset)
    memory.backoffs["node-0"] = FailedPodBackoff(START, 1.0)
    assert observe(cache).backoffs.keys() == {"node-0"}
    status = {"observedGeneration": 7}
    cache.apply(DAEMONSET, MODIFIED, {**daemonset(), "status": status}, "202")
    assert observe(cache).backoffs == {}


def test_an_orphan_that_another_owner_released_wakes_those_that_select_it() -> None:
    cache = filled(settled())
    cache.apply(POD, EventType.ADDED, pod(**FOREIGN), "200")
    assert cache.apply(POD, MODIFIED, pod(**ORPHAN), "201") == {KEY}
    assert cache.apply(POD, MODIFIED, pod(**ORPHAN, annotations={"a": "b"}), "202") == set()
    assert cache.apply(POD, MODIFIED, pod(**ORPHAN, labels={"app": "x"}), "203") == set()
    assert cache.apply(POD, MODIFIED, pod(**ORPHAN), "204") == {KEY}
    assert cache.apply(POD, MODIFIED, pod(), "205") == {KEY}
    assert cache.apply(POD, MODIFIED, pod(**FOREIGN), "206") == {KEY}


def test_a_node_is_judged_by_the_present_template() -> None:
    cache = filled(settled())
    assert cache.apply(NODE, MODIFIED, node("node-0", {"pool": "a"}), "200") == set()
    changed = daemonset()
    changed["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "b"}
    cache.apply(DAEMONSET, MODIFIED, changed, "201")
    assert cache.apply(NODE, MODIFIED, node("node-0", {"pool": "b"}), "202") == {KEY}
