"""Bodies that several watches read are in memory once, and only while they are referenced."""

from __future__ import annotations

import gc
from typing import Any

from gitops_ds.client.body_interning import BodyCache


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
    gc.collect()
    assert cache.intern(body()) == body()


def test_what_is_no_object_of_the_cluster_stays_what_it_is() -> None:
    cache = BodyCache()
    for odd in (
        {},
        {"metadata": None},
        {"metadata": {"uid": "u"}},
        {"kind": "Status", "metadata": {}},
    ):
        assert cache.intern(odd) is odd
