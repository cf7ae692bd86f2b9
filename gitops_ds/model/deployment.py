"""What the deployer remembers between passes, and the facts that it tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gitops_ds.model import guards
from gitops_ds.model.change import Change, Drifted, DriftPolicy, Plan, Refusal
from gitops_ds.model.events.base import Record
from gitops_ds.model.finding import Finding
from gitops_ds.model.objects import CommitId, Digest, Key


@dataclass(frozen=True, slots=True)
class HeldCommit:
    """A commit that is not to be applied again, why, and since when (seconds since 1970)."""

    commit: CommitId
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class Left:
    """Drift that stands: what is done about it, since when (seconds since 1970), and what it is in
    words.
    """

    choice: DriftPolicy
    since: float
    words: str


@dataclass(frozen=True, slots=True)
class Generation:
    """The metadata.generation of a DaemonSet when it was last applied or compared, and the commit
    that it carried then.

    The API server raises the generation with every change of the spec, whoever makes it:
    https://kubernetes.io/docs/reference/using-api/api-concepts/ and apps/v1 DaemonSet's
    status.observedGeneration.
    """

    generation: int
    commit: CommitId


@dataclass(frozen=True, slots=True)
class State:
    """All that must survive a restart and is not in Git or on the objects themselves.

    `inventory` names what was applied and not yet deleted, `agents` the agent of the repository
    that an object of it came from; `digests` the manifest of each as it was last applied;
    `revisions`, for each DaemonSet, the commit behind every revision number; `drift` is what
    somebody changed and is left so; `approved` are the objects whose deletion a person agreed to,
    until they are gone; `waiting` those that are left as they are because they, or the whole
    repository, are suspended; `generations` those of the DaemonSets that were applied. `version` is
    the resourceVersion that this was read at, empty for new.
    """

    repository: str = ""
    cluster: str = ""
    last_good: CommitId | None = None
    last_attempted: CommitId | None = None
    held: tuple[HeldCommit, ...] = ()
    inventory: frozenset[Key] = frozenset()
    agents: Mapping[Key, str] = field(default_factory=dict)
    digests: Mapping[Key, Digest] = field(default_factory=dict)
    revisions: Mapping[Key, Mapping[int, CommitId]] = field(default_factory=dict)
    drift: Mapping[Key, Left] = field(default_factory=dict)
    approved: frozenset[Key] = frozenset()
    waiting: frozenset[Key] = frozenset()
    generations: Mapping[Key, Generation] = field(default_factory=dict)
    version: str = ""


@dataclass(frozen=True, slots=True)
class NewCommit(Record):
    """The branch has a new tip. `rewritten`: it does not lead on from the last one."""

    commit: CommitId
    subject: str
    author: str
    rewritten: bool = False


@dataclass(frozen=True, slots=True)
class CommitRejected(Record):
    """The commit has findings that stand in its way; the last good one stays."""

    commit: CommitId | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Planned(Record):
    """A plan that writes something, or refuses something."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Applied(Record):
    """One object was written; `warnings` are the API server's."""

    change: Change
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotApplied(Record):
    """One object was not written."""

    change: Change
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class DriftFact(Record):
    """Something about an object that somebody changed in the cluster, and in `words` how."""

    object: Key
    drifted: Drifted
    words: str


@dataclass(frozen=True, slots=True)
class DriftDetected(DriftFact):
    """Somebody changed the object. Told once, and again when it is changed otherwise."""


@dataclass(frozen=True, slots=True)
class DriftCorrected(DriftFact):
    """It is as Git says again."""


@dataclass(frozen=True, slots=True)
class DriftContested(DriftFact):
    """Another writer makes it again after each correction: the next correction waits. Told once
    before each one.
    """


@dataclass(frozen=True, slots=True)
class DriftHeld(DriftFact):
    """It is left so until then (seconds since 1970)."""

    until: float


@dataclass(frozen=True, slots=True)
class Withheld(Record):
    """A plan leaves something undone, and why. Told once, as long as it stands."""

    refusal: Refusal


@dataclass(frozen=True, slots=True)
class PassEnded(Record):
    """A pass came to its end; `writes` counts what was written."""

    commit: CommitId | None
    writes: int
    refusals: tuple[Refusal, ...]

    @property
    def failed(self) -> tuple[Refusal, ...]:
        """The refusals that leave a part of the commit undone; with one of them the commit is
        applied in part.
        """
        return tuple(refusal for refusal in self.refusals if guards.of(refusal.guard).fails)

    @property
    def suspended(self) -> tuple[Refusal, ...]:
        """The changes of the commit that wait because their agent is suspended."""
        return tuple(refusal for refusal in self.refusals if guards.of(refusal.guard).suspended)

    @property
    def whole(self) -> bool:
        """Whether the commit is applied as a whole."""
        return not self.failed and not self.suspended


@dataclass(frozen=True, slots=True)
class PassFailed(Record):
    """A pass ended early; `retry_in` in seconds, None when only a person can mend it."""

    message: str
    retry_in: float | None = None


@dataclass(frozen=True, slots=True)
class Unchanged(Record):
    """Git was looked at, and neither it nor the cluster moved since the last pass."""

    commit: CommitId


@dataclass(frozen=True, slots=True)
class Took(Record):
    """How many seconds something took, and whether it came to a good end. For metrics."""

    seconds: float
    well: bool


@dataclass(frozen=True, slots=True)
class PassTook(Took):
    """A pass."""


@dataclass(frozen=True, slots=True)
class GitTook(Took):
    """A talk with the Git server: what a branch points at, or a commit's files."""
