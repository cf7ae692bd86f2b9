"""The kind of target that the template in Git is, by what is proven. Pure.

| the template in Git | kind | how it moves |
|---|---|---|
| the proven one in force | NONE | nodes with another template get it back at once |
| proven earlier, within `rollback.within` | ROLLBACK | in force at once; no soak and no gates |
| halted before, and not released | HELD | not at all |
| any other | FORWARD | from the canary |

A template that only exists as a ControllerRevision (of an edit in the cluster, of
`kubectl rollout undo`, or of an unstaged or halted rollout) is not proven.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from gitops_ds.model.rollouts.proven_templates import TemplateHistory, TemplateProof
from gitops_ds.model.rollouts.rollout_policy import Rollback


class TargetKind(StrEnum):
    """The kind of a target, see the table of this module."""

    NONE = "none"
    ROLLBACK = "rollback"
    FORWARD = "forward"
    HELD = "held"


class WantedTemplate(msgspec.Struct, frozen=True):
    """The template in Git: the digest of its text (`source`), and its identity with all defaults,
    empty if unknown.
    """

    source: str
    template: str = ""

    def is_of(self, source: str, template: str) -> bool:
        """Whether a record with this source and identity is of the template."""
        if self.source and self.source == source:
            return True
        return bool(self.template) and self.template == template


class Target(msgspec.Struct, frozen=True):
    """The kind, and for a rollback the earlier proof."""

    kind: TargetKind
    proof: TemplateProof | None = None


def of(wanted: WantedTemplate, history: TemplateHistory, rollback: Rollback, now: float) -> Target:
    """The target of a DaemonSet; `now` in seconds since 1970."""
    proof = history.proof
    if proof is not None and wanted.is_of(proof.source, proof.template):
        return Target(TargetKind.NONE, proof)
    if any(wanted.is_of(one.source, one.template) for one in history.halted):
        return Target(TargetKind.HELD)
    earlier = next((e for e in history.earlier if wanted.is_of(e.source, e.template)), None)
    if earlier is not None and rollback.stages == "skip" and now - earlier.until <= rollback.within:
        return Target(TargetKind.ROLLBACK, earlier)
    return Target(TargetKind.FORWARD)
