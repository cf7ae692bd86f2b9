"""What a support dump does not tell: a veil over everything that may be a secret. Pure, and rather too much than too little.

First every part is learned from, then every part is told: a value that one place gives away as secret (the variable DB_PASSWORD) is
hidden wherever it comes again (an event's message, a line of the log).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from gitops_ds.kinds.secret_shapes import HIDDEN
from gitops_ds.report import secrets

_LOUD = re.compile(
    r"pass$|passw|passphrase|pwd|secret|token|credential|cookie|bearer|authorization|webhook|hmac|(^|[_.-])(auth|dsn|sig|signature|salt)$"
    r"|connection[_-]?string|(api|private|access|account|shared|signing|encryption|master)[_-]?key",
    re.IGNORECASE,
)
# Names that speak of a secret, and hold none.
_SPEAKS_OF = re.compile(
    r"(file|files|path|paths|dir|directory|name|names|namespace|ref|refs|mount|mounts|enabled|mode|optional|version|kind|type|count"
    r"|total|seconds|ttl|expiration\w*|secrets)$",
    re.IGNORECASE,
)
_KNOWN_MOST = 5_000
_SHORTEST, _LONG = 4, 8  # characters
_ORDINARY = frozenset({"true", "false", "null", "none", "admin", "root", "default", "daemonset", "opaque"})
_NAME = r"[A-Za-z0-9_.-]+"
# `user@` alone may be a token; git@ is how everybody logs in to a forge.
_LOGIN = re.compile(r"(?<=://)(?!git@)[^\s/@\"'\\?#]+(?=@)")
_BEARER = re.compile(r"\b(Bearer|Basic|Negotiate|Digest)(\s+)[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)
_SENDER = re.compile(
    r"(?<=://)(hooks\.[^\s/\"'\\]+|[^\s/\"'\\]+/(?:api/webhooks|services|webhookb2?))/[^\s\"'\\]+"
)  # chat rooms: whoever has the address may write
_ASSIGNED = re.compile(rf"(?P<name>{_NAME})(?P<is>\s*=\s*)(?P<value>\"[^\"]*\"|'[^']*'|[^\s&;,\"'\\]+)")
_QUOTED = re.compile(rf"(?P<open>\\*[\"'])(?P<name>{_NAME})(?P<is>\\*[\"']\s*:\s*\\*[\"'])(?P<value>[^\"'\\]+)")
_LINE = re.compile(rf"(?P<open>^|\\n|[{{,])(?P<indent>[ \t-]*)(?P<name>{_NAME})(?P<is>:[ \t]+)(?P<value>[^\n\\,}}]+)", re.MULTILINE)
_FLAG = re.compile(rf"(?P<name>--?{_NAME})(?P<is>\s+)(?P<value>[^\s\"'\\-][^\s\"'\\]*)")
_AFTER_A_NAME = (("=", (_ASSIGNED,)), (":", (_QUOTED, _LINE)), ("-", (_FLAG,)))
_NOTHING = frozenset({"true", "false", "null", "{}", "[]"})
_BITS: Final = 3.2  # for a character: a random hexadecimal word has some more, where the usual words of settings have less
_RANDOM = re.compile(r"[A-Za-z0-9+/_=.~-]{16,}")

Take = Callable[[str], None]


@lru_cache(4_096)
def telling(name: str) -> bool:
    """Whether a value of that name is taken for a secret."""
    return bool(_LOUD.search(name)) and not _SPEAKS_OF.search(name)


class Veil:
    """Hides what is secret by its place, its name, its form, or because `learn` saw it in such a place."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}  # each with how JSON writes it

    def learn(self, part: Any) -> None:
        """Remembers the secrets of a document or a text."""
        _hidden(part, self._take)

    def document(self, document: Any) -> Any:
        """The same document with all that may be secret hidden, wherever it stands."""
        veiled = _hidden(document, self._take)
        present = self._in(orjson.dumps(veiled, option=orjson.OPT_NON_STR_KEYS).decode())
        return _without(veiled, present) if present else veiled

    def text(self, text: str) -> str:
        """The same for a text."""
        veiled = _of_text(text, self._take)
        present = self._in(veiled)
        return _redacted(veiled, present) if present else veiled

    def _in(self, written: str) -> list[str]:
        """The known secrets that come in what is written down, the longest first: of many, most texts hold none."""
        found = [one for one, escaped in self._known.items() if one in written or (escaped is not one and escaped in written)]
        return sorted(found, key=lambda one: (-len(one), one))

    def _take(self, value: str) -> None:
        lines = [line.strip() for line in value.splitlines()]
        several = [line for line in lines if len(line) >= _LONG] if len(lines) > 1 else []
        for one in (value.strip(), *several):
            if len(self._known) < _KNOWN_MOST and _worth_it(one):
                escaped = orjson.dumps(one)[1:-1].decode()
                self._known[one] = one if escaped == one else escaped


def _worth_it(value: str) -> bool:
    """Whether to look for the value elsewhere: a short or usual word would hide what it does not mean."""
    usual = value.lower() in _ORDINARY or HIDDEN in value or (value.isdigit() and len(value) < _LONG)
    return len(value) >= _SHORTEST and not usual


def _without(part: Any, known: list[str]) -> Any:
    match part:
        case Mapping():
            return {_redacted(str(key), known): _without(value, known) for key, value in part.items()}
        case list():
            return [_without(value, known) for value in part]
        case str():
            return _redacted(part, known)
        case bool() | None:
            return part
        case _:
            return HIDDEN if str(part) in known else part


def _redacted(text: str, known: list[str]) -> str:
    for one in known:
        if one in text:
            # Of a short value whole words alone; in a line that was written into another, \\n comes before a word.
            pattern = re.escape(one) if len(one) >= _LONG else rf"(?:(?<!\w)|(?<=\\n)){re.escape(one)}(?!\w)"
            text = re.sub(pattern, HIDDEN, text)
    return text


def origin(url: str) -> str:
    """Of an address that is itself a secret, as those of chat rooms are, the host alone."""
    scheme, separator, rest = url.partition("://")
    host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    return f"{scheme}://{host}/{HIDDEN}" if separator else HIDDEN


def _hidden(part: Any, take: Take) -> Any:
    match part:
        case Mapping():
            return _of_mapping(part, take)
        case list() | tuple():
            return _of_list(list(part), take)
        case str():
            return _of_text(part, take)
        case _:
            return part


def _of_mapping(part: Mapping[str, Any], take: Take) -> dict[str, Any]:
    found: dict[str, Any] = {}
    whole = part.get("kind") == "Secret"
    for key, value in part.items():
        if whole and key in ("data", "stringData") and isinstance(value, Mapping):
            found[key] = {name: _taken(held, take) for name, held in value.items()}
        elif key == "terminated" and isinstance(value, Mapping) and value.get("message"):
            # The container's own last words: whatever its program prints when it fails.
            found[key] = {**_of_mapping(value, take), "message": HIDDEN}
        elif _is_scalar(value) and (telling(key) or (key == "value" and _is_secret_variable(part.get("name"), value))):
            found[key] = _taken(value, take)
        else:
            found[key] = _hidden(value, take)
    return found


def _is_secret_variable(name: Any, value: Any) -> bool:
    return isinstance(name, str) and (telling(name) or _looks_random(value))


def _of_list(part: list[Any], take: Take) -> list[Any]:
    """In a command line the word after `--token` is the token."""
    found = []
    before: Any = ""
    for value in part:
        flagged = isinstance(before, str) and before.startswith("-") and "=" not in before and telling(before)
        follows = flagged and isinstance(value, str) and not value.startswith("-")
        found.append(_taken(value, take) if follows else _hidden(value, take))
        before = value
    return found


def _of_text(text: str, take: Take) -> str:
    """Without credentials in URLs, keys and tokens by their form, and values that stand after a telling name."""

    def named(found: re.Match[str]) -> str:
        value = found["value"].strip("\"' ")
        if not telling(found["name"]) or not value or HIDDEN in value or value in _NOTHING or _is_reference(value):
            return found.group()
        take(value)
        return found.group()[: found.start("value") - found.start()] + HIDDEN

    def login(found: re.Match[str]) -> str:
        take(found.group().rpartition(":")[2])
        return HIDDEN

    if "://" in text:
        text = _SENDER.sub(lambda found: f"{found[1]}/{HIDDEN}", _LOGIN.sub(login, text))
    text = secrets.shapes_hidden(text)
    if " " in text:
        text = _BEARER.sub(lambda found: f"{found[1]}{found[2]}{HIDDEN}", text)
    for sign, patterns in _AFTER_A_NAME:
        for pattern in patterns if sign in text else ():
            text = pattern.sub(named, text)
    return text


def _taken(value: Any, take: Take) -> Any:
    if value is None or value == "" or _is_reference(str(value)):
        return value
    take(str(value))
    return HIDDEN


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _is_reference(value: str) -> bool:
    return bool(re.fullmatch(r"\$\(\w+\)|\$\{\w+\}|\$\w+", value))


def _looks_random(value: Any) -> bool:
    """Whether nobody would have chosen such a word: long, letters and digits mixed, hardly a letter twice."""
    if not isinstance(value, str) or not _RANDOM.fullmatch(value):
        return False
    if not (any(map(str.isdigit, value)) and any(map(str.isalpha, value))):
        return False
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares) >= _BITS
