"""The events of staged rollouts: stages, their approvals, and reverts in Git."""

from __future__ import annotations

from typing import ClassVar

from gitops_ds.core import plain_text
from gitops_ds.core.events.agents import HALTED, AgentEvent
from gitops_ds.core.events.base import ControllerEvent
from gitops_ds.core.events.definition import EventDefinition, Level, Notice, Sample, Tone, Topic
from gitops_ds.core.objects import CommitId, short
from gitops_ds.core.plain_text import counted
from gitops_ds.core.rollouts.staged_rollout import Halt, StageHold, StagesDecision

METRIC = "gitopsds_rollout_stage_events"
NAMED = 5  # nodes that a message names


class RolloutProgressed(ControllerEvent, frozen=True):
    """A decision about a rollout that differs from the previous one.

    `uid` is that of the DaemonSet. `commit` is empty if the DaemonSet already has the template.
    """

    definition = EventDefinition("", on_page=False)

    uid: str
    commit: CommitId
    stages: StagesDecision


class RolloutEvent(ControllerEvent, frozen=True):
    """A step of the rollout of a commit; the log adds the DaemonSet to the text of its Kubernetes
    event. `step` is the label of its metric.
    """

    step: ClassVar[str]

    commit: CommitId

    def samples(self) -> tuple[Sample, ...]:
        """One step."""
        return (Sample(METRIC, self.step),)

    def text(self) -> str:
        """The line in the log."""
        return f"{self.daemonset}: {self.kube_text()}"


class StageOpened(RolloutEvent, frozen=True):
    """A stage of a rollout begins: its nodes are updated now."""

    step = "opened"
    definition = EventDefinition(
        "StageOpened", Level.INFO, reason="StageOpened", metric=METRIC, keys=("commit", "stage")
    )

    stage: str
    nodes: int
    taken_from: str = ""

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        text = f"{short(self.commit)}: stage {self.stage} is open, {counted(self.nodes, 'node')}"
        return f"{text} of {self.taken_from}: no node matches it" if self.taken_from else text


class StagePassed(RolloutEvent, frozen=True):
    """Every node of a stage is proved."""

    step = "passed"
    definition = EventDefinition(
        "StagePassed",
        Level.INFO,
        Tone.GOOD,
        reason="StagePassed",
        metric=METRIC,
        keys=("commit", "stage"),
    )

    stage: str
    nodes: int

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return (
            f"{short(self.commit)}: stage {self.stage} passed, {counted(self.nodes, 'node')} proved"
        )


class StageNodesReplaced(RolloutEvent, frozen=True):
    """A stage of a number of nodes takes others instead of those that died, left or were
    cordoned. `lost` are these, each with its reason.
    """

    step = "replaced"
    definition = EventDefinition(
        "StageNodesReplaced",
        Level.INFO,
        reason="StageNodesReplaced",
        metric=METRIC,
        keys=("commit", "stage"),
    )

    stage: str
    lost: tuple[str, ...]
    taken: tuple[str, ...]

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        taken, lost = plain_text.listed(self.taken, NAMED), plain_text.listed(self.lost, NAMED)
        return f"{short(self.commit)}: stage {self.stage} takes {taken} instead of {lost}"


class RolloutHeld(RolloutEvent, frozen=True):
    """No further node is updated, for a reason other than a failure: a window, an approval."""

    step = "held"
    definition = EventDefinition(
        "RolloutHeld", Level.INFO, reason="RolloutHeld", metric=METRIC, keys=("commit",)
    )

    hold: StageHold

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return f"{short(self.commit)}: the rollout is on hold: {self.hold.text}"


class RolloutHalted(RolloutEvent, frozen=True):
    """A failure caused by the template: no further node is updated with this commit."""

    step = "halted"
    definition = EventDefinition(
        "RolloutHalted",
        Level.ERROR,
        reason="RolloutHalted",
        warning=True,
        metric=METRIC,
        topic=Topic.FAILED,
        keys=("commit",),
    )

    halt: Halt

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return f"{short(self.commit)}: halted in stage {self.halt.stage}: {self.halt.message}"

    def notice(self) -> Notice | None:
        """The content of the notification, one for each commit."""
        return Notice(Topic.FAILED, self.text(), HALTED, self.commit, self.daemonset)


def _also(text: str) -> str:
    return f"; {text}" if text else ""


class GitStepEvent(AgentEvent, frozen=True):
    """An event about an approval or a revert of the commit of a rollout, both in Git."""

    commit: CommitId

    def text(self) -> str:
        """The line in the log."""
        return f"{self.daemonset}: {self.kube_text()}"

    def notice(self) -> Notice | None:
        """The content of the notification, one for each commit and text."""
        if self.definition.topic is None:
            return None
        mark = f"{self.definition.reason} {self.kube_text()}"
        return Notice(self.definition.topic, self.text(), mark, self.commit, self.daemonset)


class StageApproved(GitStepEvent, frozen=True):
    """A stage was approved, by a signed commit or a review."""

    definition = EventDefinition(
        "StageApproved",
        Level.INFO,
        Tone.GOOD,
        reason="StageApproved",
        keys=("commit", "stage", "approval"),
    )

    stage: str
    approval: str

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return f"stage {self.stage} of commit {short(self.commit)} is approved by {self.approval}"


class ApprovalFailed(GitStepEvent, frozen=True):
    """The approvals of a stage can't be read; the stage waits. `retry_in` is in seconds."""

    definition = EventDefinition(
        "ApprovalFailed",
        Level.WARNING,
        reason="ApprovalFailed",
        warning=True,
        topic=Topic.STUCK,
        keys=("commit", "stage", "message", "retry_in"),
    )

    stage: str
    message: str
    retry_in: float

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return (
            f"approvals of stage {self.stage} of commit {short(self.commit)} cannot be read: "
            f"{self.message}"
        )


class ApprovalIgnored(GitStepEvent, frozen=True):
    """Commits with an approval of a stage do not count; the stage waits. `message` has the reason
    of each.
    """

    definition = EventDefinition(
        "ApprovalIgnored",
        Level.WARNING,
        reason="ApprovalIgnored",
        warning=True,
        topic=Topic.STUCK,
        keys=("commit", "stage", "message"),
    )

    stage: str
    message: str

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return (
            f"stage {self.stage} of commit {short(self.commit)} waits for its approval: "
            f"{self.message}"
        )


class RevertCommitted(GitStepEvent, frozen=True):
    """A commit that reverts the template of a halted rollout is on the branch. `taken_back` names
    the reverted commits, and other objects that change.
    """

    definition = EventDefinition(
        "RevertCommitted",
        Level.INFO,
        Tone.GOOD,
        reason="RevertCommitted",
        topic=Topic.FAILED,
        keys=("commit", "revert", "branch", "taken_back"),
    )

    revert: CommitId
    branch: str
    taken_back: str = ""

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return (
            f"commit {short(self.commit)} is reverted by {short(self.revert)} on {self.branch}: "
            f"its rollout was halted{_also(self.taken_back)}"
        )


class RevertProposed(GitStepEvent, frozen=True):
    """A commit that reverts the template of a halted rollout waits for its merge.

    `url` is the page of the pull request, empty if another replica or cluster opened it.
    `taken_back` names the reverted commits, other objects that change, and why the revert is not
    pushed.
    """

    definition = EventDefinition(
        "RevertProposed",
        Level.WARNING,
        reason="RevertProposed",
        warning=True,
        topic=Topic.FAILED,
        keys=("commit", "branch", "url", "taken_back"),
    )

    branch: str
    url: str
    taken_back: str = ""

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        where = self.url or f"branch {self.branch} exists"
        return (
            f"merge the revert of commit {short(self.commit)}, whose rollout was halted: {where}"
            f"{_also(self.taken_back)}"
        )


class RevertFailed(GitStepEvent, frozen=True):
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
