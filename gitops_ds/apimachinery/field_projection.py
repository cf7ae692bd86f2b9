"""The fields of pods and nodes that are decoded: those that `pods.pod_of` and `nodes.node_of` read.

They are a quarter of the text of a pod, and a tenth of that of a node with its images. Other fields
never become Python objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Generic, TypedDict, TypeVar

import orjson
from msgspec import Raw
from msgspec.json import Decoder

from gitops_ds.model import names
from gitops_ds.model.objects import NODE, POD, Body, Resource

T = TypeVar("T")


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
    creationTimestamp: Any
    deletionTimestamp: Any
    labels: Any
    annotations: _Annotations | None
    ownerReferences: list[_Reference] | None


class _InitContainer(TypedDict, total=False):
    name: Any
    restartPolicy: Any


class _Spec(TypedDict, total=False):
    nodeName: Any
    initContainers: list[_InitContainer] | None
    affinity: Any
    schedulingGates: Any
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
    spec: _Spec
    status: _PodStatus


class _PodReply(_Pod, total=False):
    kind: Any


class _NodeFields(TypedDict, total=False):
    metadata: _Metadata
    spec: _Spec
    status: _NodeStatus


class _ListPage(TypedDict, total=False):
    metadata: Any
    items: list[Raw] | None


class _Event(TypedDict, Generic[T], total=False):
    type: Any
    object: T


Decode = Callable[[bytes | memoryview], Any]

_pod = Decoder(_Pod).decode
_CONDITIONS = ("Ready", "PodScheduled")


def _listed_pod(text: bytes | memoryview) -> Any:
    """A pod with only the conditions that `pod_of` reads, and the affinity only before it is bound:
    these are most of its text.
    """
    pod = _pod(text)
    if conditions := pod.get("status", {}).get("conditions"):
        pod["status"]["conditions"] = [one for one in conditions if one.get("type") in _CONDITIONS]
    if pod.get("spec", {}).get("nodeName"):
        pod["spec"].pop("affinity", None)
    return pod


class PackedBodies(Collection[Body]):
    """The bodies of a list as JSON, decoded some at a time at each iteration.

    A list is complete before it is read, and a decoded pod takes five times the memory of its text.
    """

    def __init__(self) -> None:
        self._packs: list[bytes] = []
        self._count = 0

    def add(self, bodies: Collection[Body]) -> None:
        """Adds bodies, which are decoded together."""
        self._packs.append(orjson.dumps(bodies))
        self._count += len(bodies)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Body]:
        for pack in self._packs:
            yield from orjson.loads(pack)

    def __contains__(self, body: object) -> bool:
        return any(one == body for one in self)


# Decoders for a page of a list without its items, for an item, for an event of a watch, and for the
# reply to a write. They raise msgspec's errors for other content.
PAGE: Decode = Decoder(_ListPage).decode
ITEMS: Mapping[Resource, Decode] = {POD: _listed_pod, NODE: Decoder(_NodeFields).decode}
EVENTS: Mapping[Resource, Decode] = {
    POD: Decoder(_Event[_Pod]).decode,
    NODE: Decoder(_Event[_NodeFields]).decode,
}
REPLIES: Mapping[Resource, Decode] = {POD: Decoder(_PodReply).decode}
