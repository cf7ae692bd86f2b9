"""A fence around a cluster: writes pass while it is open, and not a moment longer.

Only the leader may write. The fence knows until when; it looks at a clock before each write, and
once more right before the bytes go out (`HttpCluster` does that), for a process may be stopped
anywhere in between. A write that is on its way when the time ends is given up.
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
    """Until when writes may be on their way, by `clock`: seconds that never go back, and go on
    while the machine sleeps.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """It is closed."""
        self._clock = clock
        self._until = -math.inf
        self._passing: set[asyncio.Timeout] = set()

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._until - self._clock()

    def move(self, until: float) -> None:
        """Writes may be on their way until then, also those that are; a moment that is past closes
        it.
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
        """From now on nothing passes, and what is on its way is given up."""
        self.move(-math.inf)

    def check(self) -> None:
        """Raises NotLeading when nothing may pass."""
        if self.left <= 0:
            raise errors.NotLeading("another replica may lead by now: nothing is written")

    @contextlib.asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """Around one write. Raises NotLeading before it is sent, or when the time ends meanwhile."""
        self.check()
        try:
            async with asyncio.timeout(None if self._until == math.inf else self.left) as limit:
                self._passing.add(limit)
                try:
                    yield
                finally:
                    self._passing.discard(limit)
        except errors.ClusterUnreachable:
            self.check()  # it may be the guard that stopped it
            raise
        except TimeoutError:
            raise errors.NotLeading(
                "the lease ended while a write was on its way: whether it was taken is not known"
            ) from None


class Fenced:
    """A cluster whose writes, dry runs with them, pass a fence; reading is free."""

    def __init__(self, cluster: Cluster, fence: Fence) -> None:
        self._cluster, self._fence = cluster, fence

    def acting_as(self, who: Identity) -> Fenced:
        """In the name of somebody else, past the same fence."""
        return Fenced(self._cluster.acting_as(who), self._fence)

    async def resources(self, *, anew: bool = False) -> Mapping[tuple[str, str], Resource]:
        """As the cluster's."""
        return await self._cluster.resources(anew=anew)

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
