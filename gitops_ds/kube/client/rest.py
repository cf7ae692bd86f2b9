"""A real API server behind the `ClusterReader` and `Cluster` protocols: JSON over aiohttp,
unmodified bodies.

Lists are read in pages, watches as a stream of lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import msgspec
import orjson

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import (
    EVERYTHING,
    ApplyResult,
    Identity,
    Listing,
    PatchType,
    Propagation,
    Selection,
    WatchEvent,
)
from gitops_ds.core.http_library import aiohttp
from gitops_ds.core.objects import ACCESS_REVIEW, NODE, POD, Body, Resource
from gitops_ds.kube.client import received_bodies, wire
from gitops_ds.kube.client.config import ClientConfig
from gitops_ds.kube.client.fence import Fence
from gitops_ds.kube.client.received_bodies import BodyCache
from gitops_ds.kube.client.transport import REQUEST_SECONDS, Request, RequestCounter, Transport

PAGE = 500
FIRST_PAGE, PAGE_BYTES = 16, 8 * 1024 * 1024  # of a list whose bodies are reduced
# Seconds in which the lines of a watch are read together, unless they are many: so pauses do not
# limit a watch to a number of events per second. Nearly all events of nodes are heartbeats. Those
# of other kinds are few, and needed at once: the number of a new revision follows from the others.
PAUSES: Mapping[Resource, float] = {POD: 0.025, NODE: 0.25}
READ_BYTES = 65536
CHUNK = 50  # objects that are decoded at a time
_APPLY = "application/apply-patch+yaml"  # with a JSON body; `+json` answers 415
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_AS_US: Mapping[str, str] = {"fieldManager": names.FIELD_MANAGER}


class HttpReader:
    """One API server, without a method that writes. Use it as an async context manager."""

    def __init__(
        self,
        access: ClientConfig,
        user_agent: str = "gitops-ds",
        *,
        fence: Fence | None = None,
        counter: RequestCounter | None = None,
    ) -> None:
        """Sends nothing yet. Access reviews, dry runs and the writes of a subclass pass the fence,
        and raise NotLeading as well: the first two persist nothing, but they run admission webhooks
        for a decision that only the leader makes. `counter` counts the requests.
        """
        self._who = access.who
        self._fence = fence
        guard = fence.check if fence else lambda: None
        self._transport = Transport(access, user_agent, guard, counter or RequestCounter())
        self._resources: Mapping[tuple[str, str], Resource] | None = None
        self._acting: Sequence[tuple[str, str]] = ()
        self._bodies = BodyCache()

    async def __aenter__(self) -> Self:
        """Opens the pools."""
        self._transport.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes every connection."""
        await self._transport.close()

    @property
    def requests(self) -> int:
        """The number of requests so far, watches and impersonated requests included."""
        return self._transport.counter.sent

    def acting_as(self, who: Identity) -> Self:
        """The same connections, with impersonation headers."""
        view = copy.copy(self)
        view._acting = (  # noqa: SLF001  our own
            ("Impersonate-User", who.user),
            *(("Impersonate-Group", group) for group in who.groups),
        )
        return view

    async def resources(self, *, refresh: bool = False) -> Mapping[tuple[str, str], Resource]:
        """The served resources, from two requests; cached, unless `refresh` is set.

        https://kubernetes.io/docs/concepts/overview/kubernetes-api/#aggregated-discovery
        """
        if refresh or self._resources is None:
            resources: dict[tuple[str, str], Resource] = {}
            for path in ("/api", "/apis"):
                reply = await self._json(Request("GET", path, headers={"Accept": _DISCOVERY}))
                try:
                    resources.update(wire.discovered(reply))
                except (KeyError, TypeError, AttributeError) as error:
                    raise self._transport.garbage() from error
            self._resources = resources
        return self._resources

    async def version(self) -> str:
        """The server's gitVersion."""
        return str((await self._json(Request("GET", "/version"))).get("gitVersion", ""))

    async def list(self, resource: Resource, which: Selection = EVERYTHING) -> Listing:
        """All pages of a list; it is started again when its version expires between two pages."""
        for attempt in range(3):
            try:
                return await self._list(resource, which)
            except errors.Expired:
                if attempt == 2:
                    raise
        raise AssertionError

    async def _list(self, resource: Resource, which: Selection) -> Listing:
        whole: list[Body] = []
        brief = received_bodies.PackedBodies()
        # a page whose bodies are reduced as they arrive is the largest part of a list in memory
        limit = PAGE if which.whole is None else FIRST_PAGE
        query = {**wire.query_of(which), "limit": str(limit)}
        decode = wire.decoder(received_bodies.ITEMS, resource, which)
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}

        def take(items: Sequence[msgspec.Raw]) -> None:
            bodies = ({**kind, **decode(memoryview(item))} for item in items)
            if decode is orjson.loads:
                whole.extend(self._bodies.intern(body, which.whole) for body in bodies)
            else:
                brief.add([*bodies])

        path = wire.path_of(resource, which.namespace)
        page = await self._page(Request("GET", path, query=query))
        while following := page["metadata"].get("continue"):
            if which.whole is not None:
                size = sum(len(memoryview(item)) for item in page.get("items") or ())
                limit = max(1, min(PAGE, limit * PAGE_BYTES // max(1, size)))
            query |= {"continue": following, "limit": str(limit)}
            # the server collects the next page while this one is decoded
            next_page = self._page(Request("GET", path, query={**query}))
            page, _ = await asyncio.gather(next_page, self._decode(page, take))
        await self._decode(page, take)
        version = str(page["metadata"]["resourceVersion"])
        return Listing(tuple(whole) if decode is orjson.loads else brief, version)

    async def _page(self, request: Request) -> Mapping[str, Any]:
        """A page of a list, its items as text."""
        page = await self._json(request, wire.list_page)
        if not wire.is_list(page):
            raise self._transport.garbage()
        return page

    async def _decode(
        self, page: Mapping[str, Any], take: Callable[[Sequence[msgspec.Raw]], None]
    ) -> None:
        """Passes the items of a page to `take` in chunks, because decoded objects take several
        times the memory of their text.
        """
        items = page.get("items") or ()
        try:
            for start in range(0, len(items), CHUNK):
                await asyncio.sleep(0)
                take(items[start : start + CHUNK])
        except (TypeError, ValueError) as error:
            raise self._transport.garbage() from error

    async def watch(
        self, resource: Resource, since: str, which: Selection = EVERYTHING
    ) -> AsyncIterator[WatchEvent]:
        """Events until the server ends the stream, after the requested five to ten minutes."""
        seconds = random.randint(290, 590)
        query = {
            **wire.query_of(which),
            "watch": "1",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        # not `sock_read`, whose timer restarts with each read
        wait = aiohttp.ClientTimeout(REQUEST_SECONDS + seconds + 15, connect=REQUEST_SECONDS)
        decode = wire.decoder(received_bodies.EVENTS, resource, which)
        path = wire.path_of(resource, which.namespace)
        request = Request("GET", path, query=query, wait=wait, is_watch=True)
        async with await self._transport.send(request, self._acting) as reply:
            try:
                async for line in _lines(reply, PAUSES.get(resource, 0.0)):
                    event = decode(line)
                    if decode is orjson.loads:
                        event["object"] = self._bodies.intern(event["object"], which.whole)
                    yield wire.watch_event(event, self._who)
            except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
                raise self._transport.garbage() from error
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._transport.unreachable(error) from error

    async def get(self, resource: Resource, namespace: str, name: str) -> Body:
        """One object."""
        body = await self._json(Request("GET", wire.path_of(resource, namespace, name)))
        if body.get("kind") != resource.kind or not isinstance(body.get("metadata"), dict):
            raise self._transport.garbage()
        return body

    async def may(self, verb: str, resource: Resource, namespace: str = "") -> bool:
        """Whether a SelfSubjectAccessReview allows it."""
        body = wire.access_review(verb, resource, namespace)
        path = wire.path_of(ACCESS_REVIEW, "")
        reviewed = await self._json(Request("POST", path, body))
        return bool((reviewed.get("status") or {}).get("allowed"))

    async def dry_run(
        self, resource: Resource, body: Body, *, manager: str, force: bool = False
    ) -> ApplyResult:
        """The object after a server-side apply that is not stored, with the warnings."""
        return await self._applied(resource, body, manager, force=force, is_dry_run=True)

    async def text(self, path: str, query: Mapping[str, str], most: int) -> str:
        """At most `most` bytes of the response at a path that is not an object: a log, a page
        behind a proxy.
        """
        request = Request("GET", path, query=query)
        async with await self._transport.send(request, self._acting) as reply:
            data = bytearray()
            try:
                async for piece in reply.content.iter_any():
                    data += piece
                    if len(data) >= most:
                        break
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._transport.unreachable(error) from error
            return data[:most].decode("utf-8", "replace")

    async def _applied(
        self,
        resource: Resource,
        body: Body,
        manager: str,
        *,
        force: bool,
        is_dry_run: bool = False,
    ) -> ApplyResult:
        path = wire.path_of(resource, wire.namespace_of(body), str(body["metadata"]["name"]))
        query = {
            "fieldManager": manager,
            "force": str(force).lower(),
            "fieldValidation": "Strict",
            **({"dryRun": "All"} if is_dry_run else {}),
        }
        applied, warnings, status = await self._answer(
            Request("PATCH", path, body, query, {"Content-Type": _APPLY})
        )
        is_new = status == HTTPStatus.CREATED
        return ApplyResult(applied, tuple(map(wire.warning_text, warnings)), created=is_new)

    async def _json(
        self, request: Request, decode: received_bodies.Decode = orjson.loads
    ) -> dict[str, Any]:
        return (await self._answer(request, decode))[0]

    async def _answer(
        self, request: Request, decode: received_bodies.Decode = orjson.loads
    ) -> tuple[dict[str, Any], Sequence[str], int]:
        """The object in the response, its warnings and the HTTP status. A request other than GET is
        a write.
        """
        fence = self._fence if request.method != "GET" else None
        passing = fence.passing() if fence else contextlib.nullcontext()
        async with passing, await self._transport.send(request, self._acting) as reply:
            try:
                content = decode(await self._transport.whole(reply))
            except orjson.JSONDecodeError as error:
                raise self._transport.garbage() from error
        if not isinstance(content, dict):
            raise self._transport.garbage()
        return content, reply.headers.getall("Warning", ()), reply.status


class HttpCluster(HttpReader):
    """One API server, with the methods that write."""

    def __init__(
        self,
        access: ClientConfig,
        user_agent: str = "gitops-ds",
        *,
        fence: Fence | None = None,
        counter: RequestCounter | None = None,
        brief_replies: bool = False,
    ) -> None:
        """As that of a reader. `brief_replies`: the reply to a write of a pod has only the fields
        of a `Selection` that is brief.
        """
        super().__init__(access, user_agent, fence=fence, counter=counter)
        self._replies = Selection(brief=brief_replies)

    async def create(self, resource: Resource, body: Body) -> Body:
        """The created object."""
        path = wire.path_of(resource, wire.namespace_of(body))
        return await self._written(
            resource, Request("POST", path, wire.as_stored(resource, body), _AS_US)
        )

    async def replace(self, resource: Resource, body: Body) -> Body:
        """The object after the replacement."""
        path = wire.path_of(resource, wire.namespace_of(body), str(body["metadata"]["name"]))
        return await self._written(
            resource, Request("PUT", path, wire.as_stored(resource, body), _AS_US)
        )

    async def apply(
        self, resource: Resource, body: Body, *, manager: str, force: bool = False
    ) -> ApplyResult:
        """The object after a server-side apply, with the warnings of the reply."""
        return await self._applied(resource, body, manager, force=force)

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
        path = wire.path_of(resource, namespace, name) + (f"/{subresource}" if subresource else "")
        return await self._written(
            resource, Request("PATCH", path, patch, _AS_US, {"Content-Type": type.value})
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
        """The reply: the object while it ends, or a Status."""
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation.value,
        }
        if uid:
            options["preconditions"] = {"uid": uid}
        return await self._written(
            resource, Request("DELETE", wire.path_of(resource, namespace, name), options)
        )

    def _written(self, resource: Resource, request: Request) -> Awaitable[dict[str, Any]]:
        return self._json(request, wire.decoder(received_bodies.REPLIES, resource, self._replies))


async def _lines(reply: aiohttp.ClientResponse, pause: float) -> AsyncIterator[bytes]:
    """Lines of any length: the reader's own `readline` is limited to some hundred KiB.

    A read, with the steps of the event loop around it, takes more CPU than the lines in it. So the
    connection pauses for `pause` seconds after a small one: in a rollout lines arrive every
    millisecond. TLS would still read each of them from the socket, up to its limit of 256 KiB.
    """
    pending, loop, transport = b"", asyncio.get_running_loop(), _transport(reply)
    if (limit := getattr(transport, "set_read_buffer_limits", None)) is not None:
        limit(high=1)
    async for chunk in reply.content.iter_any():
        *whole, pending = (pending + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line
        if pause and len(chunk) < READ_BYTES and (transport := _transport(reply)) is not None:
            transport.pause_reading()
            loop.call_later(pause, transport.resume_reading)


def _transport(reply: aiohttp.ClientResponse) -> asyncio.Transport | None:
    """The transport of a response; None after its end."""
    return None if reply.connection is None else reply.connection.transport
