"""Events of drift: objects that were changed in the cluster."""

from __future__ import annotations

from datetime import UTC, datetime

from gitops_ds.core.change import Drifted
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.definition import EventDefinition, Level, Notice, Sample, Tone, Topic
from gitops_ds.core.objects import Key
from gitops_ds.core.skip_reasons import DriftPolicy

_DRIFT = "gitopsds_drift"


class DriftEvent(Event, frozen=True):
    """An event about an object that was changed in the cluster; `words` describe the change."""

    object: Key
    drifted: Drifted
    words: str

    @property
    def about(self) -> Key | None:
        """The object."""
        return self.object

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return self.words if self.object.is_daemonset else f"{self.object}: {self.words}"

    def _drift_notice(self) -> Notice:
        return Notice(Topic.DRIFT, key=self.object)


class DriftDetected(DriftEvent, frozen=True):
    """A change of the object in the cluster. Emitted once, and again for another change."""

    definition = EventDefinition(
        "DriftDetected",
        Level.WARNING,
        reason="DriftDetected",
        warning=True,
        metric=_DRIFT,
        topic=Topic.DRIFT,
    )

    def text(self) -> str:
        """The line in the log."""
        choice = self.drifted.choice
        left = (
            ""
            if choice is DriftPolicy.CORRECT
            else f"; not corrected, because drift is set to {choice}"
        )
        return f"drift: {self.object} was {self.words}{left}"

    def samples(self) -> tuple[Sample, ...]:
        """One object, if drift is only reported."""
        report = self.drifted.choice is DriftPolicy.REPORT
        return (Sample(_DRIFT, "reported"),) if report else ()

    def notice(self) -> Notice | None:
        """The content of the notification."""
        return self._drift_notice()


class DriftCorrected(DriftEvent, frozen=True):
    """The object matches Git again."""

    definition = EventDefinition(
        "DriftCorrected", Level.INFO, Tone.GOOD, reason="DriftCorrected", metric=_DRIFT
    )

    def text(self) -> str:
        """The line in the log."""
        return f"drift on {self.object} corrected"

    def samples(self) -> tuple[Sample, ...]:
        """One correction."""
        return (Sample(_DRIFT, "corrected"),)


class DriftContested(DriftEvent, frozen=True):
    """Another writer repeats its change after each correction: the next correction waits. Emitted
    once before each correction.
    """

    definition = EventDefinition(
        "DriftContested",
        Level.WARNING,
        reason="DriftContested",
        warning=True,
        metric=_DRIFT,
        topic=Topic.DRIFT,
    )

    def text(self) -> str:
        """The line in the log."""
        return (
            f"drift: {self.object} was {self.words}; another writer repeats it after each "
            "correction, so the next correction waits"
        )

    def samples(self) -> tuple[Sample, ...]:
        """One postponed correction."""
        return (Sample(_DRIFT, "contested"),)

    def notice(self) -> Notice | None:
        """The content of the notification."""
        return self._drift_notice()


class DriftPaused(DriftEvent, frozen=True):
    """The change stays until then (seconds since 1970)."""

    definition = EventDefinition(
        "DriftHeld", Level.INFO, reason="DriftHeld", warning=True, metric=_DRIFT
    )

    until: float

    def text(self) -> str:
        """The line in the log."""
        until = datetime.fromtimestamp(int(self.until), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"drift: {self.object} is paused until {until}, then corrected"

    def samples(self) -> tuple[Sample, ...]:
        """One object."""
        return (Sample(_DRIFT, "held"),)
