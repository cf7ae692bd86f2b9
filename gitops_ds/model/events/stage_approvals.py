"""The events of approvals of stages of rollouts."""

from __future__ import annotations

from gitops_ds.model.events.agents import AgentEvent
from gitops_ds.model.events.definition import EventDefinition, Level, Notice, Tone, Topic
from gitops_ds.model.objects import CommitId, short


class ApprovalEvent(AgentEvent, frozen=True):
    """An event about the approval of a stage of a commit's rollout."""

    commit: CommitId
    stage: str

    def text(self) -> str:
        """The line in the log."""
        return f"{self.daemonset}: {self.kube_text()}"


class StageApproved(ApprovalEvent, frozen=True):
    """A stage was approved, by a signed commit or a review."""

    definition = EventDefinition(
        "StageApproved",
        Level.INFO,
        Tone.GOOD,
        reason="StageApproved",
        keys=("commit", "stage", "approval"),
    )

    approval: str

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return f"stage {self.stage} of commit {short(self.commit)} is approved by {self.approval}"


class ApprovalFailed(ApprovalEvent, frozen=True):
    """The approvals of a stage can't be read; the stage waits. `retry_in` is in seconds."""

    definition = EventDefinition(
        "ApprovalFailed",
        Level.WARNING,
        reason="ApprovalFailed",
        warning=True,
        topic=Topic.STUCK,
        keys=("commit", "stage", "message", "retry_in"),
    )

    message: str
    retry_in: float

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return (
            f"approvals of stage {self.stage} of commit {short(self.commit)} cannot be read: "
            f"{self.message}"
        )

    def notice(self) -> Notice | None:
        """The content of the notification, one for each commit and text."""
        mark = f"{self.definition.reason} {self.kube_text()}"
        return Notice(Topic.STUCK, self.text(), mark, self.commit, self.daemonset)
