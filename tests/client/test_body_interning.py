"""Bodies that several watches read are in memory once, and only while they are referenced."""

from __future__ import annotations

import gc
from typing import Any

from gitops_ds.client.body_interning import BodyCache, EqualBodies


def body(version: str = "1", api: str = "apps/v1", **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": api,
        "kind": "DaemonSet",
        "metadata": {"uid": "u", "resourceVersion": version},
        **more,
    }


def test_the_same_version_is_the_same_body_and_another_is_not() -> None:
    cache = BodyCache()
    first = cache.intern(body())
    assert first == body()
    assert cache.intern(body()) is first
    assert cache.intern(body("2")) is not first
    assert cache.intern(body(api="apps/v2")) is not first


def test_a_body_without_references_is_removed() -> None:
    cache = BodyCache()
    cache.intern(body(spec={"seen": "before"}))
    gc.collect(0)
    assert cache.intern(body()) == body()


def test_what_is_not_an_object_of_the_cluster_stays_what_it_is() -> None:
    cache = BodyCache()
    for odd in (
        {},
        {"metadata": None},
        {"metadata": {"uid": "u"}},
        {"kind": "Status", "metadata": {}},
    ):
        assert cache.intern(odd) is odd


def test_equal_field_sets_of_different_objects_are_one() -> None:
    def owned(uid: str, field: str) -> dict[str, Any]:
        entry = {"manager": uid, "fieldsV1": {"f:spec": {field: {}}}}
        return {
            "metadata": {"uid": uid, "resourceVersion": "1", "managedFields": [entry, {}]},
        }

    cache = BodyCache()
    one, two, three = (
        cache.intern(owned(uid, field)) for uid, field in (("1", "f:a"), ("2", "f:a"), ("3", "f:b"))
    )
    assert (one, two, three) == (owned("1", "f:a"), owned("2", "f:a"), owned("3", "f:b"))
    fields = [body["metadata"]["managedFields"][0]["fieldsV1"] for body in (one, two, three)]
    assert fields[0] is fields[1]
    assert fields[0] is not fields[2]


def test_the_order_of_fields_is_kept() -> None:
    def owned(uid: str, *fields: str) -> dict[str, Any]:
        entry = {"fieldsV1": {field: {} for field in fields}}
        return {"metadata": {"uid": uid, "resourceVersion": "1", "managedFields": [entry]}}

    cache = BodyCache()
    cache.intern(owned("1", "f:a", "f:b"))
    other = cache.intern(owned("2", "f:b", "f:a"))
    assert list(other["metadata"]["managedFields"][0]["fieldsV1"]) == ["f:b", "f:a"]


def test_equal_bodies_are_one_while_they_are_referenced() -> None:
    cache = EqualBodies()
    one = cache.intern(body(spec={"a": 1}))
    assert one == body(spec={"a": 1})
    assert cache.intern(body(spec={"a": 1})) is one
    assert cache.intern(body(spec={"a": 2})) is not one
    del one
    gc.collect(0)
    assert cache.intern(body(spec={"a": 1})) == body(spec={"a": 1})
