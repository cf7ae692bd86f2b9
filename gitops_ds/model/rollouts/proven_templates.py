"""The proofs of a DaemonSet's templates: which ones completed a rollout, which one is in force, and
which ones were halted.

All times are seconds since 1970.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from gitops_ds.model.objects import Body
from gitops_ds.model.rollouts.staged_rollout import Halt

MOST_PROOFS = 20  # earlier templates of one DaemonSet


class ProofKind(StrEnum):
    """ROLLOUT: a staged rollout of the template was complete. ADOPTED: it was in force when its
    rollout policy was first applied. FIRST: the DaemonSet was created with it.
    """

    ROLLOUT = "rollout"
    ADOPTED = "adopted"
    FIRST = "first"


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
    """A halted template: the hash of its pods, its identity (`template`), its commit, the time of
    the halt, the reason, and the first applied commit without it (`ended`), empty before.

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


class TemplateHistory(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is proven about the templates of a DaemonSet, independent of its objects: it survives
    their deletion.

    `proof` is that of the proven template in force, None if none is, and `template` its body.
    `earlier` are the proofs of others, newest first. `uid` is that of the DaemonSet at that time:
    the annotations of a DaemonSet with another uid contain nothing yet.
    """

    proof: TemplateProof | None = None
    template: Body = {}
    earlier: tuple[TemplateProof, ...] = ()
    halted: tuple[HaltedTemplate, ...] = ()
    uid: str = ""
