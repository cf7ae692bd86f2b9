"""Events of a deployer, from a new commit to the objects in the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from gitops_ds.model import guards
from gitops_ds.model.change import Change, Drifted, Plan, Refusal
from gitops_ds.model.events.base import Record
from gitops_ds.model.finding import Finding
from gitops_ds.model.objects import CommitId, Key
from gitops_ds.model.source_status import Condition, SourceStatus


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
class SourceVerified(Record):
    """A new commit is signed as it has to be: by whom (as the trusted keys call them), with which
    key, how many were checked.
    """

    commit: CommitId
    signer: str
    key: str
    checked: int


@dataclass(frozen=True, slots=True)
class VerificationFailed(Record):
    """A new tip is not trusted: `commit`, it or one that came with it, is not signed as it has to
    be. The last good one stays.
    """

    commit: CommitId
    message: str


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


@dataclass(frozen=True, slots=True)
class SourceChanged(Record):
    """The status of a repository is another one; `before` is the condition that it had."""

    status: SourceStatus
    before: Condition

    @property
    def recovered(self) -> bool:
        """Whether it is the end of trouble."""
        return self.status.condition is Condition.SYNCED and self.before not in _QUIET


_QUIET = frozenset((Condition.SYNCED, Condition.UNKNOWN, Condition.PROGRESSING))
