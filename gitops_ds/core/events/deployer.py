"""Events of a deployer, from a new commit to the objects in the cluster."""

from __future__ import annotations

from gitops_ds.core.change import Change, Plan
from gitops_ds.core.events import commits
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.definition import EventDefinition, Level, Notice, Sample, Tone, Topic
from gitops_ds.core.objects import CommitId, Key, short, template_of
from gitops_ds.core.plain_text import counted
from gitops_ds.core.skip_reasons import PRUNING, STILL_USED, Skipped
from gitops_ds.core.sources.source_status import EFFECTS, Condition, SourceStatus, other_service

_RECONCILIATIONS = "gitopsds_reconcile"


class Planned(Event, frozen=True):
    """A plan with changes or refusals."""

    definition = EventDefinition("Planned")

    plan: Plan


class Applied(Event, frozen=True):
    """A written object; `warnings` are the API server's. `gave` is the commit that gave a
    DaemonSet its template, empty for another object.
    """

    definition = EventDefinition("Applied", Level.INFO, Tone.GOOD, metric="gitopsds_applied")

    change: Change
    warnings: tuple[str, ...] = ()
    gave: str = ""

    @property
    def about(self) -> Key | None:
        """The object."""
        return self.change.key

    def text(self) -> str:
        """The line in the log."""
        warnings = "".join(f"; warning: {warning}" for warning in self.warnings)
        return f"{self.change.operation.past} {self.change.key}{_revision(self.change)}{warnings}"

    def samples(self) -> tuple[Sample, ...]:
        """One object by operation."""
        return (Sample(self.definition.metric, self.change.operation.value),)


def _revision(change: Change) -> str:
    rollout = change.rollout
    if rollout is None or not rollout.rolls:
        return ""
    earlier = f", as {rollout.known_as} was" if rollout.known_as else ""
    return f" (revision {rollout.becomes}{earlier})"


class RefusalEvent(Event, frozen=True):
    """A change that the deployer or the API server refused."""

    refusal: Skipped

    def text(self) -> str:
        """The line in the log."""
        return f"not applied: {self.refusal.message}"

    @property
    def kube_reason(self) -> str:
        """By the reason; `Reconciled` reports reasons that keep objects."""
        effect = self.refusal.reason.effect
        return "" if effect.prunes else effect.event_reason

    @property
    def kube_warning(self) -> bool:
        """By the reason."""
        return self.refusal.reason.effect.notifies

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return self.refusal.message


class NotApplied(RefusalEvent, frozen=True):
    """An object that is not written."""

    definition = EventDefinition("NotApplied", Level.WARNING, topic=Topic.STUCK)

    change: Change

    @property
    def about(self) -> Key | None:
        """The object."""
        return self.change.key

    def notice(self) -> Notice | None:
        """The content of the notification; none for a reason that resolves without a person."""
        notifies = self.refusal.reason.effect.notifies
        return Notice(Topic.STUCK, key=self.refusal.key) if notifies else None


class ChangeSkipped(RefusalEvent, frozen=True):
    """A change that a plan leaves out. Emitted once while it lasts."""

    definition = EventDefinition("Withheld", Level.INFO, topic=Topic.STUCK)

    @property
    def level(self) -> Level:
        """By the reason."""
        return Level.WARNING if self.refusal.reason.effect.notifies else Level.INFO

    def notice(self) -> Notice | None:
        """The content of the notification; none for a reason that resolves without a person."""
        if not self.refusal.reason.effect.notifies:
            return None
        topic = Topic.PRUNE if self.refusal.reason in PRUNING else Topic.STUCK
        return Notice(topic, key=self.refusal.key)


class Reconciled(Event, frozen=True):
    """A completed reconciliation; `writes` counts written objects. `repeated`: it wrote nothing,
    and the same refusals remain as after the previous one of the commit.
    """

    definition = EventDefinition(
        "PassEnded",
        Level.INFO,
        Tone.GOOD,
        reason="Applied",
        metric=_RECONCILIATIONS,
        topic=Topic.APPLIED,
        keys=("commit", "writes"),
    )

    commit: CommitId | None
    writes: int
    refusals: tuple[Skipped, ...]
    repeated: bool = False

    @property
    def failed(self) -> tuple[Skipped, ...]:
        """The refusals because of which the commit is only applied in part."""
        return tuple(refusal for refusal in self.refusals if refusal.reason.effect.fails_commit)

    @property
    def suspended(self) -> tuple[Skipped, ...]:
        """The changes of the commit that wait because their agent is suspended."""
        return tuple(refusal for refusal in self.refusals if refusal.reason.effect.suspended)

    @property
    def whole(self) -> bool:
        """Whether the commit is applied as a whole."""
        return not self.failed and not self.suspended

    @property
    def deletions_held(self) -> tuple[Skipped, ...]:
        """The deletions that a guard holds."""
        return tuple(refusal for refusal in self.refusals if refusal.reason in PRUNING)

    @property
    def deletions_waiting(self) -> tuple[Skipped, ...]:
        """The deletions that wait until no pod needs the object."""
        return tuple(refusal for refusal in self.refusals if refusal.reason in STILL_USED)

    @property
    def level(self) -> Level:
        """Warning if a person must act, debug without writes and failures."""
        failed = self.failed
        if any(refusal.reason.effect.notifies for refusal in failed):
            return Level.WARNING
        return Level.INFO if self.writes or failed else Level.DEBUG

    def text(self) -> str:
        """The line in the log; empty for a repetition."""
        failed = self.failed
        if self.repeated or (not self.writes and not failed):
            return ""
        template = template_of(self.commit or "")
        what = "the state of the templates" if template else f"commit {short(self.commit)}"
        if left := failed or self.suspended:
            written = f"{self.writes} written, {len(left)} not"
            return f"{what} is applied in part: {written}: {left[0].message}"
        return f"{what} is applied: {self.writes} written"

    @property
    def kube_reason(self) -> str:
        """PruneRefused for kept objects, Applied after writes of a whole commit."""
        if self.deletions_held:
            return "PruneRefused"
        return self.definition.reason if self.writes and self.whole else ""

    @property
    def kube_warning(self) -> bool:
        """True for kept objects."""
        return bool(self.deletions_held)

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        if pruning := self.deletions_held:
            return "; ".join(refusal.message for refusal in pruning)
        return f"{short(self.commit)}: {counted(self.writes, 'object')} written"

    def samples(self) -> tuple[Sample, ...]:
        """One reconciliation, the commit, and the refusals by guard."""
        whole = self.whole
        applied = (Sample("gitopsds_commit_info", self.commit or ""),) if whole else ()
        return (
            Sample(_RECONCILIATIONS, "success" if whole else "partial"),
            *applied,
            *(Sample("gitopsds_refused", refusal.reason) for refusal in self.refusals),
            *(
                Sample("gitopsds_prune_refused", guard)
                for guard in sorted({refusal.reason for refusal in self.deletions_held})
            ),
        )

    def notice(self) -> Notice | None:
        """The content of the notification, after writes of a whole commit."""
        applied = self.commit is not None and self.writes and self.whole
        return (
            commits.once(Topic.APPLIED, self.commit)
            if self.commit is not None and applied
            else None
        )


class ReconcileFailed(Event, frozen=True):
    """A reconciliation that ended early; `retry_in` is in seconds, None if a person must act."""

    definition = EventDefinition(
        "PassFailed",
        Level.WARNING,
        reason="PassFailed",
        warning=True,
        metric=_RECONCILIATIONS,
        topic=Topic.STUCK,
        keys=("retry_in",),
    )

    message: str
    retry_in: float | None = None

    @property
    def level(self) -> Level:
        """Error if a person must act."""
        return Level.ERROR if self.retry_in is None else Level.WARNING

    def text(self) -> str:
        """The line in the log."""
        if self.retry_in is None:
            return f"{self.message}; waiting for a change"
        return f"{self.message}; next attempt in {self.retry_in:.0f} s"

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return self.message

    def samples(self) -> tuple[Sample, ...]:
        """One failure."""
        return (Sample(_RECONCILIATIONS, "failure"),)

    def notice(self) -> Notice | None:
        """The content of the notification."""
        return Notice(Topic.STUCK, self.message)


class RepositoryMoved(Event, frozen=True):
    """An owner of objects continues with another address of its repository."""

    definition = EventDefinition(
        "RepositoryMoved",
        Level.INFO,
        reason="RepositoryMoved",
        keys=("owner", "before", "repository"),
    )

    owner: str
    before: str
    repository: str

    def text(self) -> str:
        """The line in the log."""
        return (
            f"the repository of owner {self.owner} is now at {self.repository} (it was at "
            f"{self.before}): its objects stay, nothing restarts"
        )


class Unchanged(Event, frozen=True):
    """Neither Git nor the cluster changed since the last reconciliation."""

    definition = EventDefinition("Unchanged", metric=_RECONCILIATIONS, keys=("commit",))

    commit: CommitId

    def samples(self) -> tuple[Sample, ...]:
        """One reconciliation without changes."""
        return (Sample(_RECONCILIATIONS, "unchanged"),)


class Timed(Event, frozen=True):
    """A duration in seconds, for metrics; `well` is True for a success."""

    seconds: float
    well: bool


class ReconcileTimed(Timed, frozen=True):
    """The duration of a reconciliation."""

    definition = EventDefinition("", metric="gitopsds_reconcile_duration_seconds")

    def samples(self) -> tuple[Sample, ...]:
        """The duration, and the time of the last success."""
        success = Sample("gitopsds_git_last_success_timestamp_seconds", value=self.at)
        duration = Sample(self.definition.metric, value=self.seconds)
        return (duration, success) if self.well else (duration,)


class GitTimed(Timed, frozen=True):
    """The duration of a request to the Git server: the tip of a branch or the files of a commit."""

    definition = EventDefinition("", metric="gitopsds_git_fetch_duration_seconds")

    def samples(self) -> tuple[Sample, ...]:
        """The duration by result."""
        return (
            Sample(self.definition.metric, "success" if self.well else "failure", self.seconds),
        )


# Conditions of a repository that no other event reports.
_UNREPORTED = (Condition.PARTLY_APPLIED, Condition.HELD, Condition.SUSPENDED)
_NO_TROUBLE = frozenset((Condition.SYNCED, Condition.UNKNOWN, Condition.PROGRESSING))


class ServiceBeside(Event, frozen=True):
    """Another service follows the same repository, with the same state or with one in another
    `namespace`; published once while it does.
    """

    definition = EventDefinition(
        "ServiceBeside", Level.WARNING, reason="ServiceBeside", warning=True
    )

    repository: str
    namespace: str = ""

    def text(self) -> str:
        """The line in the log."""
        return f"repository {self.repository}: {other_service(self.namespace)}"

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return other_service(self.namespace)


class SourceChanged(Event, frozen=True):
    """A new status of a repository; `before` is the previous condition."""

    definition = EventDefinition("SourceChanged", Level.INFO, topic=Topic.STUCK)

    status: SourceStatus
    before: Condition

    @property
    def recovered(self) -> bool:
        """Whether the previous condition was a failure and this one is not."""
        return self.status.condition is Condition.SYNCED and self.before not in _NO_TROUBLE

    @property
    def level(self) -> Level:
        """By the condition."""
        return Level(EFFECTS[self.status.condition].level)

    @property
    def tone(self) -> Tone:
        """By the condition."""
        return Tone(EFFECTS[self.status.condition].tone)

    def text(self) -> str:
        """The line in the log; other events report the other conditions."""
        status = self.status
        if not (self.recovered or status.agents_suspended):
            return ""
        return (
            f"repository {status.repository}: {status.condition} (was {self.before}): "
            f"{status.message}"
        )

    @property
    def kube_reason(self) -> str:
        """By the condition, if no other event reports it; `Suspended` reports a suspended
        repository.
        """
        status = self.status
        reported = status.condition is Condition.PARTLY_APPLIED or status.agents_suspended
        return EFFECTS[status.condition].reason if reported or self.recovered else ""

    @property
    def kube_warning(self) -> bool:
        """True for a commit that is applied in part."""
        return self.status.condition is Condition.PARTLY_APPLIED

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return self.status.message

    def notice(self) -> Notice | None:
        """The content of the notification."""
        status = self.status
        if status.condition not in _UNREPORTED:
            return None
        return Notice(Topic.STUCK, status.message, commit=status.newest or "")
