"""The contents of a Namespace or a CustomResourceDefinition that would be deleted: listed before
the deletion, never watched.

Kubernetes deletes everything in a namespace with it, and all objects of a definition.
https://kubernetes.io/docs/concepts/overview/working-with-objects/namespaces/
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any

from gitops_ds.core import errors
from gitops_ds.core.cluster import ClusterReader, Selection
from gitops_ds.core.live import Contents, Live
from gitops_ds.core.objects import Body, Key, Resource, key_of
from gitops_ds.core.values import replace
from gitops_ds.deploy import live_state

KEPT = 60.0  # seconds before a non-empty container is listed again
AT_ONCE = 8

# Objects that Kubernetes itself creates in each namespace, or that do not indicate a use of it.
_OF_THE_SYSTEM = frozenset(
    (("", "ConfigMap", "kube-root-ca.crt"), ("", "ServiceAccount", "default"))
)
_IGNORED = frozenset(
    (
        *(("", "Binding"), ("", "Endpoints"), ("", "Event"), ("events.k8s.io", "Event")),
        *(
            ("authorization.k8s.io", "LocalSubjectAccessReview"),
            ("discovery.k8s.io", "EndpointSlice"),
        ),
        *(("metrics.k8s.io", "PodMetrics"), ("coordination.k8s.io", "Lease")),
    )
)

Read = Callable[[ClusterReader, Live, Collection[Key]], Awaitable[Live]]


async def read(cluster: ClusterReader, seen: Live, containers: Collection[Key]) -> Live:
    """The live objects with the contents of these containers."""
    if not containers:
        return seen
    served = sorted((await cluster.resources(refresh=True)).values())
    contents = {key: await _listed(cluster, key, seen.objects[key], served) for key in containers}
    return replace(seen, contents={**seen.contents, **contents})


class ContentsCache:
    """Caches for a minute the contents that prevent the deletion of a container; an empty container
    is read each time.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds that never go back."""
        self._clock = clock
        self._known: dict[Key, tuple[float, str, Contents]] = {}

    async def read(self, cluster: ClusterReader, seen: Live, containers: Collection[Key]) -> Live:
        """As `read`."""
        now = self._clock()
        cached = {
            key: contents
            for key, (at, uid, contents) in self._known.items()
            if key in containers and now - at < KEPT and uid == _uid(seen.objects[key])
        }
        live = await read(cluster, seen, [key for key in containers if key not in cached])
        kept = {key: entry for key, entry in self._known.items() if key in cached}
        for key in containers:
            if key not in cached and (contents := live.contents[key]) != Contents():
                kept[key] = (now, _uid(seen.objects[key]), contents)
        self._known = kept
        return replace(live, contents={**live.contents, **cached})


def _uid(body: Body) -> str:
    return str((body.get("metadata") or {}).get("uid") or "")


async def _listed(
    cluster: ClusterReader, container: Key, body: Body, served: Iterable[Resource]
) -> Contents:
    if container.kind == "Namespace":
        kinds = [
            resource
            for resource in served
            if resource.namespaced and (resource.group, resource.kind) not in _IGNORED
        ]
        which = Selection(namespace=container.name)
    else:
        kinds, which = list(live_state.defined_by(body).values()), Selection()
    turn = asyncio.Semaphore(AT_ONCE)

    async def listed(kind: Resource) -> Collection[Body] | None:
        async with turn:
            try:
                return (await cluster.list(kind, which)).items
            except errors.NotFound:  # a kind that is no longer served
                return ()
            except (errors.Unauthorized, errors.ClusterUnreachable, errors.TooManyRequests):
                raise
            except errors.ClusterError as error:
                # 405: a kind that can only be created.
                # https://kubernetes.io/docs/reference/using-api/api-concepts/
                return () if error.status == 405 else None

    lists = await asyncio.gather(*map(listed, kinds))
    unlisted = tuple(kind.plural for kind, some in zip(kinds, lists, strict=True) if some is None)
    return Contents(_roots(entry for some in lists for entry in some or ()), unlisted)


def _roots(bodies: Iterable[Body]) -> Mapping[Key, Body]:
    """The objects without an owner among these objects."""
    every = {key_of(body): body for body in bodies}
    uids = {_uid(body) for body in every.values()}
    return {
        key: _lean(body)
        for key, body in every.items()
        if not (_is_of_the_system(key, body) or uids & _owners(body))
    }


def _owners(body: Body) -> set[str]:
    return {
        str(owner.get("uid")) for owner in (body.get("metadata") or {}).get("ownerReferences") or ()
    }


def _is_of_the_system(key: Key, body: Body) -> bool:
    return (key.group, key.kind, key.name) in _OF_THE_SYSTEM or body.get(
        "type"
    ) == "kubernetes.io/service-account-token"


def _lean(body: Body) -> dict[str, Any]:
    """The fields that a plan uses: the nodes of an agent."""
    spec = {"spec": body["spec"]} if body.get("kind") == "DaemonSet" and "spec" in body else {}
    return {"apiVersion": body.get("apiVersion"), "kind": body.get("kind"), "metadata": {}, **spec}
