"""aiohttp, imported without the certificates of the system and without the C++ library, and what
each request needs: a TLS context, a proxy. `send` is one request without a session.

At its import aiohttp builds two TLS contexts for requests without one of their own, and loads all
certificates of the system into each: 40 ms and 5 MiB of each process that connects to a cluster
(`_SSL_CONTEXT_VERIFIED` in aiohttp/connector.py). Here these two stay empty, and each request has
a context of its own; the certificate of no server passes a request that forgets it.

The extension of frozenlist, for aiohttp's few lists of callbacks, is the only one in C++, whose
library takes 1 MiB; aiohttp uses frozenlist's Python version here.
"""

from __future__ import annotations

import contextlib
import functools
import os
import ssl
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from gitops_ds import __version__

if TYPE_CHECKING:
    import yarl

__all__ = [
    "HttpRequest",
    "HttpResponse",
    "NoResponse",
    "aiohttp",
    "proxy",
    "read_body",
    "send",
    "system_trust",
]


@functools.cache
def system_trust() -> ssl.SSLContext:
    """The TLS context that trusts the authorities of the system, for HTTP/1.1.

    They are read once in a process, at the first use.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def proxy(url: str) -> str | None:
    """The proxy from the environment; aiohttp's own look-up would also read a password from
    ~/.netrc.
    """
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return urllib.request.getproxies().get(parts.scheme)


@contextlib.contextmanager
def _without_certificates() -> Iterator[None]:
    """New TLS contexts of this thread do not load the certificates of the system."""
    thread = threading.get_ident()

    def load(context: ssl.SSLContext) -> None:
        if threading.get_ident() != thread:
            super(ssl.SSLContext, context).set_default_verify_paths()

    ssl.SSLContext.set_default_verify_paths = load  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        del ssl.SSLContext.set_default_verify_paths


os.environ["FROZENLIST_NO_EXTENSIONS"] = "1"  # frozenlist/__init__.py reads it at its import
with _without_certificates():
    import aiohttp
del os.environ["FROZENLIST_NO_EXTENSIONS"]


class NoResponse(Exception):
    """A request without a usable response. An address can be a secret, so the message has none."""


class HttpRequest(msgspec.Struct, frozen=True):
    """One request; `seconds` is the time for all of it. `trust` and `proxy` are those of the system
    by default. A response has at most `most_bytes`; with 0 its body is not read.
    """

    method: str
    url: str | yarl.URL
    seconds: float
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    trust: ssl.SSLContext | None = None
    proxy: str = ""
    most_bytes: int = 0


class HttpResponse(msgspec.Struct, frozen=True):
    """The names of the headers are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def send(request: HttpRequest) -> HttpResponse:
    """The response, without redirects, cookies and compression. Raises NoResponse."""
    timeout = aiohttp.ClientTimeout(total=request.seconds)
    cookies = aiohttp.DummyCookieJar()
    try:
        async with (
            aiohttp.ClientSession(
                cookie_jar=cookies, timeout=timeout, auto_decompress=False
            ) as session,
            session.request(
                request.method,
                request.url,
                data=request.body or None,
                headers={
                    "Accept-Encoding": "identity",
                    "User-Agent": f"gitops-ds/{__version__}",
                    **request.headers,
                },
                allow_redirects=False,
                proxy=request.proxy or proxy(str(request.url)),
                ssl=request.trust or system_trust(),
            ) as reply,
        ):
            body = await read_body(reply, request.most_bytes) if request.most_bytes else b""
            return HttpResponse(reply.status, reply.headers, body)
    except TimeoutError:
        raise NoResponse("no response in time") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise NoResponse(f"unreachable ({_cause(error)})") from None


async def read_body(reply: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    """The body of a response: its sender decides how much that is. Raises NoResponse for more than
    `most_bytes`.
    """
    body = bytearray()
    while piece := await reply.content.readany():
        body += piece
        if len(body) > most_bytes:
            raise NoResponse(f"the response is larger than {most_bytes >> 20} MiB")
    return bytes(body)


def _cause(error: Exception) -> str:
    """The cause without the address, which the error's text contains."""
    if isinstance(error, aiohttp.ClientSSLError):
        return "its certificate is not trusted, or TLS fails"
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    text = inner.strerror if isinstance(inner, OSError) else ""
    return text or type(error).__name__
