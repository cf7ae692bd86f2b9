"""aiohttp, imported without the certificates of the system, and what each request needs: a TLS
context, a proxy.

At its import aiohttp builds two TLS contexts for requests without one of their own, and loads all
certificates of the system into each: 40 ms and 5 MiB of each process that connects to a cluster
(`_SSL_CONTEXT_VERIFIED` in aiohttp/connector.py). Here these two stay empty, and each request has
a context of its own; the certificate of no server passes a request that forgets it.
"""

from __future__ import annotations

import contextlib
import functools
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


with _without_certificates():
    import aiohttp
