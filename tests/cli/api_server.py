"""An API server with a fixed set of objects, for commands that list."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

from tests.http_servers import Reply, http_server

Objects = Mapping[str, Sequence[Mapping[str, Any]]]


def listing(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "kind": "List",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "7"},
        "items": items,
    }


def absent(code: int = 404, reason: str = "NotFound") -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": reason}


@contextmanager
def serving(objects: Objects, *denied: str) -> Iterator[str]:
    """The URL of a server whose list of each path has these objects; a watch, and a list of a
    `denied` path, is refused.
    """

    def answer(request: BaseHTTPRequestHandler, _: bytes) -> Reply:
        where = urlsplit(request.path)
        known = where.path in objects and "watch=" not in where.query
        code, reason = (403, "Forbidden") if where.path in denied else (404, "NotFound")
        status = listing(objects[where.path]) if known else absent(code, reason)
        body = json.dumps(status).encode()
        return Reply(body, 200 if known else code, {"Content-Type": "application/json"})

    with http_server(answer) as url:
        yield url
