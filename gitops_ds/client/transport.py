"""The connections to one API server: pools, credentials, repeated requests, errors.

A request is repeated after 429 and 503 where the server sends Retry-After, and once with new
credentials after 401. Nothing else is retried here: the loops decide that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import time
import urllib.parse
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from gitops_ds import errors
from gitops_ds.client import status_errors
from gitops_ds.client.config import ClientConfig
from gitops_ds.client.http_connection import Endpoint, HttpError
from gitops_ds.client.http_pool import HttpPool, HttpRequest, Limits, Reply
from gitops_ds.client.reconnect_throttle import ReconnectThrottle
from gitops_ds.client.request_counter import RequestCounter

REQUEST_SECONDS = 30.0
CLOSING_SECONDS = 1.0  # for the last bytes of TLS
CONNECTIONS = 64  # for requests; more only wait inside the API server
# A 429 or 503 with Retry-After is waited out so often, as client-go does (rest/request.go,
# maxRetries), and for so many seconds at most: API Priority and Fairness names up to 32 s
# (apiserver util/flowcontrol/dropped_requests_tracker.go).
PATIENCE, LONGEST_WAIT_SECONDS = 10, 120.0
_LIMITS = Limits(total=REQUEST_SECONDS)
_NO_BACKEND = (502, 503, 504)  # the answers of a load balancer without a reachable API server


@dataclass(frozen=True, slots=True)
class Request:
    """One request: a body is sent as JSON, `limits` bound it."""

    method: str
    path: str
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = _LIMITS
    is_watch: bool = False


class Transport:
    """The two pools of connections: at most `CONNECTIONS` for requests, any number for watches.

    HTTP/1.1 gives each request a connection of its own and a watch keeps its for minutes; in one
    bounded pool, watches would leave none for requests. client-go has no such limit because it
    sends all of them as streams of one HTTP/2 connection.
    """

    def __init__(
        self,
        access: ClientConfig,
        user_agent: str,
        guard: Callable[[], None],
        tally: RequestCounter,
    ) -> None:
        """Opens nothing yet. `guard` is called right before a write is sent, and may raise; `tally`
        counts the requests.
        """
        self.tally = tally
        self._access = access
        self._user_agent = user_agent
        self._guard = guard
        self._pool: HttpPool | None = None
        self._watch_pool: HttpPool | None = None
        self._throttle = ReconnectThrottle(time.monotonic)
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def open(self) -> None:
        """Opens the pools."""
        self._pool, self._watch_pool = (
            HttpPool(self._endpoint, limit, self._socket, self._guard) for limit in (CONNECTIONS, 0)
        )

    async def close(self) -> None:
        """Closes every connection."""
        for pool in (self._pool, self._watch_pool):
            if pool is not None:
                pool.close()
        # sockets are closed in later steps of the event loop
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                while any(each.fileno() != -1 for each in self._sockets):  # noqa: ASYNC110  a socket has no event
                    await asyncio.sleep(0.001)

    def _endpoint(self) -> Endpoint:
        access = self._access
        return Endpoint(access.url, access.tls, access.server_name, access.proxy)

    def _socket(self, address: Any) -> socket.socket:
        made = _socket(address)
        self._sockets.add(made)
        return made

    def garbage(self) -> errors.ServerFault:
        """The error for a response that no API server sends."""
        return errors.ServerFault(
            f"{self._access.url} does not answer as an API server does: is the address in "
            f"{self._access.who} right?"
        )

    @contextlib.asynccontextmanager
    async def send(
        self, request: Request, acting: Sequence[tuple[str, str]]
    ) -> AsyncIterator[Reply]:
        """The response to a request with the headers `acting`. Raises ClusterError."""
        refused: str | None = None
        waited = 0.0
        for attempt in range(PATIENCE + 1):
            authorization = await self._access.authorization(refuse=refused)
            async with self._request(request, acting, authorization) as reply:
                if 300 <= reply.status < 400:
                    raise self.garbage()
                if reply.status < 400:
                    yield reply
                    return
                error = status_errors.error_for(
                    reply.status,
                    await reply.read(),
                    reply.header("retry-after"),
                    self._access.who,
                    dict(acting).get("Impersonate-User", ""),
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

    @contextlib.asynccontextmanager
    async def _request(
        self, request: Request, acting: Sequence[tuple[str, str]], authorization: str | None
    ) -> AsyncIterator[Reply]:
        pool = self._watch_pool if request.is_watch else self._pool
        if pool is None:
            raise errors.ClusterError("the connection to the cluster is not open")
        await self._throttle.wait()
        self.tally.sent += 1
        status = ""
        try:
            async with pool.request(self._encoded(request, acting, authorization)) as reply:
                status = str(reply.status)
                self.tally.answered[request.method, status] += 1
                if reply.status in _NO_BACKEND:
                    self._throttle.failed()
                else:
                    self._throttle.answered()
                yield reply
        except (HttpError, TimeoutError, OSError) as error:
            if not status:
                self.tally.answered[request.method, ""] += 1
                self._throttle.failed()
            raise self._unreachable(error) from error

    def _encoded(
        self, request: Request, acting: Sequence[tuple[str, str]], authorization: str | None
    ) -> HttpRequest:
        query = f"?{urllib.parse.urlencode(request.query)}" if request.query else ""
        headers = {
            "User-Agent": self._user_agent,
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            **request.headers,
        }
        if authorization:
            headers["Authorization"] = authorization
        return HttpRequest(
            request.method,
            request.path + query,
            [*headers.items(), *acting],
            None if request.body is None else orjson.dumps(request.body),
            request.limits,
        )

    def _unreachable(self, error: BaseException) -> errors.ClusterUnreachable:
        """The error of a failed connection, with its cause."""
        if isinstance(error, TimeoutError):
            why = "no answer in time"
        elif isinstance(error, ssl.SSLError):  # its errno is OpenSSL's
            why = " ".join(str(error).split())
        elif isinstance(error, OSError) and error.errno and error.errno > 0:
            why = os.strerror(error.errno).lower()
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
