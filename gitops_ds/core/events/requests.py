"""Events about requests from outside: webhooks, holds, suspension, requested reconciliations."""

from __future__ import annotations

from enum import StrEnum

from gitops_ds.core import stated_reasons
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.definition import EventDefinition, Level, Sample, Tone
from gitops_ds.core.objects import CommitId, short
from gitops_ds.core.plain_text import counted


class RequestEvent(Event, frozen=True):
    """An event about a request from outside."""


class WebhookResult(StrEnum):
    """The result of a request to the webhook; the label of its metric."""

    ACCEPTED = "accepted"
    PING = "ping"
    UNAUTHORIZED = "unauthorized"
    REPLAYED = "replayed"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    TOO_SLOW = "too_slow"
    LIMITED = "limited"


class WebhookReceived(RequestEvent, frozen=True):
    """A request to the webhook. `forge` is empty without a valid signature."""

    definition = EventDefinition("HookHeard", metric="gitopsds_webhook_requests")

    result: WebhookResult
    forge: str = ""

    @property
    def level(self) -> Level:
        """Info for a push, debug for other requests."""
        return Level.INFO if self.result is WebhookResult.ACCEPTED else Level.DEBUG

    def text(self) -> str:
        """The line in the log."""
        if self.result is not WebhookResult.ACCEPTED:
            return ""
        return f"webhook ({self.forge}) reported a push: Git is read now"

    def samples(self) -> tuple[Sample, ...]:
        """One request with its result."""
        return (Sample(self.definition.metric, self.result.value),)


class PushForwarded(RequestEvent, frozen=True):
    """A push that another replica received; this replica, the leader, handles it."""

    definition = EventDefinition("PassedOn", Level.INFO, keys=("commit",))

    commit: CommitId | None

    def text(self) -> str:
        """The line in the log."""
        return "another replica received a push: Git is read now"


class CommitHeld(RequestEvent, frozen=True):
    """The tip of the branch is on hold; the last good commit stays applied."""

    definition = EventDefinition("CommitHeld", Level.WARNING, reason="CommitHeld", keys=("commit",))

    commit: CommitId
    reason: str

    def text(self) -> str:
        """The line in the log."""
        return (
            f"commit {short(self.commit)} is on hold ({self.reason}); the last good commit stays "
            "applied"
        )

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return f"{short(self.commit)} is not applied: {self.reason}"


class Suspended(RequestEvent, frozen=True):
    """The repository is suspended, for a `reason` if one is stated; `changes` of the commit wait.
    Emitted when that changes.
    """

    definition = EventDefinition("Suspended", Level.WARNING, reason="Suspended", keys=("commit",))

    commit: CommitId | None
    changes: int
    reason: str = ""

    def text(self) -> str:
        """The line in the log."""
        commit = short(self.commit)
        if not self.changes:
            words = f"suspended: commit {commit} has no pending change"
        else:
            words = f"suspended: {counted(self.changes, 'change')} of commit {commit} not applied"
        return stated_reasons.after(words, self.reason)

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        words = f"{counted(self.changes, 'change')} of {short(self.commit)} not applied"
        return stated_reasons.after(words, self.reason)


class Resumed(RequestEvent, frozen=True):
    """The repository is no longer suspended."""

    definition = EventDefinition("Resumed", Level.INFO, Tone.GOOD, reason="Resumed")

    def text(self) -> str:
        """The line in the log."""
        return "repository is no longer suspended"

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return "changes are written again"


class RequestHandled(RequestEvent, frozen=True):
    """The outcome of a requested reconciliation; `request` is the value of the request."""

    definition = EventDefinition("Handled", Level.INFO)

    request: str
    outcome: str

    def text(self) -> str:
        """The line in the log."""
        return f"reconciliation requested at {self.request} ended: {self.outcome}"
