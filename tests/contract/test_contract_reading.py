"""Get, list, watch."""

from __future__ import annotations

import asyncio

import pytest

from gitops_ds.core import errors
from gitops_ds.core.cluster import EventType, Selection
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, NODE, POD, Resource
from tests.contract.scenes import Stage, eventually, version

pytestmark = pytest.mark.usefixtures("play")


async def test_a_missing_object_is_reported_as_by_a_real_server(stage: Stage, /) -> None:
    with pytest.raises(errors.NotFound, match=r'^daemonsets.apps "x" not found$') as caught:
        await stage.cluster.get(DAEMONSET, stage.namespace, "x")
    assert (caught.value.status, caught.value.reason) == (404, "NotFound")
    with pytest.raises(errors.NotFound, match=r'^configmaps "x" not found$'):
        await stage.cluster.get(CONFIG_MAP, stage.namespace, "x")


async def test_a_kind_that_is_not_served_is_not_found(stage: Stage, /) -> None:
    with pytest.raises(errors.NotFound):
        await stage.cluster.list(Resource("apps", "v1", "Gadget", "gadgets", namespaced=True))


async def test_discovery_lists_the_kinds_that_daemonsets_need(stage: Stage, /) -> None:
    served = await stage.cluster.resources()
    for resource in (DAEMONSET, CONFIG_MAP, POD, NODE):
        assert served[resource.group, resource.kind] == resource
    assert served["rbac.authorization.k8s.io", "ClusterRole"].namespaced is False
    assert (await stage.cluster.version()).startswith("v1.")


SELECTED = [
    ("", "", ["a", "b", "c"]),
    ("tier=front", "", ["a", "b"]),
    ("tier==front", "", ["a", "b"]),
    ("tier!=front", "", ["c"]),
    ("tier in (front, back)", "", ["a", "b"]),
    ("tier notin (front)", "", ["c"]),
    ("tier", "", ["a", "b"]),
    ("!tier", "", ["c"]),
    ("tier=front,zone=1", "", ["a"]),
    ("tier in (front),zone notin (1,3)", "", ["b"]),
    ("", "metadata.name=b", ["b"]),
    ("", "metadata.name!=b", ["a", "c"]),
    ("tier=front", "metadata.name=b", ["b"]),
]


async def test_selectors_choose_by_labels_and_fields(stage: Stage, /) -> None:
    for name, labels in (
        ("a", {"tier": "front", "zone": "1"}),
        ("b", {"tier": "front", "zone": "2"}),
        ("c", {}),
    ):
        await stage.cluster.create(CONFIG_MAP, stage.config_map(name, labels=labels))
    for by_labels, fields, expected in SELECTED:
        listing = await stage.cluster.list(
            CONFIG_MAP, Selection(stage.namespace, by_labels, fields)
        )
        names = [
            b["metadata"]["name"]
            for b in listing.items
            if b["metadata"]["name"] != "kube-root-ca.crt"
        ]
        assert names == expected, (labels, fields)


@pytest.mark.parametrize(
    "which",
    [Selection(labels="a in (b"), Selection(fields="spec.foo=1"), Selection(fields="spec.foo")],
)
async def test_a_selector_that_cannot_be_read_is_refused(stage: Stage, /, which: Selection) -> None:
    with pytest.raises(errors.BadRequest) as caught:
        await stage.cluster.list(DAEMONSET, which)
    assert (caught.value.status, caught.value.reason) == (400, "BadRequest")


async def test_a_watch_from_a_lists_version_sends_every_later_change_once_and_in_order(
    stage: Stage, /
) -> None:
    await stage.cluster.create(CONFIG_MAP, stage.config_map("before", {}))
    start = (await stage.cluster.list(CONFIG_MAP, Selection(stage.namespace))).version
    made = await stage.cluster.create(CONFIG_MAP, stage.config_map("a", {"k": "1"}))
    changed = await stage.cluster.patch(CONFIG_MAP, stage.namespace, "a", {"data": {"k": "2"}})
    # nothing changes: no event
    await stage.cluster.patch(CONFIG_MAP, stage.namespace, "a", {"data": {"k": "2"}})
    await stage.cluster.delete(CONFIG_MAP, stage.namespace, "a")
    seen = []
    async for event in stage.cluster.watch(
        CONFIG_MAP, start, Selection(stage.namespace, fields="metadata.name=a")
    ):
        seen.append(event)
        if event.type is EventType.DELETED:
            break
    assert [e.type for e in seen] == [EventType.ADDED, EventType.MODIFIED, EventType.DELETED]
    assert [e.version for e in seen[:2]] == [version(made), version(changed)]
    assert int(seen[2].version) > int(seen[1].version)
    assert all(version(e.object) == e.version for e in seen)
    assert seen[2].object["data"] == {"k": "2"}


async def test_a_watch_sends_each_change_while_it_lasts(stage: Stage, /) -> None:
    body = await stage.cluster.create(CONFIG_MAP, stage.config_map("a", {"round": "0"}))
    named = Selection(stage.namespace, fields="metadata.name=a")  # each namespace gets others
    events = stage.cluster.watch(CONFIG_MAP, version(body), named)
    for number in ("1", "2", "3"):
        await stage.cluster.patch(CONFIG_MAP, stage.namespace, "a", {"data": {"round": number}})
        async with asyncio.timeout(60):
            event = await anext(events)
        assert event.object["data"] == {"round": number}


async def test_a_watch_with_labels_sends_objects_that_begin_or_cease_to_match(
    stage: Stage, /
) -> None:
    start = (await stage.cluster.list(CONFIG_MAP, Selection(stage.namespace))).version
    await stage.cluster.create(CONFIG_MAP, stage.config_map("a", {}))
    for value in ("on", "off", "on"):
        await stage.cluster.patch(
            CONFIG_MAP, stage.namespace, "a", {"metadata": {"labels": {"light": value}}}
        )
    await stage.cluster.delete(CONFIG_MAP, stage.namespace, "a")
    seen = []
    async for event in stage.cluster.watch(
        CONFIG_MAP, start, Selection(stage.namespace, "light=on")
    ):
        seen.append(event.type)
        if len(seen) == 4:
            break
    assert seen == [EventType.ADDED, EventType.DELETED, EventType.ADDED, EventType.DELETED]


async def test_a_watch_from_before_what_is_remembered_is_expired(stage: Stage, /) -> None:
    """Of a kind that was defined just now nothing earlier is known. On a real API server compaction
    needs minutes.

    Bookmarks are tested in tests/simulator/test_requests.py: a real server sends them about once
    a minute, or not at all.
    """
    definitions = (await stage.cluster.resources())[
        "apiextensions.k8s.io", "CustomResourceDefinition"
    ]
    gadget, definition = stage.gadgets()
    await stage.cluster.create(definitions, definition)

    async def served() -> bool:
        try:
            await stage.cluster.list(gadget)
        except errors.NotFound:
            return False
        return True

    await eventually(served)
    with pytest.raises(errors.Expired) as caught:
        await anext(stage.cluster.watch(gadget, "1"))
    assert (caught.value.status, caught.value.reason) == (410, "Expired")
    assert "too old resource version: 1" in str(caught.value)
