"""The events of staged rollouts."""

from __future__ import annotations

from dataclasses import dataclass

from gitops_ds.model.events.base import ControllerEvent
from gitops_ds.model.events.definition import EventDefinition, Level, Tone
from gitops_ds.model.objects import CommitId, short
from gitops_ds.model.plural import counted
from gitops_ds.model.staged_rollout import Halt, StageHold, StagesDecision


@dataclass(frozen=True, slots=True)
class RolloutProgressed(ControllerEvent):
    """A decision about a rollout that differs from the one before it: for the page and for status."""

    definition = EventDefinition("", on_page=False)

    commit: CommitId
    stages: StagesDecision


@dataclass(frozen=True, slots=True)
class StageOpened(ControllerEvent):
    """A stage of a rollout begins: its nodes are updated now."""

    definition = EventDefinition(
        "StageOpened", Level.INFO, reason="StageOpened", keys=("commit", "stage")
    )

    commit: CommitId
    stage: str
    nodes: int

    def text(self) -> str:
        """The line in the log."""
        return f"{self.daemonset}: {self.kube_text()}"

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return f"{short(self.commit)}: stage {self.stage} is open, {counted(self.nodes, 'node')}"


@dataclass(frozen=True, slots=True)
class StagePassed(ControllerEvent):
    """Every node of a stage is proved."""

    definition = EventDefinition(
        "StagePassed", Level.INFO, Tone.GOOD, reason="StagePassed", keys=("commit", "stage")
    )

    commit: CommitId
    stage: str
    nodes: int

    def text(self) -> str:
        """The line in the log."""
        return f"{self.daemonset}: {self.kube_text()}"

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return (
            f"{short(self.commit)}: stage {self.stage} passed, {counted(self.nodes, 'node')} proved"
        )


@dataclass(frozen=True, slots=True)
class RolloutHeld(ControllerEvent):
    """No further node is updated for a reason that is no failure: a window, an approval, a limit."""

    definition = EventDefinition("RolloutHeld", Level.INFO, reason="RolloutHeld", keys=("commit",))

    commit: CommitId
    hold: StageHold

    def text(self) -> str:
        """The line in the log."""
        return f"{self.daemonset}: {self.kube_text()}"

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return f"{short(self.commit)}: the rollout is on hold: {self.hold.reason}"


@dataclass(frozen=True, slots=True)
class RolloutHalted(ControllerEvent):
    """A failure that the template causes: no further node is updated until another commit replaces this one."""

    definition = EventDefinition(
        "RolloutHalted", Level.ERROR, reason="RolloutHalted", warning=True, keys=("commit",)
    )

    commit: CommitId
    halt: Halt

    def text(self) -> str:
        """The line in the log."""
        return f"{self.daemonset}: {self.kube_text()}"

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return f"{short(self.commit)}: halted in stage {self.halt.stage}: {self.halt.message}"
