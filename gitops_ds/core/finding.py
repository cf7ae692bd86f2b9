"""Problems in a repository's files: values, never exceptions; and the definitions of rules.

A definition is the only place of a rule's ID, from which its findings, its row in docs/rules.md and
its switch in `rules:` of gitops-ds.yaml follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

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


STRICT: Final = "strict"


class RuleDefinition(msgspec.Struct, frozen=True):
    """What users see of a rule. A rule whose cases differ in severity has a definition for each.

    `refused`: blocking, since the object cannot be rendered, or the API server or the creation of
    every pod refuses it. `certain`: the object is accepted and fails in every pod, so the severity
    is the same for every agent. `on`: enabled by default. `classes`: the severities of agent
    classes that differ.
    """

    id: str
    severity: Severity
    refused: bool
    summary: str
    on: bool = True
    classes: Mapping[str, Severity] = msgspec.field(default_factory=dict)
    certain: bool = False

    def severity_for(self, agent_class: str, profile: str) -> Severity:
        """The severity for an agent of a class.

        Errors of advice become warnings without a class or a strict profile: a working manifest
        from another project passes until the repository states its expectations.
        """
        severity = self.classes.get(agent_class, self.severity)
        is_softened = not (agent_class or self.refused or self.certain or profile == STRICT)
        return Severity.WARNING if is_softened and severity is Severity.ERROR else severity

    def finding(self, message: str, place: Place | None = None) -> Finding:
        """A finding of the severity of the rule."""
        return Finding(self.id, self.severity, message, place, refused=self.refused)

    def warning(
        self, message: str, place: Place | None = None, object: Key | None = None
    ) -> Finding:
        """A finding that does not block the commit, also of a blocking rule."""
        return Finding(self.id, Severity.WARNING, message, place, object=object)

    def refusal(
        self,
        message: str,
        place: Place | None = None,
        object: Key | None = None,
        path: Path = (),
        end: Place | None = None,
    ) -> Finding:
        """A finding that blocks the commit, also of advice."""
        return Finding(self.id, Severity.ERROR, message, place, True, object, path, end)


def refused(id: str, summary: str) -> RuleDefinition:
    """A blocking rule."""
    return RuleDefinition(id, Severity.ERROR, True, summary)


def advice(
    id: str,
    severity: Severity,
    summary: str,
    *,
    on: bool = True,
    classes: Mapping[str, Severity] | None = None,
) -> RuleDefinition:
    """A rule for objects that the API server accepts and that cause trouble."""
    return RuleDefinition(id, severity, False, summary, on, classes or {})


def certain(id: str, summary: str) -> RuleDefinition:
    """A rule for objects that the API server accepts and that fail in every pod."""
    return RuleDefinition(id, Severity.ERROR, False, summary, certain=True)
