"""Which news wakes whom, and that the cache is never older than our own writes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.cluster import EventType
from gitops_ds.core.decision import CreatePod, Observation
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, NODE, POD, Key
from gitops_ds.core.values import replace
from gitops_ds.daemonset import claims, decide
from gitops_ds.daemonset.cache import Cache
from gitops_ds.daemonset.indexes import PodsByNode
from gitops_ds.kube.apimachinery import daemonsets, foreign_bodies, revisions
from gitops_ds.rollouts.state import keys
from tests.daemonset.world import OWNER, START, World, daemonset, node

KEY = Key("apps", "DaemonSet", "logging", "agent")


def filled(world: World, version: str = "100") -> Cache:
    cache = Cache()
    cache.replace(NODE, world.nodes, version)
    cache.replace(DAEMONSET, [world.body], version)
    cache.replace(CONTROLLER_REVISION, world.revisions.values(), version)
    cache.replace(POD, world.pods.values(), version)
    return cache


def settled() -> World:
    world = World(daemonset(), 2)
    world.settle()
    world.turn()
    return world


def observe(cache: Cache, now: float = START) -> Observation:
    seen = cache.observe(KEY, now)
    assert seen is not None
    return seen


def pod(**metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "p",
            "namespace": "logging",
            "uid": "p",
            "labels": {"app": "agent"},
            "ownerReferences": [OWNER],
            **metadata,
        },
        "spec": {"nodeName": "node-0"},
        "status": {"phase": "Running"},
    }


def revision(**metadata: Any) -> dict[str, Any]:
    owned = {
        "name": "r",
        "namespace": "logging",
        "uid": "r",
        "labels": {"app": "agent"},
        "ownerReferences": [OWNER],
    }
    return {"metadata": {**owned, **metadata}, "revision": 7, "data": {"spec": {"template": {}}}}


def test_the_cache_shows_what_the_world_holds() -> None:
    world = settled()
    seen = observe(filled(world), world.now)
    expected = world.observe()
    assert (seen.daemonset, seen.nodes, seen.pods, seen.revisions) == (
        expected.daemonset,
        expected.nodes,
        expected.pods,
        expected.revisions,
    )


def test_the_pods_of_a_daemonset_are_known_after_all_four_lists() -> None:
    world = settled()
    cache, seen = Cache(), world.observe()
    cache.replace(DAEMONSET, [world.body], "100")
    cache.replace(POD, world.pods.values(), "100")
    cache.replace(CONTROLLER_REVISION, world.revisions.values(), "100")
    assert cache.pods_of(seen.daemonset) is None
    cache.replace(NODE, world.nodes, "100")
    found = cache.pods_of(seen.daemonset)
    assert found is not None
    assert {pod.uid for pod in found} == {pod.uid for pod in seen.pods}


def test_the_index_of_nodes_has_the_pods_of_the_last_list() -> None:
    cache = Cache()
    cache.by_node = PodsByNode()
    for listed in ([pod()], []):
        cache.replace(POD, listed, "100")
        assert [one.name for one in cache.by_node.on("node-0")] == ["p" for _ in listed]


def test_nothing_is_shown_before_all_four_lists() -> None:
    cache = Cache()
    for resource in (NODE, DAEMONSET, CONTROLLER_REVISION):
        cache.replace(resource, [daemonset()] if resource == DAEMONSET else [], "1")
        assert cache.observe(KEY, START) is None
    cache.replace(POD, [], "1")
    assert cache.observe(KEY, START) is not None


ORPHAN: dict[str, Any] = {"ownerReferences": []}
FOREIGN = {"ownerReferences": [{**OWNER, "uid": "other"}]}
TAINT = [{"key": "a", "effect": "NoExecute"}]
Apply = Callable[[Cache], set[Key]]


def event(resource: Any, body: dict[str, Any], type: EventType = EventType.MODIFIED) -> Apply:
    return lambda cache: cache.apply(resource, type, body, "200")


NEWS: list[tuple[str, Apply, bool]] = [
    ("an own pod", event(POD, pod()), True),
    ("a pod of another owner", event(POD, pod(**FOREIGN)), False),
    ("an orphan that the selector matches", event(POD, pod(**ORPHAN)), True),
    ("an orphan with other labels", event(POD, pod(**ORPHAN, labels={"app": "x"})), False),
    ("an orphan of another namespace", event(POD, pod(**ORPHAN, namespace="other")), False),
    ("the end of an own pod", event(POD, pod(), EventType.DELETED), True),
    # Upstream's test DeletePodOrphan expects no reconciliation; here an orphan whose adoption is
    # refused may hold its DaemonSet up.
    ("the end of an orphan", event(POD, pod(**ORPHAN), EventType.DELETED), True),
    (
        "the end of an orphan with other labels",
        event(POD, pod(**ORPHAN, labels={"app": "x"}), EventType.DELETED),
        False,
    ),
    (
        "the end of an orphan revision",
        event(CONTROLLER_REVISION, revision(**ORPHAN), EventType.DELETED),
        True,
    ),
    (
        "the end of a foreign revision under one of our names",
        event(CONTROLLER_REVISION, revision(**FOREIGN, name="agent-5f"), EventType.DELETED),
        True,
    ),
    (
        "the end of a foreign revision",
        event(CONTROLLER_REVISION, revision(**FOREIGN, name="b-5f"), EventType.DELETED),
        False,
    ),
    ("an own revision, new", event(CONTROLLER_REVISION, revision()), False),
    ("an orphan revision", event(CONTROLLER_REVISION, revision(**ORPHAN)), True),
    ("the end of an own revision", event(CONTROLLER_REVISION, revision(), EventType.DELETED), True),
    (
        "a heartbeat of a node",
        event(
            NODE,
            {**node("node-0"), "status": {"conditions": [{"type": "Ready", "status": "True"}, {}]}},
        ),
        False,
    ),
    ("a label that plays no part", event(NODE, node("node-0", {"a": "b"})), False),
    ("a taint that evicts", event(NODE, node("node-0", taints=TAINT)), True),
    ("a new node", event(NODE, node("node-9"), EventType.ADDED), True),
    ("the end of a node", event(NODE, node("node-0"), EventType.DELETED), True),
    ("the DaemonSet itself", event(DAEMONSET, daemonset("agent:9")), True),
    ("a bookmark", event(POD, {}, EventType.BOOKMARK), False),
    ("a new list of pods", lambda cache: cache.replace(POD, [], "200"), True),
]


@pytest.mark.parametrize(("news", "wakes"), [row[1:] for row in NEWS], ids=[row[0] for row in NEWS])
def test_news_wakes_those_that_it_matters_to(news: Apply, wakes: bool) -> None:
    assert (KEY in news(filled(settled()))) == wakes


def test_a_rollout_continues_when_a_node_where_it_runs_changes_its_health() -> None:
    world = settled()
    ready = copy.deepcopy(world.nodes[0])
    ready["status"]["conditions"][0]["status"] = "False"
    assert filled(world).apply(NODE, EventType.MODIFIED, ready, "200") == set()
    world.body["metadata"]["annotations"][keys.TARGET] = "agent-2"
    assert filled(world).apply(NODE, EventType.MODIFIED, ready, "200") == {KEY}
    evicts = node("node-0", taints=TAINT)
    world.nodes[0] = evicts
    other = {**evicts, "status": ready["status"]}
    assert filled(world).apply(NODE, EventType.MODIFIED, other, "200") == set()


@pytest.mark.parametrize("left", [0, 1])
def test_a_node_that_was_parked_is_updated_after_the_rollout(left: int) -> None:
    world = settled()
    world.body["metadata"]["annotations"][keys.ROLLOUT_POLICY] = "{}"
    desired = len(world.nodes)
    updated = {"desiredNumberScheduled": desired, "updatedNumberScheduled": desired - left}
    world.body["status"] = {**(world.body.get("status") or {}), **updated}
    cordoned = copy.deepcopy(world.nodes[0])
    cordoned["spec"] = {**(cordoned.get("spec") or {}), "unschedulable": True}
    woken = filled(world).apply(NODE, EventType.MODIFIED, cordoned, "200")
    assert woken == ({KEY} if left else set())


def test_a_target_revision_wakes_its_daemonset() -> None:
    reference = {**OWNER, "controller": False}
    target = revision(labels={names.ROLLOUT: "5d9f"}, ownerReferences=[reference])
    cache = filled(settled())
    for type in (EventType.ADDED, EventType.MODIFIED, EventType.DELETED):
        assert cache.apply(CONTROLLER_REVISION, type, target, "200") == {KEY}
    target["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert cache.apply(CONTROLLER_REVISION, EventType.ADDED, target, "201") == set()


def test_own_pods_and_selected_orphans_are_observed() -> None:
    cache = filled(settled())
    own = {one.uid for one in observe(cache).pods}
    others = {"app": "x"}
    for body in (
        pod(uid="unlike", labels=others),
        pod(uid="foreign", **FOREIGN),
        pod(uid="orphan", **ORPHAN),
        pod(uid="stranger", **ORPHAN, labels=others),
    ):
        cache.apply(POD, EventType.ADDED, body, "200")
    assert {one.uid for one in observe(cache).pods} - own == {"unlike", "orphan"}


def test_a_second_event_of_a_pod_wakes_only_when_something_changed_that_is_kept() -> None:
    cache = filled(settled())
    cache.apply(POD, EventType.ADDED, pod(resourceVersion="200"), "200")
    assert (
        cache.apply(
            POD, EventType.MODIFIED, pod(resourceVersion="201", annotations={"a": "b"}), "201"
        )
        == set()
    )
    assert cache.apply(
        POD,
        EventType.MODIFIED,
        pod(resourceVersion="202", deletionTimestamp="2027-01-01T00:00:00Z"),
        "202",
    ) == {KEY}


def test_a_change_of_a_known_revision_queues_its_owner() -> None:
    cache = filled(settled())
    cache.apply(CONTROLLER_REVISION, EventType.ADDED, revision(), "200")
    assert cache.apply(CONTROLLER_REVISION, EventType.MODIFIED, revision(), "201") == {KEY}


def test_a_created_pod_is_seen_before_its_watch_shows_it() -> None:
    world = World(daemonset(), 1)
    cache = filled(world)
    decision = decide.decide(observe(cache))
    (create,) = (a for a in decision.actions if isinstance(a, CreatePod))
    body = copy.deepcopy(dict(create.body))
    body["metadata"] |= {"uid": "new", "resourceVersion": "150"}
    cache.wrote(POD, body, START)
    assert [p.uid for p in observe(cache).pods] == ["new"]
    assert not any(isinstance(a, CreatePod) for a in decide.decide(observe(cache)).actions)


def test_a_deleted_pod_ends_at_once_and_its_event_still_wakes() -> None:
    cache = filled(settled())
    cache.apply(POD, EventType.ADDED, pod(resourceVersion="200"), "200")
    ending = pod(resourceVersion="210", deletionTimestamp="2027-01-01T00:00:00Z")
    cache.wrote(POD, ending, START)
    assert {p.uid: p.terminating for p in observe(cache).pods}["p"]
    assert cache.apply(POD, EventType.MODIFIED, ending, "210") == {KEY}
    assert cache.apply(POD, EventType.DELETED, ending, "211") == {KEY}
    seen = observe(cache)
    assert "p" not in {p.uid for p in seen.pods}
    assert seen.vanished["node-0"] == "p"


def test_a_later_event_is_observed_although_the_watch_has_not_shown_the_own_write() -> None:
    cache = filled(settled())
    cache.wrote(POD, pod(resourceVersion="210"), START)
    later = pod(resourceVersion="212", deletionTimestamp="2027-01-01T00:00:00Z")
    cache.apply(POD, EventType.MODIFIED, later, "212")
    assert {p.uid: p.terminating for p in observe(cache).pods}["p"]


def test_a_reply_after_its_watch_event_does_not_restore_a_deleted_object() -> None:
    cache = filled(settled())
    cache.apply(POD, EventType.DELETED, pod(resourceVersion="211"), "211")
    cache.wrote(POD, pod(resourceVersion="205"), START)
    assert "p" not in {p.uid for p in observe(cache).pods}


@pytest.mark.parametrize("passed", ["a bookmark", "a new list", "five minutes", "a clock put back"])
def test_a_reply_lapses(passed: str) -> None:
    cache = filled(settled())
    cache.wrote(POD, pod(resourceVersion="500"), START)
    assert "p" in {p.uid for p in observe(cache).pods}
    now = START
    if passed == "a bookmark":
        cache.apply(POD, EventType.BOOKMARK, {}, "500")
    elif passed == "a new list":
        cache.replace(POD, [], "501")
    else:
        now += 300 if passed == "five minutes" else -1
    assert "p" not in {p.uid for p in observe(cache, now).pods}


def the_answer_comes(cache: Cache, how: str, version: str) -> set[Key]:
    return (
        cache.answered(POD, version)
        if how == "the watch continues"
        else cache.replace(POD, [], version)
    )


@pytest.mark.parametrize("how", ["the watch continues", "a new list"])
def test_a_reply_of_a_world_that_was_lost_is_forgotten_as_soon_as_the_new_one_has_a_version(
    how: str,
) -> None:
    cache = filled(settled())
    cache.wrote(POD, pod(resourceVersion="500"), START)
    cache.asks(POD)
    cache.wrote(POD, pod(uid="meanwhile", resourceVersion="460"), START)
    assert the_answer_comes(cache, how, "450") == {KEY}
    uids = {p.uid for p in observe(cache).pods}
    assert "p" not in uids
    assert "meanwhile" in uids


def test_a_reply_of_the_same_cluster_stays_when_its_watch_continues() -> None:
    cache = filled(settled())
    cache.wrote(POD, pod(resourceVersion="500"), START)
    cache.asks(POD)
    assert the_answer_comes(cache, "the watch continues", "500") == set()
    assert "p" in {p.uid for p in observe(cache).pods}


def test_the_version_decreases_with_a_new_list_of_an_older_cluster() -> None:
    cache = filled(settled(), version="1000")
    cache.wrote(POD, pod(resourceVersion="50"), START)
    assert "p" not in {p.uid for p in observe(cache).pods}
    cache.replace(POD, [], "40")
    cache.wrote(POD, pod(resourceVersion="50"), START)
    assert "p" in {p.uid for p in observe(cache).pods}


def test_an_own_status_write_queues_nothing_and_is_known_before_its_event() -> None:
    world = settled()
    cache = filled(world)
    written = copy.deepcopy(world.body)
    written["metadata"]["resourceVersion"] = "300"
    written["status"]["numberReady"] = 77
    cache.wrote(DAEMONSET, written, START)
    counts = observe(cache).daemonset.counts
    assert counts is not None
    assert counts.ready == 77
    assert cache.apply(DAEMONSET, EventType.MODIFIED, written, "300") == set()


@pytest.mark.parametrize("how", ["the watch continues", "a new list"])
def test_an_own_status_write_lapses(how: str) -> None:
    world = settled()
    cache = filled(world)
    written = copy.deepcopy(world.body)
    written["metadata"]["resourceVersion"] = "500"
    written["status"]["numberReady"] = 77
    cache.wrote(DAEMONSET, written, START)
    cache.asks(DAEMONSET)
    if how == "a new list":
        assert cache.replace(DAEMONSET, [world.body], "450") == {KEY}
    else:
        assert cache.answered(DAEMONSET, "450") == {KEY}
    counts = observe(cache).daemonset.counts
    assert counts is not None
    assert counts.ready != 77
    assert cache.answered(NODE, "450") == set()


def test_a_daemonset_of_the_same_name_starts_clean() -> None:
    cache = filled(settled())
    cache.apply(POD, EventType.ADDED, pod(), "200")
    cache.apply(POD, EventType.DELETED, pod(), "201")
    assert observe(cache).vanished
    again = daemonset()
    again["metadata"]["uid"] = "another"
    assert cache.apply(DAEMONSET, EventType.MODIFIED, again, "202") == {KEY}
    assert (observe(cache).vanished, observe(cache).pods) == ({}, ())


def test_a_daemonset_is_found_by_its_uid_and_those_of_its_revisions() -> None:
    cache = Cache()
    body = daemonset()
    owned = revisions.new(daemonsets.daemonset_of(body), 1)
    owned["metadata"]["uid"] = "revision-uid"
    cache.replace(DAEMONSET, [body], "1")
    cache.replace(CONTROLLER_REVISION, [owned], "1")
    assert cache.with_uids({"ds-uid"}) == {KEY}
    assert cache.with_uids({"revision-uid"}) == {KEY}
    assert cache.with_uids({"other"}) == set()


def test_a_list_of_pods_has_the_part_of_the_selector_that_a_list_supports() -> None:
    one = {"matchLabels": {"app": "agent"}, "matchExpressions": [
        {"key": "tier", "operator": "In", "values": ["a"]},
        {"key": "zone", "operator": "In", "values": ["a", "b"]},
        {"key": "old", "operator": "DoesNotExist"},
    ]}  # fmt: skip
    found = claims.selection(daemonsets.daemonset_of(daemonset(selector=one)))
    assert (found.namespace, {*found.labels.split(",")}) == ("logging", {"app=agent", "tier=a"})


def test_the_uids_of_daemonsets_and_revisions_are_known_after_all_four_lists() -> None:
    world = settled()
    cache = Cache()
    cache.replace(DAEMONSET, [world.body], "100")
    cache.replace(CONTROLLER_REVISION, world.revisions.values(), "100")
    assert cache.uids == set()
    (owned,) = world.revisions.values()
    assert filled(world).uids == {"ds-uid", owned["metadata"]["uid"]}


def test_the_cache_knows_which_daemonsets_it_has_without_the_fields_of_our_own() -> None:
    """One that becomes ours is listed again with all fields."""
    world = settled()
    cache = filled(world)
    assert not cache.is_reduced(KEY)
    cache.replace(DAEMONSET, [foreign_bodies.reduced(world.body)], "101")
    assert cache.is_reduced(KEY)
    assert not cache.is_reduced(replace(KEY, name="other"))
