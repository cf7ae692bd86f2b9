"""HTTP requests for measured gates: bounded in size and time, without redirects, cookies and
compression.

An address can be a secret, so messages contain none.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec
import yarl

from gitops_ds import __version__
from gitops_ds.http_library import aiohttp, proxy, system_trust

MOST_BYTES = 1 << 20  # of a response
_LONGEST_URL = 2000  # characters; a longer query is sent in the body


class NoData(Exception):
    """A request without a usable response."""


class GateCall(msgspec.Struct, frozen=True):
    """One request: a form (sent as the query of a GET if it is short), or a JSON body. `seconds` is
    the time for all of it.
    """

    url: str
    seconds: float
    form: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    trust: ssl.SSLContext | None = None


async def send(call: GateCall) -> tuple[int, bytes]:
    """The status of the response and its body. Raises NoData."""
    headers = {
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": f"gitops-ds/{__version__}",
        **call.headers,
    }
    method, url, data = "POST", yarl.URL(call.url, encoded=True), call.body
    if call.form:
        words = urlencode(call.form)
        if len(words) < _LONGEST_URL:
            method, url, data = "GET", yarl.URL(f"{call.url}?{words}", encoded=True), b""
        else:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            data = words.encode()
    timeout = aiohttp.ClientTimeout(total=call.seconds)
    try:
        async with (
            aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), timeout=timeout, auto_decompress=False
            ) as session,
            session.request(
                method,
                url,
                data=data or None,
                headers=headers,
                allow_redirects=False,
                proxy=proxy(call.url),
                ssl=call.trust or system_trust(),
            ) as reply,
        ):
            if 300 <= reply.status < 400:
                raise NoData(f"HTTP {reply.status}: redirects are not followed")
            return reply.status, await _bounded(reply)
    except TimeoutError:
        raise NoData("no response in time") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise NoData(f"unreachable ({_cause(error)})") from None


async def _bounded(reply: aiohttp.ClientResponse) -> bytes:
    """The body. Raises NoData for one above the limit."""
    body = bytearray()
    async for piece in reply.content.iter_any():
        body += piece
        if len(body) > MOST_BYTES:
            raise NoData(f"the response is larger than {MOST_BYTES >> 20} MiB")
    return bytes(body)


def _cause(error: Exception) -> str:
    """The cause without the address, which the error's text contains."""
    if isinstance(error, aiohttp.ClientSSLError):
        return "its certificate is not trusted, or TLS fails"
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    text = inner.strerror if isinstance(inner, OSError) else ""
    return text or type(error).__name__
