"""An API server with a fixed set of objects, for commands that list."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

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


def selected(
    objects: Objects, path: str, query: Mapping[str, str]
) -> Sequence[Mapping[str, Any]] | None:
    """The objects of a list, None for an unknown kind; of a selector only `key=value`."""
    before, found, rest = path.partition("/namespaces/")
    namespace, _, plural = rest.partition("/")
    if path in objects:
        found = namespace = ""
    every = objects.get(f"{before}/{plural}" if found else path)
    labels = [part.partition("=") for part in query.get("labelSelector", "").split(",") if part]
    if every is None or not (found or labels):
        return every
    return [
        body
        for body in every
        if namespace in ("", body["metadata"].get("namespace"))
        and all(body["metadata"].get("labels", {}).get(key) == value for key, _, value in labels)
    ]


@contextmanager
def serving(objects: Objects, *denied: str) -> Iterator[str]:
    """The URL of a server whose list of each path has these objects, also that of a namespace; a
    watch, and a list of a `denied` path, is refused.
    """

    def answer(request: BaseHTTPRequestHandler, _: bytes) -> Reply:
        where = urlsplit(request.path)
        found = selected(objects, where.path, dict(parse_qsl(where.query)))
        known = found is not None and "watch=" not in where.query
        code, reason = (403, "Forbidden") if where.path in denied else (404, "NotFound")
        status = listing(found or ()) if known else absent(code, reason)
        body = json.dumps(status).encode()
        return Reply(body, 200 if known else code, {"Content-Type": "application/json"})

    with http_server(answer) as url:
        yield url
