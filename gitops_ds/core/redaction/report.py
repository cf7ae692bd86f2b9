"""Secrets that a report hides, found by name, place or form. Pure.

A finding may quote a value, and its excerpt shows a line of the file. `found_in` reads the rendered
objects, which have the name of an environment variable beside its value. Files that are not valid
YAML are redacted line by line.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final

from gitops_ds.core.finding import Finding
from gitops_ds.core.objects import Body, Key, Path, key_of
from gitops_ds.core.redaction import objects, patterns, texts
from gitops_ds.core.redaction.patterns import HIDDEN, ORDINARY, names_secret

_LONG = 8  # characters
_SHORTEST = 4  # a shorter value is hidden only at its place
# Limits the CPU time for a Secret of many lines: beyond these numbers a value is hidden only at its
# place.
_MOST = 1_000
_MOST_LINES = 50
# A key of a line in block or flow style, with its colon.
_KEY = re.compile(r"""(?:^|(?<=[\s{\[,"'-]))["']?(?P<name>[\w./-]+)["']?\s*:\s+(?=\S)""")
_NAMED = re.compile(r"""["']?\bname["']?\s*:\s*["']?([\w./-]+)""")
# Values that are not secret, or the begin of one on other lines.
_NO_SECRET = re.compile(
    r"""(["']?(true|false|null|~|\d{1,2})["']?\s*([,}\]#]|$)|[&*|>#])""", re.IGNORECASE
)
_VOLUME = re.compile(r"""\{\s*["']?(secretName|name|items|defaultMode|optional)\b""")
_HOLDS_SECRET = re.compile(rb"""^\s*["']?kind["']?\s*:\s*["']?Secret\b""", re.MULTILINE)
_QUOTED = re.compile(r'"[^"]*(?:"|$)|\bthe number [^\s:;,]+')


@dataclass(frozen=True)
class ReportSecrets:
    """Values that are hidden everywhere, and places whose values are hidden, even short ones."""

    values: frozenset[str] = frozenset()
    places: frozenset[tuple[Key, Path]] = frozenset()

    @cached_property
    def _longest_first(self) -> list[str]:
        return sorted(self.values, key=lambda one: (-len(one), one))

    def within(self, text: str) -> str:
        """The text with known and possible secrets hidden."""
        return self._within(text)

    @cached_property
    def _within(self) -> Callable[[str], str]:
        """A cache by text: most findings of a rule have the same message."""
        return lru_cache(1_024)(self._hidden)

    def _hidden(self, text: str) -> str:
        for value in self._longest_first:
            if value in text:
                text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", HIDDEN, text)
        return texts.words(text)

    def at(self, finding: Finding) -> bool:
        """Whether the finding is about a secret value."""
        key, path = finding.object, finding.path
        return key is not None and (
            _in_secret(finding)
            or any(map(patterns.holds_secret, path))
            or (
                bool(self.places)
                and any((key, path[:length]) in self.places for length in range(1, len(path) + 1))
            )
        )

    def in_message(self, finding: Finding) -> str:
        """The message of the finding; a secret value in it is hidden."""
        return self.within(
            _QUOTED.sub(HIDDEN, finding.message) if self.at(finding) else finding.message
        )

    def in_line(self, finding: Finding, line: str) -> str | None:
        """The line of the finding with secrets hidden; None if it must not be shown."""
        return None if self.at(finding) else self.within(_without_value(line))


def line_of(finding: Finding) -> str:
    """`FILE:LINE:COLUMN: RULE message`, without secret values."""
    place = f"{finding.place}: " if finding.place else ""
    return f"{place}{finding.rule} {ReportSecrets().in_message(finding)}"


def quotable(file: bytes) -> bool:
    """Whether lines of the file may be shown. No line of a file with a Secret is, because any key
    in it may be secret.
    """
    return not _HOLDS_SECRET.search(file)


def _in_secret(finding: Finding) -> bool:
    return (
        finding.object is not None
        and finding.object.kind == "Secret"
        and finding.path[:1] in (("data",), ("stringData",))
    )


def _without_value(line: str) -> str:
    """The line up to the first value under the name of a secret, of any type."""
    named = any(map(names_secret, _NAMED.findall(line)))
    for key in _KEY.finditer(line):
        value, name = line[key.end() :], key["name"]
        is_secret = names_secret(name) or (named and name == "value")
        if is_secret and not _NO_SECRET.match(value) and not _VOLUME.match(value):
            return f"{line[: key.end()]}{HIDDEN}"
    return line


def found_in(bodies: Iterable[Body]) -> ReportSecrets:
    """The secrets of rendered objects: the data of Secrets, and values of variables, arguments and
    data with a secret name or form.
    """
    values: set[str] = set()
    places: set[tuple[Key, Path]] = set()
    harmless, ordinary = set[str](), set[str]()
    for body in bodies:
        key = key_of(body)
        for path, value in _data(body):
            places.add((key, path))
            values.update(_lines(str(value)))
            if key.kind == "Secret" and path[0] == "data":
                values.update(_lines(_decoded(str(value))))
        walk = _Walk(key.kind == "Secret", harmless, ordinary)
        walk.mapping(body)
        places.update((key, path) for path in walk.places)
        values.update(line for value in walk.values for line in _lines(value))
    return ReportSecrets(frozenset(sorted(filter(_usable, values))[:_MOST]), frozenset(places))


# The types of most values without a text; the test for an abstract class is slow.
_LEAVES: Final = frozenset((int, bool, float, type(None)))


@dataclass(slots=True)
class _Walk:
    """Collects the secrets of one object: every {name, value} whose name implies a secret (env of
    containers, parameters of custom kinds), and the parts of texts that are hidden in place (an
    argument, a line of a ConfigMap's file), unless `only_variables`. `harmless` are texts without
    a secret, `ordinary` are keys that do not imply one: objects of a repository have most of both
    in common.
    """

    only_variables: bool
    harmless: set[str]
    ordinary: set[str]
    places: list[Path] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    path: list[str | int] = field(default_factory=list)  # of the mapping or list

    def mapping(self, value: Mapping[str, Any]) -> None:
        if "value" in value and isinstance(name := value.get("name"), str) and names_secret(name):
            for secret in objects.scalars(value["value"]):
                self._add("value", secret, everywhere=True)
        harmless, ordinary = self.harmless, self.ordinary
        for key, below in value.items():
            if isinstance(below, str):
                if not (below in harmless and key in ordinary):
                    self._value(str(key), below)
            elif type(below) not in _LEAVES:
                self._below(str(key), below)

    def _value(self, key: str, text: str) -> None:
        if self.only_variables:
            return
        if names_secret(key):
            self._add(key, text)
            return
        self.ordinary.add(key)
        if text not in self.harmless:
            self._text(key, text)

    def _list(self, value: list[Any]) -> None:
        words = [""] * len(value) if self.only_variables else objects.secret_words(value)
        for index, (below, secret) in enumerate(zip(value, words, strict=True)):
            if secret:
                self._add(index, secret)
            elif not isinstance(below, str):
                self._below(index, below)
            elif not self.only_variables and below not in self.harmless:
                self._text(index, below)

    def _below(self, step: str | int, value: Any) -> None:
        if isinstance(value, (dict, list, Mapping)):  # faster than Mapping alone
            self.path.append(step)
            if isinstance(value, list):
                self._list(value)
            else:
                self.mapping(value)
            self.path.pop()

    def _text(self, step: str | int, text: str) -> None:
        before = len(self.places)
        if texts.may_hide(text):
            texts.content(text, lambda secret: self._add(step, secret))
        if len(self.places) == before:
            self.harmless.add(text)

    def _add(self, step: str | int, secret: str, *, everywhere: bool = False) -> None:
        self.places.append((*self.path, step))
        if everywhere or _is_distinctive(secret):
            self.values.append(secret)


def _lines(value: str) -> list[str]:
    return [line.strip() for line in value.splitlines()[:_MOST_LINES]]


def _usable(value: str) -> bool:
    return (
        len(value) >= _SHORTEST
        and value.lower() not in ORDINARY
        and HIDDEN not in value
        and not patterns.is_reference(value)
    )


def _is_distinctive(value: str) -> bool:
    """Whether to hide the value elsewhere too: `auth: basic` must not hide every `basic`."""
    return len(value) >= _LONG or not value.isalpha()


def _data(body: Body) -> Iterator[tuple[Path, Any]]:
    kind = body.get("kind")
    for part in ("data", "stringData") if kind in ("Secret", "ConfigMap") else ():
        held = body.get(part)
        for name, value in held.items() if isinstance(held, Mapping) else ():
            if value is not None and (kind == "Secret" or names_secret(str(name))):
                yield (part, str(name)), value


def _decoded(text: str) -> str:
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
