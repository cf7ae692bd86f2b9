"""Matches paths with gitignore patterns, by the rules of https://git-scm.com/docs/gitignore.

Patterns and paths are untrusted: the time for a match is at most proportional to the length of the
pattern times that of the path.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

import msgspec


class Pattern(msgspec.Struct, frozen=True):
    """One line: its parts between slashes (None: any folders), whether it negates (`!`), whether it
    matches only folders.
    """

    parts: tuple[re.Pattern[str] | None, ...]
    back: bool
    folders: bool

    def matches(self, names: Sequence[str]) -> list[bool]:
        """Whether the line matches the first name of a path, the first two, and so on."""
        last = len(self.parts) - 1
        reached = {0}  # the possible next parts
        results = []
        for name in names:
            # `**` may match no folder; at the end of a pattern it matches at least one name.
            skipping = {at for at in reached if at < last and self.parts[at] is None}
            while skipping:
                reached |= {at + 1 for at in skipping}
                skipping = {
                    at + 1 for at in skipping if at + 1 < last and self.parts[at + 1] is None
                }
            reached = {to for at in reached if at <= last for to in self._after(at, name, last)}
            results.append(last + 1 in reached)
        return results

    def _after(self, at: int, name: str, last: int) -> Iterator[int]:
        part = self.parts[at]
        if part is None:
            yield at
            if at == last:
                yield at + 1
        elif part.fullmatch(name):
            yield at + 1


class Patterns(msgspec.Struct, frozen=True):
    """Patterns in the order of their lines: the last match decides, and files below a matched
    folder can't be negated.
    """

    lines: tuple[Pattern, ...] = ()

    def take(self, path: PurePosixPath) -> bool:
        """Whether the file at this path matches."""
        if not self.lines:
            return False
        names = path.parts
        matched = [(line, line.matches(names)) for line in reversed(self.lines)]
        for at in range(len(names)):
            folder = at + 1 < len(names)
            meant = next(
                (
                    line
                    for line, line_matches in matched
                    if line_matches[at] and (folder or not line.folders)
                ),
                None,
            )
            if meant is not None and not meant.back:
                return True
        return False


NONE = Patterns()


def patterns(lines: Iterable[str], *, anchored: bool = False) -> Patterns:
    """The patterns of these lines. `anchored`: a pattern without a slash matches only in the top
    folder, like a shell's glob.
    """
    made = (_pattern(line, anchored=anchored) for line in lines)
    return Patterns(tuple(p for p in made if p is not None))


def _pattern(line: str, *, anchored: bool) -> Pattern | None:
    line = line.rstrip("\r\n")
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    if not line or line.startswith("#"):
        return None
    back = line.startswith("!")
    if back:
        line = line[1:]
    folders = line.endswith("/")
    line = line.rstrip("/") if folders else line
    if not line:
        return None
    anywhere = not anchored and "/" not in line
    parts = tuple(
        None if glob == "**" else _translate(glob) for glob in line.removeprefix("/").split("/")
    )
    return Pattern((None, *parts) if anywhere else parts, back, folders)


def _translate(glob: str) -> re.Pattern[str]:
    """A glob without slashes as a regular expression for a name; those of fnmatch do not backtrack.
    A malformed class such as [z-a] matches nothing, as in git.
    """
    return re.compile(fnmatch.translate(_SPECIAL.sub(_for_fnmatch, glob)))


# A class, an escaped character, or a bracket that no other one closes. A `]` just after `[` or `[!`
# is a member of the class.
_SPECIAL = re.compile(r"(?P<set>\[[!^]?+\]?+[^\]]*+\])|\\(?P<char>.)|\[", re.DOTALL)


def _for_fnmatch(match: re.Match[str]) -> str:
    """The same in a shell's glob: without backslashes, and negated by `!` only."""
    if members := match["set"]:
        return f"[!{members[2:]}" if members[1] == "^" else members
    char = match["char"] or "["
    return f"[{char}]" if char in "*?[" else char
