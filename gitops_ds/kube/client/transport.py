"""The connections to one API server: pools, credentials, repeated requests, errors.

A request is repeated after 429 and 503 if the server sends Retry-After, and once with new
credentials after 401. Other retries are up to the callers.
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import contextlib
import os
import socket
import ssl
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
import yarl

from gitops_ds.core import errors
from gitops_ds.core.http_library import aiohttp
from gitops_ds.kube.client import wire
from gitops_ds.kube.client.config import ClientConfig
from gitops_ds.kube.client.server_clock import ServerClock

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter


@dataclass(slots=True)
class RequestCounter:
    """Requests that were sent, and answers by method and status code (empty: no answer). `clock`
    takes the times of the answers.
    """

    sent: int = 0
    clock: ServerClock | None = None
    answered: Counter[tuple[str, str]] = field(default_factory=Counter)


AWAY = 5.0  # seconds without any answer before requests are throttled
SLOWLY = 30.0  # seconds
A_SECOND = 16.0  # requests


class ReconnectThrottle:
    """A limit on the rate of requests after the API server was unreachable. `clock` returns
    monotonic seconds.

    At that moment every client reconnects, and the pending requests would be sent at once. So for
    half a minute the requests are spread over time; before and after that there is no limit.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: float | None = None
        self._slow_until = self._next = 0.0

    def failed(self) -> None:
        """Records a request without an answer."""
        if self._failed is None:
            self._failed = self._clock()

    def answered(self) -> None:
        """Records a response of any status."""
        if self._failed is not None and self._clock() - self._failed >= AWAY:
            self._slow_until = self._clock() + SLOWLY
        self._failed = None

    async def wait(self) -> None:
        """Waits until one more request may be sent."""
        now = self._clock()
        away = self._failed is not None and now - self._failed >= AWAY
        if not away and now >= self._slow_until:
            return
        turn = self._next = max(now, self._next + 1 / A_SECOND)
        await asyncio.sleep(turn - now)


REQUEST_SECONDS = 30.0
CLOSING_SECONDS = 1.0  # seconds for the last bytes of TLS
CONNECTIONS = 64  # for requests; more only wait inside the API server
# The retries after 429 or 503 with Retry-After, as in client-go (rest/request.go, maxRetries), and
# the maximum of seconds: API Priority and Fairness requests up to 32 s (apiserver
# util/flowcontrol/dropped_requests_tracker.go).
PATIENCE, LONGEST_WAIT_SECONDS = 10, 120.0
_NO_BACKEND = (502, 503, 504)  # the responses of a load balancer without a reachable API server


class Request(msgspec.Struct, frozen=True):
    """One request: a body is sent as JSON, `wait` bounds it."""

    method: str
    path: str
    body: Any = None
    query: Mapping[str, str] = msgspec.field(default_factory=dict)
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    wait: aiohttp.ClientTimeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
    is_watch: bool = False


class _GuardedBody(aiohttp.BytesPayload):
    """A body, which every write has and no read. The guard is called when it is passed to the
    connection: the last moment before it is sent.
    """

    def __init__(self, body: Any, guard: Callable[[], None]) -> None:
        super().__init__(orjson.dumps(body))
        self._guard = guard

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        self._guard()
        await super().write_with_length(writer, content_length)


class Transport:
    """The two pools of connections: at most `CONNECTIONS` for requests, any number for watches.

    With HTTP/1.1 each request needs its own connection, and a watch uses one for minutes; in one
    bounded pool, watches would leave no connection for requests. client-go has no such limit
    because it sends all of them as streams of one HTTP/2 connection.
    """

    def __init__(
        self,
        access: ClientConfig,
        user_agent: str,
        guard: Callable[[], None],
        counter: RequestCounter,
    ) -> None:
        """Opens nothing yet. `guard` is called right before a write is sent, and may raise;
        `counter` counts the requests.
        """
        self.counter = counter
        self._access = access
        self._user_agent = user_agent
        self._guard = guard
        self._session: aiohttp.ClientSession | None = None
        self._watch_session: aiohttp.ClientSession | None = None
        self._throttle = ReconnectThrottle(time.monotonic)
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def open(self) -> None:
        """Opens the pools."""
        self._session, self._watch_session = self._open(CONNECTIONS), self._open(0)

    async def close(self) -> None:
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
        """A pool of at most that many connections; 0: unlimited."""
        connector = aiohttp.TCPConnector(
            limit=connections, ssl=self._access.tls or True, socket_factory=self._socket
        )
        headers = {"User-Agent": self._user_agent, "Accept-Encoding": "identity"}
        return aiohttp.ClientSession(  # without cookies, as client-go
            connector=connector, headers=headers, cookie_jar=aiohttp.DummyCookieJar()
        )

    def _socket(self, address: Any) -> socket.socket:
        made = _socket(address)
        self._sockets.add(made)
        return made

    async def whole(self, reply: aiohttp.ClientResponse) -> bytes:
        """The whole body of a response. Raises ClusterUnreachable."""
        try:
            return await reply.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self.unreachable(error) from error

    def garbage(self) -> errors.ServerFault:
        """The error for a response that is not from an API server."""
        return errors.ServerFault(
            f"{self._access.url} does not answer as an API server does: is the address in "
            f"{self._access.who} right?"
        )

    async def send(
        self, request: Request, acting: Sequence[tuple[str, str]]
    ) -> aiohttp.ClientResponse:
        """The response to a request with the headers `acting`, to be used as a context manager.
        Raises ClusterError.
        """
        refused: str | None = None
        waited = 0.0
        for attempt in range(PATIENCE + 1):
            authorization = await self._access.authorization(refuse=refused)
            reply = await self._request(request, acting, authorization)
            if reply.status < 300:
                return reply
            async with reply:
                if reply.status < 400:
                    raise self.garbage()
                error = wire.error_for(
                    reply.status,
                    await self.whole(reply),
                    reply.headers.get("Retry-After"),
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
        raise AssertionError

    async def _request(
        self,
        request: Request,
        acting: Sequence[tuple[str, str]],
        authorization: str | None,
    ) -> aiohttp.ClientResponse:
        session = self._watch_session if request.is_watch else self._session
        if session is None:
            raise errors.ClusterError("the connection to the cluster is not open")
        await self._throttle.wait()
        self.counter.sent += 1
        clock = self.counter.clock
        sent = clock.sent() if clock else 0.0
        headers = [*{"Content-Type": "application/json", **request.headers}.items(), *acting]
        if authorization:
            headers.append(("Authorization", authorization))
        try:
            reply = await session.request(
                request.method,
                yarl.URL(self._access.url + request.path, encoded=True),
                data=None if request.body is None else _GuardedBody(request.body, self._guard),
                params=request.query,
                headers=headers,
                proxy=self._access.proxy,
                server_hostname=self._access.server_name,
                timeout=request.wait,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if isinstance(error.__cause__, errors.ClusterError):  # of the guard
                raise error.__cause__ from None
            self.counter.answered[request.method, ""] += 1
            self._throttle.failed()
            raise self.unreachable(error) from error
        self.counter.answered[request.method, str(reply.status)] += 1
        if reply.status in _NO_BACKEND:
            self._throttle.failed()
        else:
            self._throttle.answered()
            if clock:
                clock.answered(sent, reply.headers.get("Date", ""))
        return reply

    def unreachable(self, error: BaseException) -> errors.ClusterUnreachable:
        """The error of a failed connection, with its cause."""
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
