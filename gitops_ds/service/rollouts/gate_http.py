"""HTTP requests for measured gates. An address can be a secret, so messages contain none."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec
import yarl

from gitops_ds import http_library
from gitops_ds.http_library import HttpRequest, NoResponse

MOST_BYTES = 1 << 20  # of a response
_LONGEST_URL = 2000  # characters; a longer query is sent in the body


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
    """The status of the response and its body. Raises NoResponse."""
    headers = {"Accept": "application/json", **call.headers}
    method, url, body = "POST", call.url, call.body
    if call.form:
        words = urlencode(call.form)
        if len(words) < _LONGEST_URL:
            method, url = "GET", f"{call.url}?{words}"
        else:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            body = words.encode()
    request = HttpRequest(
        method,
        yarl.URL(url, encoded=True),
        call.seconds,
        headers,
        body,
        call.trust,
        most_bytes=MOST_BYTES,
    )
    response = await http_library.send(request)
    if 300 <= response.status < 400:
        raise NoResponse(f"HTTP {response.status}: redirects are not followed")
    return response.status, response.body
