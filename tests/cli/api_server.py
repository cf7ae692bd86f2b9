"""An API server with a fixed set of objects, for commands that list."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.server_thread import ServerThread

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

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            where = urlsplit(self.path)
            known = where.path in objects and "watch=" not in where.query
            code, reason = (403, "Forbidden") if where.path in denied else (404, "NotFound")
            status = listing(objects[where.path]) if known else absent(code, reason)
            body = json.dumps(status).encode()
            self.send_response(200 if known else code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with ServerThread(server):
        yield f"http://127.0.0.1:{server.server_port}"
