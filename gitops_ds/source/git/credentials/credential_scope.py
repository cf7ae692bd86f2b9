"""The scope of credentials: one scheme, host and port, and the repositories below a path. Pure.

Ambiguous values do not match: unused credentials result in a message, misused ones in a leak.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib import parse as urls

import msgspec

from gitops_ds.core import errors
from gitops_ds.source.git import address
from gitops_ds.source.git.address import Address, Scheme

_PORTS = {"https": 443, "ssh": 22}
# A path that a server may interpret differently: `..`, `%2e`, `//`, a backslash.
_ODD = re.compile(r"%|\\|//|(?:^|/)\.{1,2}(?:/|$)")


class CredentialScope(msgspec.Struct, frozen=True):
    """A URL prefix at a Git server; `path` as its parts, None for an ambiguous path."""

    scheme: str
    host: str
    port: int
    path: tuple[str, ...] | None = ()


def place(where: Address) -> CredentialScope | None:
    """The scope of a repository; None for a local one."""
    if where.scheme is Scheme.FILE:
        return None
    at = urls.urlsplit(where.origin)
    path = urls.urlsplit(where.url).path if "://" in where.url else where.url.partition(":")[2]
    return CredentialScope(
        at.scheme, (at.hostname or "").lower(), at.port or _PORTS[at.scheme], _parts(path)
    )


def _parts(path: str) -> tuple[str, ...] | None:
    plain = path.removeprefix("/").removesuffix("/")
    if _ODD.search(plain):
        return None
    return tuple(plain.split("/")) if plain else ()


def parse(text: str) -> CredentialScope:
    """The scope of a setting `match`: https://HOST or ssh://HOST, optionally with :PORT and /PATH.
    Raises UsageError.
    """
    advice = (
        f"repository.credentials.match {address.scrub(text)!r} must be https://HOST/PATH or "
        "ssh://HOST/PATH"
    )
    try:
        url = urls.urlsplit(text)
        port = url.port
    except ValueError:
        raise errors.UsageError(advice) from None
    if url.username is not None or url.password is not None:
        raise errors.UsageError(f"{advice}, without a user or a password")
    if (
        url.scheme not in _PORTS
        or not url.hostname
        or url.query
        or url.fragment
        or re.search(r"[*\s]", text)
    ):
        raise errors.UsageError(f"{advice}; it must not contain *")
    parts = _parts(url.path)
    if parts is None:
        raise errors.UsageError(f"{advice}, with a plain path: no .., no // and no %")
    return CredentialScope(url.scheme, url.hostname.lower(), port or _PORTS[url.scheme], parts)


def covers(scope: CredentialScope, where: CredentialScope) -> bool:
    """Whether credentials for one scope may be used for the other: the same origin, and at or below
    the path, by whole parts.
    """
    if (scope.scheme, scope.host, scope.port) != (where.scheme, where.host, where.port):
        return False
    return not scope.path or (
        where.path is not None and where.path[: len(scope.path)] == scope.path
    )


def nearest(scopes: Sequence[CredentialScope], where: Address) -> int | None:
    """The index of the scope for a repository: the longest path that covers it, the first of
    equals.
    """
    at = place(where)
    fitting = [number for number, one in enumerate(scopes) if at is not None and covers(one, at)]
    return max(fitting, key=lambda number: (len(scopes[number].path or ()), -number), default=None)
