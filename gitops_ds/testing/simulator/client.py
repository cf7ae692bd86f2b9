"""One client of the simulated cluster: the `Cluster` protocol, with a name, a counter of its
requests, and injected faults.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import (
    EVERYTHING,
    ApplyResult,
    EventType,
    Identity,
    Listing,
    PatchType,
    Propagation,
    Selection,
    WatchEvent,
)
from gitops_ds.core.objects import ACCESS_REVIEW, Body, Resource
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import foreign_bodies, kubernetes_versions
from gitops_ds.testing.simulator import api_errors, selectors
from gitops_ds.testing.simulator import faults as simulator_faults
from gitops_ds.testing.simulator.faults import Count, Faults, Lag, Silence, SimulatedRequest
from gitops_ds.testing.simulator.registry_strategy import DeleteOptions
from gitops_ds.testing.simulator.server import Server
from gitops_ds.testing.simulator.store import StoredChange

VERSION = f"v{kubernetes_versions.RELEASES[kubernetes_versions.NEWEST]}"


class Habits(msgspec.Struct, frozen=True):
    """The times of a connection in seconds: the duration of a request, the interval of bookmarks,
    and the duration of a watch.
    """

    latency: float = 0.0
    bookmark_every: float = 60.0
    watch_for: float = 1800.0


@dataclass(slots=True, eq=False)
class _Cut:
    """Ends one watch from outside. `wake` is set with the event, and with each change."""

    event: asyncio.Event = field(default_factory=asyncio.Event)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    error: errors.ClusterError | None = None

    def end(self, error: errors.ClusterError | None) -> None:
        """Ends the watch."""
        self.error = error
        self.event.set()
        self.wake.set()


@dataclass(slots=True)
class Client:
    """A client. `manager` owns the fields that it creates, replaces and patches; `faults` and `lag`
    may be replaced at any time.
    """

    server: Server
    manager: str = names.FIELD_MANAGER
    habits: Habits = field(default_factory=Habits)
    faults: Faults = simulator_faults.none
    count: Count = field(default_factory=Count)
    lag: Lag = simulator_faults.prompt
    user: str = ""
    _watches: dict[_Cut, None] = field(default_factory=dict)
    _number: int = 0
    _served: Mapping[tuple[str, str], Resource] | None = None

    def acting_as(self, who: Identity) -> Client:
        """A client with that name; only `faults` reject its requests."""
        return Client(
            self.server, self.manager, self.habits, self.faults, self.count, self.lag, who.user
        )

    async def resources(self, *, refresh: bool = False) -> Mapping[tuple[str, str], Resource]:
        """The served kinds, including custom ones, from a single request, as with a real
        cluster.
        """
        if refresh or self._served is None:
            await self._arrive("discover", None)
            self._served = dict(self.server.structures.served)
        return self._served

    async def version(self) -> str:
        """The Kubernetes version whose behaviour is simulated."""
        await self._arrive("discover", None)
        return VERSION

    async def list(self, resource: Resource, which: Selection = EVERYTHING) -> Listing:
        """All objects that match, at the present version."""
        await self._arrive("list", resource, (which.namespace, ""))
        matches = selectors.test(resource, which)
        self.server.require(resource)
        bodies = filter(matches, self.server.store.all(resource))
        items = tuple(_received(body, which) for body in bodies)
        return Listing(items, str(self.server.store.version))

    async def watch(
        self, resource: Resource, since: str, which: Selection = EVERYTHING
    ) -> AsyncIterator[WatchEvent]:
        """Changes after `since` ("" or "0": first all existing objects) and bookmarks, until the
        time limit.

        Raises Expired if `since` is too old. With a future version there is no event until that
        version, as in a real cluster.
        """
        silence = await self._arrive("watch", resource, (which.namespace, ""))
        if silence is not None:
            await asyncio.sleep(silence.seconds)
            return
        self.server.require(resource)
        matches = selectors.test(resource, which)
        start = self._version(since)
        if start == 0:
            start = self.server.store.version
            for body in self.server.store.all(resource):
                if matches(body):
                    yield WatchEvent(EventType.ADDED, body, body["metadata"]["resourceVersion"])
        cut = _Cut()
        self._watches[cut] = None
        stream = _Stream(self.server, resource, start, cut)
        try:
            async for change in stream.run(self.habits):
                event = (
                    _seen(change, matches)
                    if change
                    else _bookmark(resource, self.server.store.version)
                )
                if event is None:
                    continue
                if late := self.lag(resource):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(late):
                            await cut.event.wait()
                if not cut.event.is_set():
                    is_object = event.type is not EventType.BOOKMARK
                    body = _received(event.object, which) if is_object else event.object
                    yield replace(event, object=body)
        finally:
            self._watches.pop(cut)
        if cut.error is not None:
            raise cut.error

    def _version(self, text: str) -> int:
        try:
            return int(text or "0")
        except ValueError:
            why = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
            raise api_errors.bad_request(
                f"invalid resource version: resourceVersion: {why}"
            ) from None

    async def get(self, resource: Resource, namespace: str, name: str) -> Body:
        """One object."""
        await self._arrive("get", resource, (namespace, name))
        return self.server.get(resource, namespace, name)

    async def may(self, verb: str, resource: Resource, namespace: str = "") -> bool:
        """True: only `faults` reject requests, also this one."""
        await self._arrive("review", ACCESS_REVIEW)
        return True

    async def dry_run(
        self, resource: Resource, body: Body, *, manager: str, force: bool = False
    ) -> ApplyResult:
        """The object after a server-side apply that is not stored, always without warnings."""
        async with self._write("apply", resource, _names(body), dry_run=True):
            return self._applied(resource, body, manager, force=force, dry_run=True)

    def _applied(
        self, resource: Resource, body: Body, manager: str, *, force: bool, dry_run: bool = False
    ) -> ApplyResult:
        namespace, name = _names(body)
        where = namespace if resource.namespaced else ""
        is_new = self.server.store.get(resource, where, name) is None
        done = self.server.apply(resource, body, manager, force, dry_run)
        return ApplyResult(done, created=is_new)

    async def create(self, resource: Resource, body: Body) -> Body:
        """The created object. Unknown fields are dropped, as without strict validation."""
        async with self._write("create", resource, _names(body)):
            return self.server.create(resource, body, self.manager)

    async def replace(self, resource: Resource, body: Body) -> Body:
        """The object after the replacement."""
        async with self._write("update", resource, _names(body)):
            return self.server.replace(resource, body, self.manager)

    async def apply(
        self, resource: Resource, body: Body, *, manager: str, force: bool = False
    ) -> ApplyResult:
        """The object after a server-side apply, always without warnings."""
        async with self._write("apply", resource, _names(body)):
            return self._applied(resource, body, manager, force=force)

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
        """The object after the patch. The only subresource is `status`."""
        place = (namespace, name)
        async with self._write("patch", resource, place, subresource=subresource):
            if subresource not in ("", "status"):
                raise api_errors.unsupported_here(f"a patch of the subresource {subresource}")
            return self.server.patch(resource, place, patch, type, (self.manager, subresource))

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        propagation: Propagation = Propagation.BACKGROUND,
    ) -> Body:
        """The reply: the object while it ends, or a Status."""
        async with self._write("delete", resource, (namespace, name)):
            return self.server.delete(resource, namespace, name, DeleteOptions(uid, propagation))

    def cut_watches(self, error: errors.ClusterError | None = None) -> None:
        """Ends every watch of this client, like a lost connection, or with an error, like a broken
        stream.
        """
        for cut in self._watches:
            cut.end(error)

    async def _arrive(
        self,
        verb: str,
        resource: Resource | None,
        where: tuple[str, str] = ("", ""),
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Silence | None:
        """Counts the request for the object at `where` (namespace and name) and raises the next
        fault.

        Returns the silence of a watch, or of a request that is nevertheless executed: it applies at
        the end.
        """
        self._number += 1
        counted = f"dry-run {verb}" if dry_run else verb
        self.count.by[counted, resource.plural if resource else ""] += 1
        await asyncio.sleep(self.habits.latency)
        now = self.server.now()
        fault = self.faults(
            SimulatedRequest(
                verb, resource, *where, now, self._number, subresource, dry_run, self.user
            )
        )
        if isinstance(fault, errors.ClusterError):
            raise fault.with_traceback(None)  # a table may inject one error many times
        if (
            fault is not None
            and verb != "watch"
            and (verb in simulator_faults.READS or not fault.done)
        ):
            await self._silent(fault)
        return fault

    @contextlib.asynccontextmanager
    async def _write(
        self, verb: str, resource: Resource, where: tuple[str, str], **how: Any
    ) -> AsyncIterator[None]:
        """A request that writes; the response to one that the server executes may be missing."""
        late = await self._arrive(verb, resource, where, **how)
        yield
        if late is not None:
            await self._silent(late)

    async def _silent(self, silence: Silence) -> None:
        await asyncio.sleep(silence.seconds)
        raise errors.ClusterUnreachable(
            f"the API server gave no answer within {silence.seconds:g} s"
        )


class _Stream(msgspec.Struct, frozen=True):
    """One open watch."""

    server: Server
    resource: Resource
    since: int
    cut: _Cut

    async def run(self, habits: Habits) -> AsyncIterator[StoredChange | None]:
        """Changes, and None for a due bookmark; ends at the time limit or when the watch is cut."""
        loop = asyncio.get_running_loop()
        end, mark = loop.time() + habits.watch_for, loop.time() + habits.bookmark_every
        wake = self.cut.wake
        with self.server.store.changes(self.resource, self.since, wake) as following:
            timer = loop.call_at(min(end, mark), wake.set)
            try:
                while not self.cut.event.is_set():
                    wake.clear()
                    if (change := following()) is not None:
                        yield change
                    elif loop.time() >= end:
                        return
                    elif loop.time() >= mark:
                        mark += habits.bookmark_every
                        timer = loop.call_at(min(end, mark), wake.set)
                        yield None
                    else:
                        if timer.when() - loop.time() < 0.001:  # loops may fire timers early
                            timer.cancel()
                            timer = loop.call_at(min(end, mark), wake.set)
                        await wake.wait()
            finally:
                timer.cancel()


def _received(body: Body, which: Selection) -> Body:
    """The body, reduced if the selection has it so."""
    return body if which.whole is None or which.whole(body) else foreign_bodies.reduced(body)


def _seen(change: StoredChange, matches: selectors.Test) -> WatchEvent | None:
    """The event of a selective watch: ADDED for an object that begins to match, DELETED for one
    that ceases to.
    """
    was = change.before is not None and matches(change.before)
    now = change.type is not EventType.DELETED and matches(change.body)
    version = str(change.version)
    if now:
        return WatchEvent(EventType.MODIFIED if was else EventType.ADDED, change.body, version)
    return WatchEvent(EventType.DELETED, change.body, version) if was else None


def _bookmark(resource: Resource, version: int) -> WatchEvent:
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"resourceVersion": str(version)},
    }
    return WatchEvent(EventType.BOOKMARK, body, str(version))


def _names(body: Body) -> tuple[str, str]:
    metadata = body.get("metadata") or {}
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
