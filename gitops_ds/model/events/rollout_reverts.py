"""Events of reverts in Git after a halted rollout."""

from __future__ import annotations

from gitops_ds.model.events.agents import AgentEvent
from gitops_ds.model.events.definition import EventDefinition, Level, Notice, Tone, Topic
from gitops_ds.model.objects import CommitId, short


class RevertEvent(AgentEvent, frozen=True):
    """An event about the revert of the commit of a halted rollout."""

    commit: CommitId

    def text(self) -> str:
        """The line in the log."""
        return f"{self.daemonset}: {self.kube_text()}"

    def notice(self) -> Notice | None:
        """The content of the notification, one for each commit and text."""
        mark = f"{self.definition.reason} {self.kube_text()}"
        return Notice(Topic.FAILED, self.text(), mark, self.commit, self.daemonset)


class RevertCommitted(RevertEvent, frozen=True):
    """A commit that reverts the template of a halted rollout is on the branch."""

    definition = EventDefinition(
        "RevertCommitted",
        Level.INFO,
        Tone.GOOD,
        reason="RevertCommitted",
        topic=Topic.FAILED,
        keys=("commit", "revert", "branch"),
    )

    revert: CommitId
    branch: str

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return (
            f"commit {short(self.commit)} is reverted by {short(self.revert)} on {self.branch}: "
            "its rollout was halted"
        )


class RevertProposed(RevertEvent, frozen=True):
    """A commit that reverts the template of a halted rollout waits for its merge.

    `url` is the page of the pull request, empty if another replica or cluster opened it.
    """

    definition = EventDefinition(
        "RevertProposed",
        Level.WARNING,
        reason="RevertProposed",
        warning=True,
        topic=Topic.FAILED,
        keys=("commit", "branch", "url"),
    )

    branch: str
    url: str

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        where = self.url or f"branch {self.branch} exists"
        return f"merge the revert of commit {short(self.commit)}, whose rollout was halted: {where}"


class RevertFailed(RevertEvent, frozen=True):
    """The revert of a halted rollout's commit is not in Git; the halt stays.

    `retry_in` is in seconds.
    """

    definition = EventDefinition(
        "RevertFailed",
        Level.ERROR,
        reason="RevertFailed",
        warning=True,
        topic=Topic.FAILED,
        keys=("commit", "message", "retry_in"),
    )

    message: str
    retry_in: float
    command: str

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return (
            f"commit {short(self.commit)} is not reverted, its rollout stays halted: "
            f"{self.message}; manually: {self.command}"
        )
