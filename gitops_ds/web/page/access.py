"""Access to the page: open on loopback, with a token, or for the user from a trusted proxy.

The page is read-only, so that request forgery has no effect. Other requests than GET (sign in, sign
out) must come from the page itself.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from gitops_ds.errors import UsageError

COOKIE = "gitops-ds-page"
STAYS = 12 * 3600  # seconds that a sign-in lasts
_SHORTEST = 16  # characters of a token: a shorter one can be guessed
# wrong tokens of one address, and the period in seconds: a person mistypes, a program guesses
_TRIES, _WHILE = 10, 60.0
_PEERS = 1000  # addresses whose wrong tokens are remembered
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
    _wrong: OrderedDict[str, list[float]] = field(default_factory=OrderedDict)

    def check(self, request: PageRequest) -> tuple[AccessVerdict, str]:
        """Whether the request is allowed, and the reason if it is not."""
        if request.method not in ("GET", "HEAD") and not _is_same_origin(request):
            return AccessVerdict.DENY, "the request is not from the page itself"
        match self.kind:
            case AccessKind.OPEN:
                if not _is_address(request.host):
                    # DNS rebinding: the name of an attacker may resolve to this address, so that
                    # the attacker's page could read this one.
                    return (
                        AccessVerdict.DENY,
                        (
                            "open access requires localhost or an IP address, not the name "
                            f"{request.host[:80]}"
                        ),
                    )
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
                if self.accepts(token.strip(), request.peer)
                else (AccessVerdict.DENY, "wrong token, or too many wrong ones")
            )
        if request.cookie and self._signed(request.cookie):
            return AccessVerdict.ALLOW, ""
        return AccessVerdict.SIGN_IN, "sign in"

    def accepts(self, token: str, peer: str = "") -> bool:
        """Whether it is the token. After some wrong ones from an address, all tokens from it are
        rejected for a minute.
        """
        if self.token is None or self.busy(peer):
            return False
        if hmac.compare_digest(
            hashlib.sha256(_bytes(token)).digest(), hashlib.sha256(self.token.value()).digest()
        ):
            return True
        self._wrong.setdefault(peer, []).append(self.clock())
        self._wrong.move_to_end(peer)
        while len(self._wrong) > _PEERS:
            self._wrong.popitem(last=False)
        return False

    def busy(self, peer: str = "") -> bool:
        """Whether this address has sent too many wrong tokens recently."""
        now = self.clock()
        recent = [at for at in self._wrong.get(peer, ()) if now - at < _WHILE]
        if recent:
            self._wrong[peer] = recent
        else:
            self._wrong.pop(peer, None)
        return len(recent) >= _TRIES

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
        return tuple(ipaddress.ip_network(one, strict=False) for one in addresses)
    except ValueError as error:
        raise UsageError(f"listen.page.trustedProxies: {error}") from None


def _within(peer: str, trusted: tuple[Network, ...]) -> bool:
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in trusted)


def _is_address(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_same_origin(request: PageRequest) -> bool:
    """Whether the Origin, which browsers set on every POST, is that of the page."""
    return urlsplit(request.headers.get("Origin", "")).netloc == request.host != ""
