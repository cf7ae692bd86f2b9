"""Which paths a list of gitignore patterns takes, by the rules of https://git-scm.com/docs/gitignore."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line: what it matches, whether it takes paths back (`!`), whether it means folders only (`/` at its end)."""

    regex: re.Pattern[str]
    back: bool
    folders: bool


@dataclass(frozen=True, slots=True)
class Patterns:
    """Patterns in the order of their lines: the last that matches decides, and nothing below a taken folder is taken back."""

    lines: tuple[Pattern, ...] = ()

    def take(self, path: PurePosixPath) -> bool:
        """Whether the file at this path is taken."""
        parts = path.parts
        for count in range(1, len(parts) + 1):
            name = "/".join(parts[:count])
            if self._decide(name, folder=count < len(parts)):
                return True
        return False

    def _decide(self, name: str, *, folder: bool) -> bool:
        for line in reversed(self.lines):
            if (folder or not line.folders) and line.regex.fullmatch(name):
                return not line.back
        return False


NONE = Patterns()


def patterns(lines: Iterable[str], *, anchored: bool = False) -> Patterns:
    """The patterns of these lines. `anchored`: a pattern without a slash means the top folder only, as a shell's glob does."""
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
    try:
        regex = re.compile(("(?:.*/)?" if anywhere else "") + _translate(line.removeprefix("/")), re.DOTALL)
    except re.error:
        return None  # git, too, lets a malformed class such as [z-a] match nothing
    return Pattern(regex, back, folders)


def _translate(glob: str) -> str:
    """A glob as a regular expression for a whole path."""
    text, at = "", 0
    while at < len(glob):
        rest = glob[at:]
        start = at == 0 or glob[at - 1] == "/"
        if start and rest.startswith("**/"):
            text, at = text + "(?:.*/)?", at + 3
        elif start and rest == "**":
            text, at = text + ".+", at + 2
        elif rest[0] == "*":
            text, at = text + "[^/]*", at + len(rest) - len(rest.lstrip("*"))
        elif rest[0] == "?":
            text, at = text + "[^/]", at + 1
        elif rest[0] == "[" and (end := _class_end(rest)):
            inner = rest[1:end].replace("\\", "\\\\").replace("[", "\\[")
            inner = "^" + inner[1:] if inner[0] in "!^" else inner
            text, at = text + f"(?!/)[{inner}]", at + end + 1
        elif rest[0] == "\\" and len(rest) > 1:
            text, at = text + re.escape(rest[1]), at + 2
        else:
            text, at = text + re.escape(rest[0]), at + 1
    return text


def _class_end(rest: str) -> int:
    """Where the class that begins here ends; 0 where it doesn't. A `]` right after `[` or `[!` is a member."""
    first = 2 if rest[1:2] in ("!", "^") else 1
    return max(rest.find("]", first + 1), 0)
