"""aiohttp, imported without the certificates of the system and without the C++ library, and what
each request needs: a TLS context, a proxy.

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
from collections.abc import Iterator
from urllib.parse import urlsplit

__all__ = ["aiohttp", "proxy", "system_trust"]


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
