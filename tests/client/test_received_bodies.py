"""What is kept of received bodies: the read fields, which mean the same as the whole body, and one
body for each version, only while it is referenced.
"""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gitops_ds.core import names
from gitops_ds.core.live import Node
from gitops_ds.core.objects import NODE, POD
from gitops_ds.kube.apimachinery import nodes, pod_contents, pods
from gitops_ds.kube.client import received_bodies
from gitops_ds.kube.client.received_bodies import BodyCache, EqualValues
from gitops_ds.rollouts.state import proofs

TERM = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
METADATA = {
    "name": "agent-x",
    "namespace": "logging",
    "uid": "u-1",
    "resourceVersion": "17",
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "labels": {"app": "agent", "controller-revision-hash": "h", "pod-template-generation": "3"},
    "ownerReferences": [
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": "agent",
            "uid": "d-1",
            "controller": True,
        }
    ],
    "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
}
SPEC = {
    "containers": [{"name": "agent", "image": "agent:1"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}
        }
    },
}
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes",
}
PULLS = {
    "name": "agent",
    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}},
}

OTHER = {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:30Z"}
NOT_READY = {
    "type": "Ready",
    "status": "False",
    "reason": "ContainersNotReady",
    "lastTransitionTime": "2026-01-01T00:01:00Z",
}
ENDED = {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:03:00Z"}}
CRASHED = {
    "name": "agent",
    "image": "agent:1",
    "state": {"running": {"startedAt": "2026-01-01T00:03:10Z"}},
    "lastState": ENDED,
}
PINNED = {
    names.RELEASED: "2026-01-01T00:00:30Z",
    names.BOOT_ID: "b-1",
    names.HEALS: "true",
    "other": "x",
}

CONTAINER = {
    "name": "agent",
    "image": "agent:1",
    "command": ["agent"],
    "args": ["--x"],
    "workingDir": "/",
    "env": [{"name": "A", "value": "b"}],
    "readinessProbe": {"exec": {"command": ["true"]}},
    "startupProbe": {"httpGet": {"path": "/", "port": "http"}},
    "resources": {"requests": {"cpu": "1"}},
    "ports": [{"name": "http", "containerPort": 80, "hostPort": 80}],
}
FULL = {
    "containers": [CONTAINER],
    "initContainers": [{**CONTAINER, "name": "init", "restartPolicy": "Always"}],
    "hostNetwork": True,
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "topologySpreadConstraints": [{"maxSkew": 1}],
    "schedulerName": "other",
    "runtimeClassName": "kata",
    "resourceClaims": [{"name": "gpu"}],
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "w"}],
}

PODS: dict[str, dict[str, Any]] = {
    "just made": {"metadata": METADATA, "spec": SPEC, "status": {"phase": "Pending"}},
    "ready": {
        "metadata": METADATA,
        "spec": {**SPEC, "nodeName": "n"},
        "status": {"phase": "Running", "conditions": [READY]},
    },
    "ending": {
        "metadata": {**METADATA, "deletionTimestamp": "2026-01-01T00:02:00Z"},
        "spec": SPEC,
        "status": {},
    },
    "failed": {
        "metadata": METADATA,
        "spec": SPEC,
        "status": {"phase": "Failed", "reason": "Evicted", "message": "disk"},
    },
    "unschedulable": {
        "metadata": METADATA,
        "spec": SPEC,
        "status": {"phase": "Pending", "conditions": [UNSCHEDULABLE]},
    },
    "no image": {
        "metadata": METADATA,
        "spec": SPEC,
        "status": {"phase": "Pending", "containerStatuses": [PULLS]},
    },
    "no image to begin with": {
        "metadata": METADATA,
        "spec": SPEC,
        "status": {"initContainerStatuses": [PULLS]},
    },
    "crashed": {
        "metadata": METADATA,
        "spec": SPEC,
        "status": {"conditions": [OTHER, NOT_READY], "containerStatuses": [CRASHED]},
    },
    "pinned": {
        "metadata": {**METADATA, "annotations": PINNED},
        "spec": {**SPEC, "nodeName": "n"},
        "status": {"phase": "Running", "conditions": [READY], "containerStatuses": [CRASHED]},
    },
    "with all that its content has": {
        "metadata": METADATA,
        "spec": {**FULL, **SPEC},
        "status": {"phase": "Pending"},
    },
    "bound, with all that its content has": {
        "metadata": METADATA,
        "spec": {**FULL, "nodeName": "n"},
        "status": {"phase": "Running", "initContainerStatuses": [PULLS]},
    },
    "of another owner": {
        "metadata": {**METADATA, "ownerReferences": []},
        "spec": {**FULL, **SPEC},
    },
    "an orphan with nothing": {
        "metadata": {"name": "x", "labels": None},
        "spec": {"affinity": None},
    },
}
NODES: dict[str, dict[str, Any]] = {
    "ready": {
        "metadata": METADATA,
        "status": {"conditions": [READY], "images": [{"names": ["agent:1"]}]},
    },
    "with the identity of its boot": {
        "metadata": METADATA,
        "status": {"conditions": [READY], "nodeInfo": {"bootID": "b-1", "kernelVersion": "6"}},
    },
    "silent": {"metadata": METADATA, "status": {"conditions": [{**READY, "status": "Unknown"}]}},
    "cordoned": {
        "metadata": METADATA,
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
    },
    "tainted": {
        "metadata": METADATA,
        "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]},
        "status": {},
    },
}


@pytest.mark.parametrize("body", PODS.values(), ids=PODS)
def test_a_cut_pod_is_read_as_the_whole_one(body: dict[str, Any]) -> None:
    event = received_bodies.EVENTS[POD](json.dumps({"type": "ADDED", "object": body}).encode())
    page = received_bodies.PAGE(
        json.dumps({"metadata": {"resourceVersion": "9"}, "items": [body]}).encode()
    )
    item = received_bodies.ITEMS[POD](page["items"][0])
    reply = received_bodies.REPLIES[POD](json.dumps({"kind": "Pod", **body}).encode())
    read = pods.pod_of(body)
    assert [pods.pod_of(cut) for cut in (event["object"], item, reply)] == [read] * 3
    assert reply["kind"] == "Pod"
    assert (event["type"], page["metadata"]) == ("ADDED", {"resourceVersion": "9"})
    assert not {"managedFields", "containers"} & {
        *event["object"]["metadata"],
        *event["object"]["spec"],
    }


@pytest.mark.parametrize("body", NODES.values(), ids=NODES)
def test_a_cut_node_is_read_as_the_whole_one(body: dict[str, Any]) -> None:
    event = received_bodies.EVENTS[NODE](json.dumps({"type": "MODIFIED", "object": body}).encode())
    item = received_bodies.ITEMS[NODE](json.dumps(body).encode())
    assert nodes.node_of(event["object"]) == nodes.node_of(item) == nodes.node_of(body)
    assert "images" not in event["object"].get("status", {})


@pytest.mark.parametrize(
    "text",
    [b'{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410}}', b"<html>", b"{"],
)
def test_an_object_that_is_not_a_pod_is_read_whole(text: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        received_bodies.EVENTS[POD](text)


def test_packed_bodies_are_read_as_often_as_needed() -> None:
    packed = received_bodies.PackedBodies()
    assert (len(packed), list(packed)) == (0, [])
    first, second = {"metadata": {"name": "a"}}, {"metadata": {"name": "b", "labels": {"x": "é"}}}
    packed.add([first, second])
    packed.add([])
    packed.add([first])
    assert len(packed) == 3
    assert list(packed) == list(packed) == [first, second, first]
    assert second in packed
    assert {} not in packed


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


def test_equal_values_are_one_while_they_are_referenced() -> None:
    cache: EqualValues[Node] = EqualValues()
    one = cache.intern(Node("a", {"pool": "b"}))
    assert one == Node("a", {"pool": "b"})
    assert cache.intern(Node("a", {"pool": "b"})) is one
    assert cache.intern(Node("a", {"pool": "c"})) is not one
    del one
    gc.collect(0)
    assert cache.intern(Node("a", {"pool": "b"})) == Node("a", {"pool": "b"})


def _nodes(number: int) -> object:
    cache: EqualValues[Node] = EqualValues()
    return cache, [cache.intern(Node(f"node-{n}")) for n in range(number)]


def _packs(number: int) -> object:
    packed = received_bodies.PackedBodies()
    for n in range(number):
        packed.add([{"metadata": {"name": f"pod-{n}-{m}"}} for m in range(50)])
    return packed


def _containers(number: int) -> object:
    return [pod_contents.of_pod({"containers": [{"name": f"c-{n}"}]}) for n in range(number)]


def _templates(number: int) -> object:
    spec = {"containers": [{"name": "agent", "args": ["--option"] * 100}]}
    return [proofs.identity({"metadata": {"name": f"t-{n}"}, "spec": spec}) for n in range(number)]


@pytest.mark.parametrize("made", [_nodes, _packs, _containers, _templates])
def test_what_is_kept_has_no_buffer_of_the_json_library(made: Callable[[int], object]) -> None:
    """orjson leaves 4 KiB with a text of up to 1 KiB, and eight times a text of 2 KiB."""
    made(10)
    tracemalloc.start()
    try:
        kept = made(200)
        assert tracemalloc.get_traced_memory()[0] / 200 < 3000
    finally:
        tracemalloc.stop()
    del kept
