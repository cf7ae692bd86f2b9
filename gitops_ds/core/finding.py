"""Problems in a repository's files: values, never exceptions."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from gitops_ds.core.objects import Key, Path
from gitops_ds.core.values import replace


class Severity(StrEnum):
    """The severity of a finding, which does not decide whether it blocks the commit (see
    `Finding.refused`).
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Place(msgspec.Struct, frozen=True, order=True):
    """A place in a file: line and column start at 1. (0, 0) means the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        """As compilers print it: `file:line:column`."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Mend:
    """One step of a fix in the object: a value to set at a path (None removes it), or another `key`
    in place of the present one.
    """

    path: Path
    value: Any = field(default=None, hash=False)
    key: str = ""


class Fix(msgspec.Struct, frozen=True):
    """The fix of a finding, as text and as steps. `safe`: it has no other effect; otherwise it is a
    proposal.
    """

    words: str
    mends: tuple[Mend, ...]
    safe: bool = False


class Finding(msgspec.Struct, frozen=True):
    """One violation: the rule, the problem and its fix, and the place.

    `refused`: the API server would refuse the object, or each of its pods, or the file violates our
    own format. Only these findings block a commit. `path` leads into `object`. `end` is the place
    just after the last character, if known. `other` is a second object of the finding, with its
    place.
    """

    rule: str
    severity: Severity
    message: str
    place: Place | None = None
    refused: bool = False
    object: Key | None = None
    path: Path = ()
    end: Place | None = None
    cluster: str = ""
    fix: Fix | None = None
    other: tuple[Key, Place | None] | None = None

    def on_cluster(self, cluster: str) -> Finding:
        """The same finding, found when rendering for that cluster."""
        return self if self.cluster == cluster else replace(self, cluster=cluster)
