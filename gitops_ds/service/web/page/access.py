"""Access to the page: open on loopback, with a token, or for the user from a trusted proxy.

The page is read-only, so that request forgery has no effect. Other requests than GET (sign in, sign
out) must come from the page itself.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from gitops_ds.core.errors import UsageError

COOKIE = "gitops-ds-page"
STAYS = 12 * 3600  # seconds that a sign-in lasts
# Characters of a token. Wrong ones have no limit, which would lock out the other users of a proxy:
# at a thousand guesses a second, 16 random characters last for millions of years.
_SHORTEST = 16
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AccessKind(StrEnum):
    """The setting `listen.page.access`."""

    OPEN = "open"
    TOKEN = "token"  # noqa: S105  a word of the settings
    PROXY = "proxy"


class AccessVerdict(StrEnum):
    """The decision about a request."""

    ALLOW = "allow"
    SIGN_IN = "sign in"
    DENY = "deny"


@dataclass(slots=True)
class PageToken:
    """The token in a file, which is read again after a change. Raises UsageError for one that is
    missing or too short.
    """

    file: Path
    _seen: tuple[int, int, int] = (0, 0, 0)
    _value: bytes = b""

    def value(self) -> bytes:
        """The present content of the file, without surrounding white space."""
        try:
            status = self.file.stat()
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
            if seen != self._seen:
                self._value, self._seen = self.file.read_bytes().strip(), seen
        except OSError as error:
            raise UsageError(f"listen.page.tokenFile {self.file}: {error.strerror}") from None
        if len(self._value) < _SHORTEST:
            raise UsageError(
                f"listen.page.tokenFile {self.file}: a token of at least {_SHORTEST} characters "
                "is expected"
            )
        return self._value


class PageRequest(msgspec.Struct, frozen=True):
    """The parts of a request for the decision; the names of `headers` are case-insensitive."""

    peer: str
    method: str
    host: str
    headers: Mapping[str, str]
    cookie: str = ""


@dataclass(slots=True)
class PageGuard:
    """Decides about requests. `token` is None unless the kind is TOKEN."""

    kind: AccessKind = AccessKind.OPEN
    token: PageToken | None = None
    user_header: str = "X-Forwarded-User"
    trusted: tuple[Network, ...] = ()
    clock: Callable[[], float] = time.time

    def check(self, request: PageRequest) -> tuple[AccessVerdict, str]:
        """Whether the request is allowed, and the reason if it is not."""
        if request.method not in ("GET", "HEAD") and not _is_same_origin(request):
            return AccessVerdict.DENY, "the request is not from the page itself"
        match self.kind:
            case AccessKind.OPEN:
                return AccessVerdict.ALLOW, ""
            case AccessKind.PROXY:
                if not _within(request.peer, self.trusted):
                    return (
                        AccessVerdict.DENY,
                        f"{request.peer} is not a trusted proxy (listen.page.trustedProxies)",
                    )
                if not request.headers.get(self.user_header, "").strip():
                    return AccessVerdict.DENY, f"the proxy sent no user ({self.user_header})"
                return AccessVerdict.ALLOW, ""
            case AccessKind.TOKEN:
                return self._by_token(request)

    def _by_token(self, request: PageRequest) -> tuple[AccessVerdict, str]:
        if self.token is None:
            return AccessVerdict.DENY, "no token is configured"
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return (
                (AccessVerdict.ALLOW, "")
                if self.accepts(token.strip())
                else (AccessVerdict.DENY, "wrong token")
            )
        if request.cookie and self._signed(request.cookie):
            return AccessVerdict.ALLOW, ""
        return AccessVerdict.SIGN_IN, "sign in"

    def accepts(self, token: str) -> bool:
        """Whether it is the token. Raises UsageError without a usable file."""
        return self.token is not None and hmac.compare_digest(
            hashlib.sha256(_bytes(token)).digest(), hashlib.sha256(self.token.value()).digest()
        )

    def cookie(self) -> str:
        """A session cookie with an expiry. It contains no secret, is valid for every replica with
        the same token, and a new token invalidates it.
        """
        until = str(int(self.clock()) + STAYS)
        return f"{until}.{self._mac(until)}"

    def _signed(self, cookie: str) -> bool:
        until, _, mac = cookie.partition(".")
        right = hmac.compare_digest(_bytes(mac), self._mac(until).encode())
        return right and until.isascii() and until.isdigit() and int(until) > self.clock()

    def _mac(self, until: str) -> str:
        key = self.token.value() if self.token else b""
        return hmac.new(key, _bytes(f"gitops-ds page until {until}"), hashlib.sha256).hexdigest()


def _bytes(value: str) -> bytes:
    """The raw value of a header: aiohttp keeps bytes that are not UTF-8 as surrogates."""
    return value.encode("utf-8", "surrogateescape")


def networks(addresses: tuple[str, ...]) -> tuple[Network, ...]:
    """The networks of CIDRs or single addresses. Raises UsageError."""
    try:
        return tuple(ipaddress.ip_network(address, strict=False) for address in addresses)
    except ValueError as error:
        raise UsageError(f"listen.page.trustedProxies: {error}") from None


def _within(peer: str, trusted: tuple[Network, ...]) -> bool:
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in trusted)


def _is_same_origin(request: PageRequest) -> bool:
    """Whether the Origin, which browsers set on every POST, is that of the page."""
    return urlsplit(request.headers.get("Origin", "")).netloc == request.host != ""
