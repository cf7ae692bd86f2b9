"""A real API server behind the `Cluster` protocol: JSON over aiohttp, unmodified bodies.

Lists are read in pages, watches as a stream of lines. A request is repeated after 429 and 503 where
the server sends Retry-After, and once with new credentials after 401. Nothing else is retried here:
that is the loops' decision.
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import contextlib
import copy
import os
import random
import socket
import ssl
import time
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson
import yarl

from gitops_ds import errors
from gitops_ds.apimachinery import field_projection
from gitops_ds.client import status_errors, wire
from gitops_ds.client.body_interning import BodyCache
from gitops_ds.client.config import ClientConfig
from gitops_ds.client.reconnect_throttle import ReconnectThrottle
from gitops_ds.client.request_counter import RequestCounter
from gitops_ds.model import names
from gitops_ds.model.cluster import (
    EVERYTHING,
    ApplyResult,
    Identity,
    Listing,
    PatchType,
    Propagation,
    Selection,
    WatchEvent,
)
from gitops_ds.model.objects import Body, Resource

PAGE = 500
REQUEST_SECONDS = 30.0
CLOSING_SECONDS = 1.0  # for the last bytes of TLS
CONNECTIONS = 64  # for requests; more only wait inside the API server
# A 429 or 503 with Retry-After is waited out so often, as client-go does (rest/request.go,
# maxRetries), and for so many seconds at most: API Priority and Fairness names up to 32 s
# (apiserver util/flowcontrol/dropped_requests_tracker.go).
PATIENCE, LONGEST_WAIT_SECONDS = 10, 120.0
_NO_BACKEND = (502, 503, 504)  # the answers of a load balancer without a reachable API server
_APPLY = "application/apply-patch+yaml"  # with a JSON body; `+json` answers 415
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_AS_US: Mapping[str, str] = {"fieldManager": names.FIELD_MANAGER}


@dataclass(frozen=True, slots=True)
class _Request:
    """One request: a body is sent as JSON, `wait` bounds it."""

    method: str
    path: str
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: aiohttp.ClientTimeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)  # noqa: RUF009  a frozen value
    is_watch: bool = False


class HttpCluster:
    """One API server. Use it as an async context manager.

    It holds two pools of connections: at most `CONNECTIONS` for requests, any number for watches.
    HTTP/1.1 gives each request a connection of its own and a watch keeps its for minutes; in one
    bounded pool, watches would leave none for requests. client-go has no such limit because it
    sends all of them as streams of one HTTP/2 connection.
    """

    def __init__(
        self,
        access: ClientConfig,
        user_agent: str = "gitops-ds",
        *,
        guard: Callable[[], None] = lambda: None,
        tally: RequestCounter | None = None,
    ) -> None:
        """Sends nothing yet. `guard` is called right before a write is sent, and may raise; `tally`
        counts the requests.
        """
        self._access = access
        self._user_agent = user_agent
        self._guard = guard
        self._session: aiohttp.ClientSession | None = None
        self._watch_session: aiohttp.ClientSession | None = None
        self._resources: Mapping[tuple[str, str], Resource] | None = None
        self._acting: Sequence[tuple[str, str]] = ()
        self._tally = tally or RequestCounter()
        self._throttle = ReconnectThrottle(time.monotonic)
        self._bodies = BodyCache()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    async def __aenter__(self) -> Self:
        """Opens the pools."""
        self._session, self._watch_session = self._open(CONNECTIONS), self._open(0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes every connection."""
        for session in (self._session, self._watch_session):
            if session is not None:
                await session.close()
        # Connections that were dropped before, as of a cancelled watch, close in later steps of the
        # event loop, for which `close` of aiohttp does not wait.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                while any(each.fileno() != -1 for each in self._sockets):  # noqa: ASYNC110  a socket has no event
                    await asyncio.sleep(0.001)

    def _open(self, connections: int) -> aiohttp.ClientSession:
        """A pool of at most so many connections; 0 is no limit."""
        connector = aiohttp.TCPConnector(
            limit=connections, ssl=self._access.tls or True, socket_factory=self._socket
        )
        headers = {"User-Agent": self._user_agent, "Accept-Encoding": "identity"}
        return aiohttp.ClientSession(
            connector=connector, headers=headers, trace_configs=[self._guarded()]
        )

    def _socket(self, address: Any) -> socket.socket:
        made = _socket(address)
        self._sockets.add(made)
        return made

    def _guarded(self) -> aiohttp.TraceConfig:
        """Calls the guard when a body, which every write has and no read, is passed to the
        connection: the last moment before it is sent.
        """

        async def check(*_: object) -> None:
            self._guard()

        tracing = aiohttp.TraceConfig()
        tracing.on_request_chunk_sent.append(check)
        return tracing

    @property
    def requests(self) -> int:
        """The number of requests so far, watches and impersonated requests included."""
        return self._tally.sent

    def acting_as(self, who: Identity) -> HttpCluster:
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
            found: dict[tuple[str, str], Resource] = {}
            for path in ("/api", "/apis"):
                reply = await self._json(_Request("GET", path, headers={"Accept": _DISCOVERY}))
                try:
                    found.update(wire.discovered(reply))
                except (KeyError, TypeError, AttributeError) as error:
                    raise self._garbage() from error
            self._resources = found
        return self._resources

    async def version(self) -> str:
        """The server's gitVersion."""
        return str((await self._json(_Request("GET", "/version"))).get("gitVersion", ""))

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
        items: list[Body] = []
        query = {**wire.query_of(which), "limit": str(PAGE)}
        decode = wire.decoder(field_projection.PAGES, resource, which)
        while True:
            page = await self._json(
                _Request("GET", wire.path_of(resource, which.namespace), query=query), decode
            )
            if not wire.is_list(page):
                raise self._garbage()
            kind = {"apiVersion": resource.api_version, "kind": resource.kind}
            found = ({**kind, **item} for item in page.get("items") or ())
            items.extend(map(self._bodies.intern, found) if decode is orjson.loads else found)
            metadata = page["metadata"]
            if not metadata.get("continue"):
                return Listing(tuple(items), str(metadata["resourceVersion"]))
            query["continue"] = metadata["continue"]

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
        wait = aiohttp.ClientTimeout(total=None, connect=REQUEST_SECONDS, sock_read=seconds + 15)
        decode = wire.decoder(field_projection.EVENTS, resource, which)
        async with self._send(
            _Request(
                "GET",
                wire.path_of(resource, which.namespace),
                query=query,
                wait=wait,
                is_watch=True,
            )
        ) as reply:
            try:
                async for line in _lines(reply.content):
                    event = decode(line)
                    if decode is orjson.loads:
                        event["object"] = self._bodies.intern(event["object"])
                    yield wire.watch_event(event, self._access.who)
            except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
                raise self._garbage() from error
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._unreachable(error) from error

    async def get(self, resource: Resource, namespace: str, name: str) -> Body:
        """One object."""
        found = await self._json(_Request("GET", wire.path_of(resource, namespace, name)))
        if found.get("kind") != resource.kind or not isinstance(found.get("metadata"), dict):
            raise self._garbage()
        return found

    async def create(self, resource: Resource, body: Body) -> Body:
        """The created object."""
        return await self._json(
            _Request(
                "POST",
                wire.path_of(resource, wire.namespace_of(body)),
                wire.as_stored(resource, body),
                _AS_US,
            )
        )

    async def replace(self, resource: Resource, body: Body) -> Body:
        """The object after the replacement."""
        return await self._json(
            _Request(
                "PUT",
                wire.path_of(resource, wire.namespace_of(body), str(body["metadata"]["name"])),
                wire.as_stored(resource, body),
                _AS_US,
            )
        )

    async def apply(
        self,
        resource: Resource,
        body: Body,
        *,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> ApplyResult:
        """The object after a server-side apply, with the warnings of the reply."""
        query = {"fieldManager": manager, "force": str(force).lower(), "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        path = wire.path_of(resource, wire.namespace_of(body), str(body["metadata"]["name"]))
        async with self._send(
            _Request("PATCH", path, body, query, {"Content-Type": _APPLY})
        ) as reply:
            return ApplyResult(
                await self._parsed(reply),
                tuple(wire.warning_text(text) for text in reply.headers.getall("Warning", ())),
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
        """The object after the patch."""
        path = wire.path_of(resource, namespace, name) + (f"/{subresource}" if subresource else "")
        return await self._json(
            _Request("PATCH", path, patch, _AS_US, {"Content-Type": type.value})
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
        return await self._json(
            _Request("DELETE", wire.path_of(resource, namespace, name), options)
        )

    async def text(self, path: str, query: Mapping[str, str], most: int) -> str:
        """At most `most` bytes of the answer at a path without an object: a log, a page behind a
        proxy.
        """
        async with self._send(_Request("GET", path, query=query)) as reply:
            data = bytearray()
            try:
                async for piece in reply.content.iter_any():
                    data += piece
                    if len(data) >= most:
                        break
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._unreachable(error) from error
            return data[:most].decode("utf-8", "replace")

    async def _json(
        self, request: _Request, decode: field_projection.Decode = orjson.loads
    ) -> dict[str, Any]:
        async with self._send(request) as reply:
            return await self._parsed(reply, decode)

    async def _parsed(
        self, reply: aiohttp.ClientResponse, decode: field_projection.Decode = orjson.loads
    ) -> dict[str, Any]:
        try:
            found = decode(await self._whole(reply))
        except orjson.JSONDecodeError as error:
            raise self._garbage() from error
        if not isinstance(found, dict):
            raise self._garbage()
        return found

    async def _whole(self, reply: aiohttp.ClientResponse) -> bytes:
        try:
            return await reply.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(error) from error

    def _garbage(self) -> errors.ServerFault:
        return errors.ServerFault(
            f"{self._access.url} does not answer as an API server does: is the address in "
            f"{self._access.who} right?"
        )

    @contextlib.asynccontextmanager
    async def _send(self, request: _Request) -> AsyncIterator[aiohttp.ClientResponse]:
        refused: str | None = None
        waited = 0.0
        for attempt in range(PATIENCE + 1):
            authorization = await self._access.authorization(refuse=refused)
            async with await self._request(request, authorization) as reply:
                if 300 <= reply.status < 400:
                    raise self._garbage()
                if reply.status < 400:
                    yield reply
                    return
                error = status_errors.error_for(
                    reply.status,
                    await self._whole(reply),
                    reply.headers.get("Retry-After"),
                    self._access.who,
                    dict(self._acting).get("Impersonate-User", ""),
                )
            if isinstance(error, errors.Unauthorized) and refused is None and authorization:
                refused = authorization
                continue
            wait = (
                error.retry_after
                if isinstance(error, errors.TooManyRequests | errors.ServerFault)
                else 0.0
            )
            waited += wait
            if not wait or attempt == PATIENCE or waited > LONGEST_WAIT_SECONDS:
                raise error
            await asyncio.sleep(wait)

    async def _request(
        self, request: _Request, authorization: str | None
    ) -> aiohttp.ClientResponse:
        session = self._watch_session if request.is_watch else self._session
        if session is None:
            raise errors.ClusterError("the connection to the cluster is not open")
        await self._throttle.wait()
        self._tally.sent += 1
        headers = [*{"Content-Type": "application/json", **request.headers}.items(), *self._acting]
        if authorization:
            headers.append(("Authorization", authorization))
        try:
            reply = await session.request(
                request.method,
                yarl.URL(self._access.url + request.path, encoded=True),
                data=None if request.body is None else orjson.dumps(request.body),
                params=request.query,
                headers=headers,
                proxy=self._access.proxy,
                server_hostname=self._access.server_name,
                timeout=request.wait,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._tally.answered[request.method, ""] += 1
            self._throttle.failed()
            raise self._unreachable(error) from error
        self._tally.answered[request.method, str(reply.status)] += 1
        if reply.status in _NO_BACKEND:
            self._throttle.failed()
        else:
            self._throttle.answered()
        return reply

    def _unreachable(self, error: BaseException) -> errors.ClusterUnreachable:
        system = getattr(error, "os_error", None)
        if isinstance(error, TimeoutError):
            why = "no answer in time"
        elif isinstance(system, ssl.SSLError):  # its errno is OpenSSL's
            why = " ".join(str(error).split())
        elif isinstance(system, OSError) and system.errno and system.errno > 0:
            why = os.strerror(system.errno).lower()
        else:
            why = " ".join(str(error).split()) or type(error).__name__
        return errors.ClusterUnreachable(
            f"the API server {self._access.url} can't be reached: {why}; is {self._access.who} "
            "right?"
        )


def _socket(address: Any) -> socket.socket:
    """A socket that detects a vanished peer: a watch may be silent for minutes, like a half-open
    connection.
    """
    family, type, protocol = address[:3]
    made = socket.socket(family, type, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, seconds in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
    return made


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length: the reader's own `readline` is limited to some hundred KiB."""
    pending = b""
    async for chunk in stream.iter_any():
        *whole, pending = (pending + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line
