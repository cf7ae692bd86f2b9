"""The interface to a cluster, with two implementations: a real API server, and the simulated
cluster.

Every method is one request. They raise the `ClusterError`s of errors.py and nothing else. Bodies
are plain JSON values; neither the caller nor the cluster may change a body that it received.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from gitops_ds.core.objects import Body, Resource


class EventType(StrEnum):
    """The type of a watch event.
    https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
    """

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class Propagation(StrEnum):
    """The deletion propagation to an object's dependents.
    https://kubernetes.io/docs/concepts/architecture/garbage-collection/
    """

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class PatchType(StrEnum):
    """The content type of a patch."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


class Listing(msgspec.Struct, frozen=True):
    """The objects of a list, complete (all its pages), and its resource version."""

    items: Collection[Body]
    version: str


class WatchEvent(msgspec.Struct, frozen=True):
    """One event; of a bookmark only the version counts."""

    type: EventType
    object: Body
    version: str


class Selection(msgspec.Struct, frozen=True):
    """The selected objects of a resource: all, those of a namespace, those with labels (selector
    syntax), those with fields.

    `brief` requests only the fields of a pod or a node that `client.received_bodies` names;
    the rest of the body may be missing. Of objects that are not `whole`,
    only the fields of `apimachinery.foreign_bodies` arrive.
    """

    namespace: str = ""
    labels: str = ""
    fields: str = ""
    brief: bool = False
    whole: Callable[[Body], bool] | None = None


EVERYTHING = Selection()
BRIEF = Selection(brief=True)  # all objects, of pods and nodes the fields that decisions read


class ApplyResult(msgspec.Struct, frozen=True):
    """The object after a server-side apply, and the warnings that came with the reply. `created`:
    the apply created the object (HTTP status 201), so no other writer has a part in it.
    """

    body: Body
    warnings: tuple[str, ...] = ()
    created: bool = False


class Identity(msgspec.Struct, frozen=True):
    """The user of an impersonated request, never empty.

    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
    """

    user: str
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.user.strip():
            raise ValueError("an identity needs a user")


class ClusterReader(Protocol):
    """The requests that change nothing in a cluster. A writer is one as well: `Cluster`."""

    def acting_as(self, who: Identity) -> ClusterReader:
        """The same cluster, with impersonated requests; each raises Forbidden without the
        permission to impersonate.
        """
        ...

    async def resources(self, *, refresh: bool = False) -> Mapping[tuple[str, str], Resource]:
        """The served resources, by (group, kind), each in its preferred version. They are cached
        from the first request until `refresh`.
        """
        ...

    async def version(self) -> str:
        """Its Kubernetes version: `v1.37.1`."""
        ...

    async def list(self, resource: Resource, which: Selection = EVERYTHING) -> Listing:
        """All objects that match, at one version."""
        ...

    def watch(
        self, resource: Resource, since: str, which: Selection = EVERYTHING
    ) -> AsyncIterator[WatchEvent]:
        """Changes after the version `since`, until the server ends the watch. Raises Expired if
        that version is too old.
        """
        ...

    async def get(self, resource: Resource, namespace: str, name: str) -> Body:
        """One object."""
        ...

    async def may(self, verb: str, resource: Resource, namespace: str = "") -> bool:
        """Whether that is permitted in the namespace (empty: in all), by an access review.

        https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
        """
        ...

    async def dry_run(
        self, resource: Resource, body: Body, *, manager: str, force: bool = False
    ) -> ApplyResult:
        """The result of a server-side apply, with its errors and warnings; nothing is stored.

        https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run
        """
        ...


class Cluster(ClusterReader, Protocol):
    """All requests to a cluster."""

    def acting_as(self, who: Identity) -> Cluster:
        """As that of a reader."""
        ...

    async def create(self, resource: Resource, body: Body) -> Body:
        """A new object, with its server-made fields."""
        ...

    async def replace(self, resource: Resource, body: Body) -> Body:
        """Replaces the object at its resourceVersion."""
        ...

    async def apply(
        self, resource: Resource, body: Body, *, manager: str, force: bool = False
    ) -> ApplyResult:
        """Server-side apply with strict field validation. A field of another manager raises
        Conflict with one cause a field.
        """
        ...

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: Any,
        *,
        type: PatchType = PatchType.MERGE,
        subresource: str = "",
    ) -> Body:
        """The object after the patch."""
        ...

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        propagation: Propagation = Propagation.BACKGROUND,
    ) -> Body:
        """Deletes the object (with that uid, if set); returns the object or a Status."""
        ...
