"""The definition of a rule: the only place of its ID, from which its findings, its row in
docs/rules.md and its switch in `rules:` of gitops-ds.yaml follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gitops_ds.core.finding import Finding, Place, Severity
from gitops_ds.core.objects import Key, Path

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
