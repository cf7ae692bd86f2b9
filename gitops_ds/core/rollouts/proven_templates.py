"""The proofs of a DaemonSet's templates: which ones completed a rollout, which one is in force, and
which ones were halted.

All times are seconds since 1970.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from gitops_ds.core.objects import Body
from gitops_ds.core.rollouts.staged_rollout import Halt

MOST_PROOFS = 20  # earlier templates of one DaemonSet


class ProofKind(StrEnum):
    """ROLLOUT: a staged rollout of the template was complete. ADOPTED: it was in force when its
    rollout policy was first applied. FIRST: we created the DaemonSet with it.
    """

    ROLLOUT = "rollout"
    ADOPTED = "adopted"
    FIRST = "first"


class StopKind(StrEnum):
    """HALT: the rollout of the template was halted. HOLD: a person put it on hold."""

    HALT = "halt"
    HOLD = "hold"


class TemplateProof(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record that a template is proven.

    `template` is its identity (`proofs.identity`), `source` the digest of the template in Git,
    empty if unknown; `hash` is the label of its pods, which identifies them after their
    ControllerRevision was deleted. It was proven `at` a time by the rollout of `commit`, is in
    force `since`, and was so `until`, 0 while it is in force.
    """

    template: str
    commit: str = ""
    at: float = 0.0
    how: ProofKind = ProofKind.ADOPTED
    source: str = ""
    hash: str = ""
    since: float = 0.0
    until: float = 0.0


class HaltedTemplate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A template that is on hold, since it was halted (`kind` HALT) or by a person (HOLD), who may
    have stated a `reason`: the hash of its pods, its identity (`template`), its commit, the time of
    the halt, the reason, and the commit that replaced it (`ended`), empty before. `commits` are all
    that turned the template before into it, if they are several.

    The deployer's state also has the whole `halt`, and the last applied commit without the
    template (`since`), for the revert.
    """

    hash: str
    commit: str
    at: float
    message: str = ""
    template: str = ""
    source: str = ""
    since: str = ""
    halt: Halt | None = None
    ended: str = ""
    commits: tuple[str, ...] = ()
    kind: StopKind = StopKind.HALT
    reason: str = ""


class RecordedTemplate(msgspec.Struct, frozen=True, omit_defaults=True):
    """The template that a template in Git is by an answer of the API server, to our write or to a
    dry run: its identity (`template`), the digest of its text in Git (`source`), the commit that
    brought it, and the last applied commit without it (`since`). `commits` are all that turned the
    template before into it, newest first, none if unknown. `body` is the complete template of an
    applied one: who may write the DaemonSet may delete all others.
    """

    template: str
    source: str = ""
    commit: str = ""
    since: str = ""
    body: Body = {}
    commits: tuple[str, ...] = ()


class TemplateHistory(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known about the templates of a DaemonSet, independent of its objects: it survives
    their deletion, and who may write them can't write it.

    `proof` is that of the proven template in force, None if none is, and `template` its body.
    `earlier` are the proofs of others, newest first. `applied` is the last template that was
    applied without a rollout policy, `target` that of the target revision. `uid` is that of the
    DaemonSet at that time: the annotations of a DaemonSet with another uid contain nothing yet, and
    a first template without a uid is not confirmed by an answer of the API server. `behind` is the
    last commit before those whose template the DaemonSet did not get, because of a hold, a
    suspension or a refusal; empty if it got that of the last commit.
    """

    proof: TemplateProof | None = None
    template: Body = {}
    earlier: tuple[TemplateProof, ...] = ()
    halted: tuple[HaltedTemplate, ...] = ()
    uid: str = ""
    applied: RecordedTemplate | None = None
    target: RecordedTemplate | None = None
    behind: str = ""

    @property
    def is_announced(self) -> bool:
        """Whether the first template was announced before its creation, and nothing is known about
        the creation.
        """
        return self.proof is not None and self.proof.how is ProofKind.FIRST and not self.uid

    def announces(self, other: TemplateHistory | None) -> bool:
        """Whether both announce the same first template."""
        if other is None or not other.is_announced or self.proof is None or other.proof is None:
            return False
        return (self.proof.template, self.proof.source) == (
            other.proof.template,
            other.proof.source,
        )
