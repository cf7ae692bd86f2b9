"""A fence around a cluster: writes pass only while this replica leads.

The fence holds the end of the leadership. It compares a clock before each write, and again right
before the bytes are sent (`HttpCluster` calls it), because a process may be stopped in between. A
write that is pending when the time ends is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from gitops_ds import errors
from gitops_ds.model.cluster import (
    EVERYTHING,
    ApplyResult,
    Cluster,
    Identity,
    Listing,
    PatchType,
    Propagation,
    Selection,
    WatchEvent,
)
from gitops_ds.model.objects import Body, Resource


class Fence:
    """The end of the time for writes, by `clock`: monotonic seconds that include suspension of the
    machine.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """A closed fence."""
        self._clock = clock
        self._until = -math.inf
        self._passing: set[asyncio.Timeout] = set()

    @property
    def left(self) -> float:
        """Seconds until the fence closes."""
        return self._until - self._clock()

    def move(self, until: float) -> None:
        """Sets the end of the time, for pending writes as well; an end in the past closes the
        fence.
        """
        self._until = until
        when = (
            asyncio.get_running_loop().time() + self.left
            if self._passing and until != math.inf
            else None
        )
        for one in self._passing:
            one.reschedule(when)

    def close(self) -> None:
        """Rejects every further write, and cancels the pending ones."""
        self.move(-math.inf)

    def check(self) -> None:
        """Raises NotLeading while the fence is closed."""
        if self.left <= 0:
            raise errors.NotLeading("another replica may lead by now: write rejected")

    @contextlib.asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """The context of a write. Raises NotLeading before it is sent, or when the time ends."""
        self.check()
        try:
            async with asyncio.timeout(None if self._until == math.inf else self.left) as limit:
                self._passing.add(limit)
                try:
                    yield
                finally:
                    self._passing.discard(limit)
        except TimeoutError:
            raise errors.NotLeading(
                "the lease ended during a write: its outcome is unknown"
            ) from None


class Fenced:
    """A cluster with a fence around its writes and dry runs; reads are not limited."""

    def __init__(self, cluster: Cluster, fence: Fence) -> None:
        self._cluster, self._fence = cluster, fence

    def acting_as(self, who: Identity) -> Fenced:
        """The cluster with an impersonated identity, behind the same fence."""
        return Fenced(self._cluster.acting_as(who), self._fence)

    async def resources(self, *, refresh: bool = False) -> Mapping[tuple[str, str], Resource]:
        """As the cluster's."""
        return await self._cluster.resources(refresh=refresh)

    async def version(self) -> str:
        """As the cluster's."""
        return await self._cluster.version()

    async def list(self, resource: Resource, which: Selection = EVERYTHING) -> Listing:
        """As the cluster's."""
        return await self._cluster.list(resource, which)

    def watch(
        self, resource: Resource, since: str, which: Selection = EVERYTHING
    ) -> AsyncIterator[WatchEvent]:
        """As the cluster's."""
        return self._cluster.watch(resource, since, which)

    async def get(self, resource: Resource, namespace: str, name: str) -> Body:
        """As the cluster's."""
        return await self._cluster.get(resource, namespace, name)

    async def create(self, resource: Resource, body: Body) -> Body:
        """Raises NotLeading as well."""
        async with self._fence.passing():
            return await self._cluster.create(resource, body)

    async def replace(self, resource: Resource, body: Body) -> Body:
        """Raises NotLeading as well."""
        async with self._fence.passing():
            return await self._cluster.replace(resource, body)

    async def apply(
        self,
        resource: Resource,
        body: Body,
        *,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> ApplyResult:
        """Raises NotLeading as well."""
        async with self._fence.passing():
            return await self._cluster.apply(
                resource, body, manager=manager, force=force, dry_run=dry_run
            )

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
        """Raises NotLeading as well."""
        async with self._fence.passing():
            return await self._cluster.patch(
                resource, namespace, name, patch, type=type, subresource=subresource
            )

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        propagation: Propagation = Propagation.BACKGROUND,
    ) -> Body:
        """Raises NotLeading as well."""
        async with self._fence.passing():
            return await self._cluster.delete(
                resource, namespace, name, uid=uid, propagation=propagation
            )
