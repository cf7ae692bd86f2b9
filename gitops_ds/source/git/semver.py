"""Version ranges of tags, as in Flux and npm: `^1.2`, `~1.2`, `>=1 <2`, `1.x`, `1.2.3 || 2.x`.

A pre-release (`2.0.0-rc.1`) matches only a range that contains a pre-release itself.
https://semver.org/spec/v2.0.0.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import total_ordering

import msgspec

from gitops_ds.core import errors

_NUMBER = r"(?:0|[1-9][0-9]{0,9})"
_PRE = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = re.compile(rf"v?({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_PRE}))?(?:\+{_PRE})?")
_PART = rf"(?:{_NUMBER}|[xX*])"
_TERM = re.compile(
    rf"(?P<op>\^|~>?|>=|<=|!=|>|<|=)?\s*v?(?P<major>{_PART})"
    rf"(?:\.(?P<minor>{_PART})(?:\.(?P<patch>{_PART})(?:-(?P<pre>{_PRE}))?(?:\+{_PRE})?)?)?(?=[\s,]|$)[\s,]*"
)


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """major.minor.patch and the identifiers of a pre-release (none for a release). Build metadata
    does not count.
    """

    numbers: tuple[int, int, int]
    pre: tuple[str, ...] = ()

    def __lt__(self, other: Version) -> bool:
        """Precedence by section 11 of the specification."""
        return self._order() < other._order()

    def _order(self) -> tuple[object, ...]:
        return (*self.numbers, not self.pre, tuple(map(_order_of_identifier, self.pre)))


def _order_of_identifier(text: str) -> tuple[bool, int, str]:
    """Numbers by their value, of any length: Python converts no more than 4,300 digits."""
    digits = text.lstrip("0")
    return (False, len(digits), digits) if text.isdigit() else (True, 0, text)


class Comparison(msgspec.Struct, frozen=True):
    """One condition: `>=`, `<`, `<=`, `>`, `=` or `!=` a version."""

    operator: str
    version: Version

    def fits(self, other: Version) -> bool:
        """Whether the other version meets the condition."""
        mine = self.version
        return {
            ">=": other >= mine,
            "<=": other <= mine,
            ">": other > mine,
            "<": other < mine,
            "=": other == mine,
            "!=": other != mine,
        }[self.operator]


class RangeGroup(msgspec.Struct, frozen=True):
    """Conditions that must all be met, and whether one of them contains a pre-release."""

    comparisons: tuple[Comparison, ...]
    prereleases: bool


# At least one of these groups must be met.
Range = tuple[RangeGroup, ...]


def version(text: str) -> Version | None:
    """The version of a tag (`v1.2.3`, `1.2.3-rc.1`), or None."""
    if not (match := _VERSION.fullmatch(text)):
        return None
    major, minor, patch, pre = match.groups()
    return Version((int(major), int(minor), int(patch)), tuple(pre.split(".")) if pre else ())


def parse(text: str) -> Range:
    """The range of a text. Raises UsageError for an invalid one."""
    return tuple(_alternative(part, text) for part in text.split("||"))


def _alternative(part: str, whole: str) -> RangeGroup:
    rest, comparisons, prereleases = part.strip(), list[Comparison](), False
    while rest or not comparisons:
        if not (term := _TERM.match(rest)):
            raise errors.UsageError(
                f"{whole!r} is not a version range; write ^1.2, ~1.2, >=1 <2, 1.x or 1.2.3"
            )
        numbers = [
            int(g) for g in (term["major"], term["minor"], term["patch"]) if g and g.isdigit()
        ]
        pre = tuple(term["pre"].split(".")) if term["pre"] else ()
        prereleases = prereleases or bool(pre)
        comparisons += _bounds(term["op"] or "=", numbers, pre)
        rest = rest[term.end() :]
    return RangeGroup(tuple(comparisons), prereleases)


def _bounds(operator: str, numbers: list[int], pre: tuple[str, ...]) -> list[Comparison]:
    """The comparisons of one term with 0 to 3 numbers."""
    low = Version((*numbers, 0, 0, 0)[:3], pre)  # type: ignore[arg-type]
    exact = len(numbers) == 3
    if not numbers:
        return [Comparison(">=", low)]
    if operator in {">=", "<"} or (exact and operator in {">", "<=", "=", "!="}):
        return [Comparison(operator, low)]
    past = _next(numbers, len(numbers) - 1)
    if operator == ">":
        return [Comparison(">=", past)]
    if operator == "<=":
        return [Comparison("<", past)]
    if operator == "^":
        # The first number that is not 0 may not change; of ^0.0 the last one.
        past = _next(numbers, next((i for i, n in enumerate(numbers) if n), len(numbers) - 1))
    elif operator.startswith("~"):
        past = _next(numbers, min(1, len(numbers) - 1))
    elif operator == "!=":
        raise errors.UsageError("!= in a version range needs all three numbers: !=1.2.3")
    return [Comparison(">=", low), Comparison("<", past)]


def _next(numbers: list[int], place: int) -> Version:
    # `-0` is the lowest pre-release, so that <2.0.0-0 excludes 2.0.0-rc.1 from ^1.
    return Version((*numbers[:place], numbers[place] + 1, 0, 0, 0)[:3], ("0",))  # type: ignore[arg-type]


def best(range_: Range, tags: Iterable[str]) -> str | None:
    """The tag with the highest version in the range; of two names of one version, the last one in
    alphabetical order.
    """
    fitting = [(v, tag) for tag in tags if (v := version(tag)) and fits(range_, v)]
    return max(fitting)[1] if fitting else None


def fits(range_: Range, version: Version) -> bool:
    """Whether the version is in the range."""
    return any(
        (group.prereleases or not version.pre) and all(c.fits(version) for c in group.comparisons)
        for group in range_
    )
