"""The events of staged rollouts."""

from __future__ import annotations

from collections.abc import Sequence

from gitops_ds.model.events.agents import HALTED
from gitops_ds.model.events.base import ControllerEvent
from gitops_ds.model.events.definition import (
    EventDefinition,
    Level,
    Notice,
    Sample,
    Tone,
    Topic,
)
from gitops_ds.model.objects import CommitId, short
from gitops_ds.model.plain_text import counted
from gitops_ds.model.rollouts.staged_rollout import Halt, StageHold, StagesDecision

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
    event.
    """

    commit: CommitId

    def text(self) -> str:
        """The line in the log."""
        return f"{self.daemonset}: {self.kube_text()}"


class StageOpened(RolloutEvent, frozen=True):
    """A stage of a rollout begins: its nodes are updated now."""

    definition = EventDefinition(
        "StageOpened", Level.INFO, reason="StageOpened", metric=METRIC, keys=("commit", "stage")
    )

    stage: str
    nodes: int

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return f"{short(self.commit)}: stage {self.stage} is open, {counted(self.nodes, 'node')}"

    def samples(self) -> tuple[Sample, ...]:
        """One opened stage."""
        return (Sample(METRIC, "opened"),)


class StagePassed(RolloutEvent, frozen=True):
    """Every node of a stage is proved."""

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

    def samples(self) -> tuple[Sample, ...]:
        """One passed stage."""
        return (Sample(METRIC, "passed"),)


class StageNodesReplaced(RolloutEvent, frozen=True):
    """A stage of a number of nodes takes others instead of those that died, left or were
    cordoned. `lost` are these, each with its reason.
    """

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
        taken, lost = _listed(self.taken), _listed(self.lost)
        return f"{short(self.commit)}: stage {self.stage} takes {taken} instead of {lost}"

    def samples(self) -> tuple[Sample, ...]:
        """One replacement."""
        return (Sample(METRIC, "replaced"),)


class RolloutHeld(RolloutEvent, frozen=True):
    """No further node is updated, for a reason other than a failure: a window, an approval."""

    definition = EventDefinition(
        "RolloutHeld", Level.INFO, reason="RolloutHeld", metric=METRIC, keys=("commit",)
    )

    hold: StageHold

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return f"{short(self.commit)}: the rollout is on hold: {self.hold.text}"

    def samples(self) -> tuple[Sample, ...]:
        """One hold."""
        return (Sample(METRIC, "held"),)


class RolloutHalted(RolloutEvent, frozen=True):
    """A failure caused by the template: no further node is updated with this commit."""

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

    def samples(self) -> tuple[Sample, ...]:
        """One halt."""
        return (Sample(METRIC, "halted"),)

    def notice(self) -> Notice | None:
        """The content of the notification, one for each commit."""
        return Notice(Topic.FAILED, self.text(), HALTED, self.commit, self.daemonset)


def _listed(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else ""
    return ", ".join(nodes[:NAMED]) + more
