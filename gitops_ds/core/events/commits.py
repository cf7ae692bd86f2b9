"""Events of commits: new, verified, rejected, and waiting for other clusters."""

from __future__ import annotations

from gitops_ds.core import duration
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.definition import EventDefinition, Level, Notice, Tone, Topic
from gitops_ds.core.finding import Finding
from gitops_ds.core.objects import CommitId, short, template_of


def once(topic: Topic, commit: CommitId) -> Notice:
    """A notification that is sent at most once for each commit."""
    return Notice(topic, mark="once", commit=commit)


class NewCommit(Event, frozen=True):
    """A new tip of the branch. `rewritten`: the previous tip is not one of its ancestors."""

    definition = EventDefinition(
        "NewCommit", Level.INFO, reason="NewCommit", topic=Topic.COMMIT, keys=("commit",)
    )

    commit: CommitId
    subject: str
    author: str
    rewritten: bool = False

    def text(self) -> str:
        """The line in the log."""
        if template_of(self.commit):
            return f"templates in the cluster: {self.subject}"
        note = " (the branch was rewritten by a force-push)" if self.rewritten else ""
        return f"new commit {self._described()}{note}"

    def _described(self) -> str:
        return f"{short(self.commit)} {self.subject!r} by {self.author}"

    @property
    def kube_reason(self) -> str:
        """HistoryRewritten after a force-push."""
        return "HistoryRewritten" if self.rewritten else self.definition.reason

    @property
    def kube_warning(self) -> bool:
        """True after a force-push."""
        return self.rewritten

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        if self.rewritten:
            return f"the branch was rewritten; it now is {self._described()}"
        return self._described()

    def notice(self) -> Notice | None:
        """The content of the notification."""
        return once(Topic.COMMIT, self.commit)


class CommitRejected(Event, frozen=True):
    """Blocking findings of a commit; the last good commit stays applied.

    `gitops_ds.notify` writes the texts: they quote findings, which needs redaction.
    """

    definition = EventDefinition(
        "CommitRejected",
        Level.ERROR,
        reason="CommitRejected",
        warning=True,
        metric="gitopsds_commits_rejected",
        topic=Topic.REJECTED,
        keys=("commit",),
    )

    commit: CommitId | None
    findings: tuple[Finding, ...]

    def notice(self) -> Notice | None:
        """The content of the notification."""
        return once(Topic.REJECTED, self.commit or CommitId(""))


class SourceVerified(Event, frozen=True):
    """A new commit with the required signatures: the signer's name in the trusted keys, the key,
    and the number of verified signatures.
    """

    definition = EventDefinition(
        "SourceVerified", Level.INFO, Tone.GOOD, reason="SourceVerified", keys=("commit",)
    )

    commit: CommitId
    signer: str
    key: str
    checked: int

    def text(self) -> str:
        """The line in the log."""
        more = f"; {self.checked} signatures checked" if self.checked > 1 else ""
        return f"commit {short(self.commit)} is signed by {self.signer} with {self.key}{more}"

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return f"{short(self.commit)} is signed by {self.signer}"


class VerificationFailed(Event, frozen=True):
    """An untrusted new tip: `commit`, the tip or one of its ancestors, lacks a required signature.
    The last good commit stays applied.
    """

    definition = EventDefinition(
        "VerificationFailed",
        Level.ERROR,
        reason="VerificationFailed",
        warning=True,
        topic=Topic.REJECTED,
        keys=("commit",),
    )

    commit: CommitId
    message: str

    def text(self) -> str:
        """The line in the log."""
        return f"{self.message}; the last good commit stays applied"

    def notice(self) -> Notice | None:
        """The content of the notification."""
        return once(Topic.REJECTED, self.commit)


class CommitWaits(Event, frozen=True):
    """The tip of the branch waits for another cluster; an earlier commit stays applied."""

    definition = EventDefinition("CommitWaits", Level.INFO, reason="CommitWaits", keys=("commit",))

    commit: CommitId
    reason: str

    def text(self) -> str:
        """The line in the log."""
        return f"commit {short(self.commit)} {self.reason}"


class CommitOverdue(Event, frozen=True):
    """The tip of the branch waits longer than the order allows: `waited` is in seconds."""

    definition = EventDefinition(
        "CommitOverdue",
        Level.ERROR,
        reason="CommitOverdue",
        warning=True,
        topic=Topic.STUCK,
        keys=("commit", "waited"),
    )

    commit: CommitId
    reason: str
    waited: float

    def text(self) -> str:
        """The line in the log."""
        waited = duration.words(self.waited)
        return (
            f"commit {short(self.commit)} is overdue after {waited}: {self.reason}; "
            f"`gitops-ds release {short(self.commit)}` lets it continue"
        )

    def notice(self) -> Notice | None:
        """The content of the notification."""
        return Notice(Topic.STUCK, self.text(), commit=self.commit)


class ReportsRead(Event, frozen=True):
    """The reports of the clusters changed; for the page only."""

    definition = EventDefinition("", on_page=False)


class ReportFailed(Event, frozen=True):
    """The report of this cluster was not published; later clusters wait."""

    definition = EventDefinition(
        "ReportFailed", Level.WARNING, reason="ReportFailed", warning=True, topic=Topic.STUCK
    )

    message: str

    def text(self) -> str:
        """The line in the log."""
        return f"the report of this cluster is not published: {self.message}"

    def notice(self) -> Notice | None:
        """The content of the notification."""
        return Notice(Topic.STUCK, self.text())
