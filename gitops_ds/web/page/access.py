"""Access to the page: open on loopback, with the token, or for the user that a trusted proxy names.

The page changes nothing, so there is nothing to forge. What is not a GET (sign in, sign out) must
come from the page itself.
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

from gitops_ds.errors import UsageError

COOKIE = "gitops-ds-page"
STAYS = 12 * 3600  # seconds that a sign-in lasts
_SHORTEST = 16  # characters of a token: fewer can be guessed
# wrong tokens of one address, in so many seconds; a person mistypes, a program guesses
_TRIES, _WHILE = 10, 60.0
_PEERS = 1000  # addresses whose wrong tokens are remembered
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AccessKind(StrEnum):
    """The setting `listen.page.access`."""

    OPEN = "open"
    TOKEN = "token"  # noqa: S105  a word of the settings
    PROXY = "proxy"


class AccessVerdict(StrEnum):
    """What becomes of a request."""

    COME_IN = "come in"
    SIGN_IN = "sign in"
    KEEP_OUT = "keep out"


@dataclass(slots=True)
class PageToken:
    """The token of a file, which is read again when it changed. Raises UsageError for one that is
    missing or too short.
    """

    file: Path
    _seen: tuple[int, int, int] = (0, 0, 0)
    _value: bytes = b""

    def value(self) -> bytes:
        """What the file holds now, without white space around it."""
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


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What of a request decides; `headers` by their names in any case."""

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

    def judge(self, asked: PageRequest) -> tuple[AccessVerdict, str]:
        """Whether it may come in; else why not."""
        if asked.method not in ("GET", "HEAD") and not _from_itself(asked):
            return AccessVerdict.KEEP_OUT, "this did not come from the page itself"
        match self.kind:
            case AccessKind.OPEN:
                if not _is_address(asked.host):
                    # A name that an attacker owns may point here, and his page would then read this
                    # one.
                    return (
                        AccessVerdict.KEEP_OUT,
                        (
                            "open access answers to localhost and to addresses, not to the name "
                            f"{asked.host[:80]}"
                        ),
                    )
                return AccessVerdict.COME_IN, ""
            case AccessKind.PROXY:
                if not _within(asked.peer, self.trusted):
                    return (
                        AccessVerdict.KEEP_OUT,
                        f"{asked.peer} is no trusted proxy (listen.page.trustedProxies)",
                    )
                if not asked.headers.get(self.user_header, "").strip():
                    return AccessVerdict.KEEP_OUT, f"the proxy named nobody ({self.user_header})"
                return AccessVerdict.COME_IN, ""
            case AccessKind.TOKEN:
                return self._by_token(asked)

    def _by_token(self, asked: PageRequest) -> tuple[AccessVerdict, str]:
        if self.token is None:
            return AccessVerdict.KEEP_OUT, "no token is known"
        scheme, _, told = asked.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return (
                (AccessVerdict.COME_IN, "")
                if self.knows(told.strip(), asked.peer)
                else (AccessVerdict.KEEP_OUT, "wrong token, or too many wrong ones")
            )
        if asked.cookie and self._signed(asked.cookie):
            return AccessVerdict.COME_IN, ""
        return AccessVerdict.SIGN_IN, "sign in"

    def knows(self, told: str, peer: str = "") -> bool:
        """Whether it is the token. After some wrong ones of an address within a minute none of that
        address is looked at.
        """
        if self.token is None or self.busy(peer):
            return False
        if hmac.compare_digest(
            hashlib.sha256(_bytes(told)).digest(), hashlib.sha256(self.token.value()).digest()
        ):
            return True
        self._wrong.setdefault(peer, []).append(self.clock())
        self._wrong.move_to_end(peer)
        while len(self._wrong) > _PEERS:
            self._wrong.popitem(last=False)
        return False

    def busy(self, peer: str = "") -> bool:
        """Whether too many wrong tokens came from this address lately."""
        now = self.clock()
        lately = [at for at in self._wrong.get(peer, ()) if now - at < _WHILE]
        if lately:
            self._wrong[peer] = lately
        else:
            self._wrong.pop(peer, None)
        return len(lately) >= _TRIES

    def cookie(self) -> str:
        """A sign-in that lasts a while. It holds no secret, any replica with the same token takes
        it, and a new token ends it.
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


def _bytes(told: str) -> bytes:
    """A header's value as it came: aiohttp keeps bytes that are no UTF-8 as surrogates."""
    return told.encode("utf-8", "surrogateescape")


def networks(told: tuple[str, ...]) -> tuple[Network, ...]:
    """The networks of CIDRs or single addresses. Raises UsageError."""
    try:
        return tuple(ipaddress.ip_network(one, strict=False) for one in told)
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


def _from_itself(asked: PageRequest) -> bool:
    """By the Origin that a browser puts on every POST; a page elsewhere can't change it."""
    return urlsplit(asked.headers.get("Origin", "")).netloc == asked.host != ""
