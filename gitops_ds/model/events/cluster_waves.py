"""Events of a commit in the order of clusters."""

from __future__ import annotations

from gitops_ds.model import duration
from gitops_ds.model.events.base import Event
from gitops_ds.model.events.definition import EventDefinition, Level, Notice, Topic
from gitops_ds.model.objects import CommitId, short


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
