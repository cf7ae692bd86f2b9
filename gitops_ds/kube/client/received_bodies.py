"""What is kept of received bodies: of pods and nodes the fields that `pods.pod_of` and
`nodes.node_of` read, a quarter of the text of a pod, and a tenth of that of a node with its images;
and one body for each version of an object.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Generic, TypedDict, TypeVar
from weakref import WeakValueDictionary

import msgspec
import orjson
from msgspec import Raw
from msgspec.json import Decoder

from gitops_ds.core import names
from gitops_ds.core.objects import NODE, POD, Body, Resource, kept_text
from gitops_ds.kube.apimachinery import foreign_bodies, pod_contents, pods

T = TypeVar("T")
V = TypeVar("V")


class _Reference(TypedDict, total=False):
    kind: Any
    name: Any
    uid: Any
    controller: Any


_Annotations = TypedDict(  # type: ignore[misc]
    "_Annotations",
    dict.fromkeys((names.RELEASED, names.BOOT_ID, names.HEALS), Any),
    total=False,
)


class _Metadata(TypedDict, total=False):
    namespace: Any
    name: Any
    uid: Any
    resourceVersion: Any
    generation: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    labels: Any
    annotations: _Annotations | None
    ownerReferences: list[_Reference] | None


class _ContainerSpec(TypedDict, total=False):
    name: Any
    image: Any
    command: Any
    args: Any
    workingDir: Any
    restartPolicy: Any
    readinessProbe: Any
    startupProbe: Any
    resources: Any
    ports: Any


class _PodSpec(TypedDict, total=False):
    nodeName: Any
    affinity: Any
    schedulingGates: Any
    initContainers: list[_ContainerSpec] | None
    # pod_contents.FIELDS, decoded for pods of DaemonSets only
    containers: Raw
    hostNetwork: Any
    nodeSelector: Raw
    tolerations: Raw
    topologySpreadConstraints: Raw
    schedulerName: Any
    runtimeClassName: Any
    resourceClaims: Raw
    volumes: Raw


class _NodeSpec(TypedDict, total=False):
    taints: Any
    unschedulable: Any


class _Condition(TypedDict, total=False):
    type: Any
    status: Any
    reason: Any
    message: Any
    lastTransitionTime: Any


class _State(TypedDict, total=False):
    waiting: Any
    running: Any
    terminated: Any


class _Container(TypedDict, total=False):
    name: Any
    state: _State | None
    lastState: _State | None
    restartCount: Any


class _PodStatus(TypedDict, total=False):
    phase: Any
    reason: Any
    message: Any
    nominatedNodeName: Any
    conditions: list[_Condition] | None

    initContainerStatuses: list[_Container] | None
    containerStatuses: list[_Container] | None


class _NodeInfo(TypedDict, total=False):
    bootID: Any


class _NodeStatus(TypedDict, total=False):
    conditions: Any
    nodeInfo: _NodeInfo | None


class _Pod(TypedDict, total=False):
    metadata: _Metadata
    spec: _PodSpec
    status: _PodStatus


class _PodReply(_Pod, total=False):
    kind: Any


class _NodeFields(TypedDict, total=False):
    metadata: _Metadata
    spec: _NodeSpec
    status: _NodeStatus


class _ListPage(TypedDict, total=False):
    metadata: Any
    items: list[Raw] | None


class _Event(TypedDict, Generic[T], total=False):
    type: Any
    object: T


Decode = Callable[[bytes | memoryview], Any]

_pod = Decoder(_Pod).decode
_pod_reply = Decoder(_PodReply).decode
_pod_event = Decoder(_Event[_Pod]).decode
_containers = Decoder(list[_ContainerSpec] | None).decode
_CONDITIONS = ("Ready", "PodScheduled", "PodReadyToStartContainers")


def _packed(pod: Any) -> Any:
    """The pod with its content in place of the fields that only the content needs."""
    spec, metadata = pod.get("spec"), pod.get("metadata") or {}
    if spec is None:
        return pod
    whole = {name: spec.pop(name) for name in pod_contents.FIELDS if name in spec}
    own = spec.get("initContainers") or ()
    if pods.is_of_daemonset(pods.controller_of(metadata)):
        is_bound = bool(spec.get("nodeName"))
        read = {"containers"} if is_bound else whole.keys()
        whole = {name: _decoded(name, one) for name, one in whole.items() if name in read}
        spec[pod_contents.PACKED] = pod_contents.packed({**spec, **whole})
    if own:
        kept = ("name", "restartPolicy")
        spec["initContainers"] = [
            {name: container[name] for name in kept if name in container} for container in own
        ]
    return pod


def _decoded(name: str, value: Any) -> Any:
    if not isinstance(value, Raw):
        return value
    return _containers(value) if name == "containers" else orjson.loads(bytes(value))


def _pod_in_reply(text: bytes | memoryview) -> Any:
    return _packed(_pod_reply(text))


def _pod_in_event(text: bytes | memoryview) -> Any:
    event = _pod_event(text)
    if "object" in event:
        _packed(event["object"])
    return event


def _listed_pod(text: bytes | memoryview) -> Any:
    """A pod with only the conditions that `pod_of` reads, and the affinity only before it is bound:
    these are most of its text.
    """
    pod = _packed(_pod(text))
    if conditions := pod.get("status", {}).get("conditions"):
        pod["status"]["conditions"] = [
            condition for condition in conditions if condition.get("type") in _CONDITIONS
        ]
    if pod.get("spec", {}).get("nodeName"):
        pod["spec"].pop("affinity", None)
    return pod


class PackedBodies(Collection[Body]):
    """The bodies of a list as compressed JSON, decoded some at a time at each iteration.

    A list is complete before it is read, and a decoded pod takes five times the memory of its text.
    Fifty pods of the same agents take a seventeenth of their text, for a tenth of the CPU that it
    takes to decode them.
    """

    def __init__(self) -> None:
        self._packs: list[bytes] = []
        self._count = 0

    def add(self, bodies: Collection[Body]) -> None:
        """Adds bodies, which are decoded together."""
        self._packs.append(zlib.compress(orjson.dumps(bodies), 1))
        self._count += len(bodies)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Body]:
        for pack in self._packs:
            yield from orjson.loads(zlib.decompress(pack))

    def __contains__(self, body: object) -> bool:
        return any(known == body for known in self)


# Decoders for a page of a list without its items, for an item, for an event of a watch, and for the
# reply to a write. They raise msgspec's errors for other content.
PAGE: Decode = Decoder(_ListPage).decode
ITEMS: Mapping[Resource, Decode] = {POD: _listed_pod, NODE: Decoder(_NodeFields).decode}
EVENTS: Mapping[Resource, Decode] = {
    POD: _pod_in_event,
    NODE: Decoder(_Event[_NodeFields]).decode,
}
REPLIES: Mapping[Resource, Decode] = {POD: _pod_in_reply}

FIELD_SETS = 1024  # the maximum of shared sets; the least recently received ones are dropped


class _Held(dict[str, Any]):
    """A body with weak references."""

    __slots__ = ("__weakref__",)


class BodyCache:
    """One body for each version of an object, as several watches of a service read the same kinds,
    and one copy of the lists of owned fields, which are equal in most objects of a kind: the bodies
    that are still referenced, never mutated.
    """

    def __init__(self) -> None:
        self._held: WeakValueDictionary[tuple[str, str, str, bool], _Held] = WeakValueDictionary()
        self._field_set = lru_cache(FIELD_SETS)(orjson.loads)

    def intern(
        self, body: dict[str, Any], whole: Callable[[Body], bool] | None = None
    ) -> dict[str, Any]:
        """The cached body of the same object, version and API version, or this one; reduced, unless
        the object is `whole`.
        """
        metadata = body.get("metadata")
        if (
            not isinstance(metadata, dict)
            or not (uid := metadata.get("uid"))
            or not (version := metadata.get("resourceVersion"))
        ):
            return body
        is_whole = whole is None or whole(body)
        key = (str(body.get("apiVersion")), uid, version, is_whole)
        held = self._held.get(key)
        if held is None:
            kept = body if is_whole else foreign_bodies.reduced(body)
            held = self._held[key] = _Held(kept)
            self._share_field_sets(held["metadata"])
        return held

    def _share_field_sets(self, metadata: dict[str, Any]) -> None:
        """Replaces each field set of managedFields, half of a DaemonSet's memory, by an equal one.

        https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
        """
        for entry in metadata.get("managedFields") or ():
            if fields := entry.get("fieldsV1"):
                entry["fieldsV1"] = self._field_set(kept_text(orjson.dumps(fields)))


class EqualValues(Generic[V]):
    """One value for each content, as long as it is referenced; its type has weak references."""

    def __init__(self) -> None:
        self._held: WeakValueDictionary[bytes, V] = WeakValueDictionary()

    def intern(self, value: V) -> V:
        """The known value with this content, or this one."""
        digest = blake2b(msgspec.json.encode(value), digest_size=16).digest()
        return self._held.setdefault(digest, value)
