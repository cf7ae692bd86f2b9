"""The base of all events, and the events of the DaemonSet controller and of the process.

Log, metrics, Kubernetes events, notifications and the page are folds of events. A
class of events declares its public names as an `EventDefinition` and its texts as methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import ClassVar

import msgspec

from gitops_ds.core.decision import (
    Action,
    CreatePod,
    Decision,
    DeletePod,
    NominatePod,
    Observation,
    PromoteRevision,
    RecordRollout,
)
from gitops_ds.core.errors import ClusterError
from gitops_ds.core.events.definition import EventDefinition, Level, Notice, Sample, Tone
from gitops_ds.core.objects import Key, Resource

_TONES = {Level.ERROR: Tone.BAD, Level.WARNING: Tone.WARN}


class EventOrigin(msgspec.Struct, frozen=True):
    """The deployer that an event is of: the owner's id, empty before it is read, and the name of
    its repository. Both are empty for other parts.
    """

    owner: str = ""
    repository: str = ""


class OriginatedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What the bus adds to an event."""

    origin: EventOrigin = EventOrigin()


class Event(OriginatedEvent, frozen=True):
    """Something that happened; `at` is in seconds since 1970."""

    definition: ClassVar[EventDefinition]

    at: float

    @property
    def level(self) -> Level:
        """The severity in logs."""
        return self.definition.level

    @property
    def tone(self) -> Tone:
        """The colour on the page."""
        return _TONES.get(self.level, self.definition.tone)

    @property
    def logged(self) -> bool:
        """Whether JSON logs contain the event."""
        return bool(self.definition.kind)

    @property
    def about(self) -> Key | None:
        """The object that the event is about."""
        return None

    def text(self) -> str:
        """The line in the log; empty for an event only for programs."""
        return ""

    def details(self) -> Mapping[str, str]:
        """Values in JSON logs that are not fields."""
        return {}

    @property
    def kube_reason(self) -> str:
        """The reason of the Kubernetes event; empty for none."""
        return self.definition.reason

    @property
    def kube_warning(self) -> bool:
        """Whether the type of the Kubernetes event is Warning."""
        return self.definition.warning

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return self.text()

    def samples(self) -> tuple[Sample, ...]:
        """The changes of metrics."""
        return (Sample(self.definition.metric),) if self.definition.metric else ()

    def notice(self) -> Notice | None:
        """The content of the notification, None for no notification."""
        return Notice(self.definition.topic) if self.definition.topic else None


class ControllerEvent(Event, frozen=True):
    """An event of the DaemonSet controller."""

    daemonset: Key

    @property
    def about(self) -> Key | None:
        """The DaemonSet."""
        return self.daemonset


class Decided(ControllerEvent, frozen=True):
    """A reconciliation: the observation and the decision, often without actions; `performed` is
    False if the controller only observes.
    """

    definition = EventDefinition("Decided")

    decision: Decision
    performed: bool
    seen: Observation

    @property
    def wants(self) -> bool:
        """Whether the decision contains actions, a new status or a complaint."""
        return bool(
            self.decision.actions or self.decision.status is not None or self.decision.complaint
        )

    @property
    def logged(self) -> bool:
        """Whether JSON logs contain the event."""
        return self.wants


_SUCCESSES: Mapping[type, tuple[str, str]] = {
    CreatePod: ("SuccessfulCreate", "Created pod"),
    DeletePod: ("SuccessfulDelete", "Deleted pod"),
}
_FAILURES: Mapping[type, tuple[str, str]] = {
    CreatePod: ("FailedCreate", "creating"),
    DeletePod: ("FailedDelete", "deleting"),
    NominatePod: ("FailedCreate", "keeping the place"),
    RecordRollout: ("FailedHistory", "recording the rollout"),
    PromoteRevision: ("FailedHistory", "promoting the target revision"),
}


class ActionEvent(ControllerEvent, frozen=True):
    """The result of an action."""

    action: Action

    @property
    def target(self) -> Key | None:
        """The object of the action; None for a pod that was not created."""
        return getattr(self.action, "key", None)

    def details(self) -> Mapping[str, str]:
        """The action, its object and its node."""
        details = {
            "action": type(self.action).__name__,
            "target": str(self.target or ""),
            "node": str(getattr(self.action, "node", "")),
        }
        return {name: value for name, value in details.items() if value}

    def _described(self) -> str:
        """`CreatePod logging/agent-x7f2k on node-1`; a pod that was not created has no name."""
        target, node = self.target, str(getattr(self.action, "node", ""))
        name = f" {target.namespace}/{target.name}" if target else ""
        return f"{type(self.action).__name__}{name}{f' on {node}' if node else ''}"


class Performed(ActionEvent, frozen=True):
    """An action that the API server accepted. `object` is its object, as named in the response."""

    # A rollout over 5,000 nodes performs 10,000 actions; the page has a map of nodes.
    definition = EventDefinition("Performed", Level.INFO, on_page=False)

    object: Key

    @property
    def target(self) -> Key | None:
        """The object."""
        return self.object

    def text(self) -> str:
        """The line in the log."""
        return f"{self.daemonset}: {self._described()}: {self.action.why}"

    @property
    def kube_reason(self) -> str:
        """That of Kubernetes' own controller."""
        return _SUCCESSES.get(type(self.action), ("", ""))[0]

    def kube_text(self) -> str:
        """As Kubernetes' own controller writes it."""
        return f"{_SUCCESSES[type(self.action)][1]}: {self.object.name}"


class ActionFailed(ActionEvent, frozen=True):
    """An action that the API server refused."""

    definition = EventDefinition("ActionFailed", Level.WARNING, warning=True)

    error: ClusterError

    def text(self) -> str:
        """The line in the log."""
        return f"{self.daemonset}: {self._described()} failed: {self.error}"

    @property
    def kube_reason(self) -> str:
        """That of Kubernetes' own controller."""
        return _FAILURES.get(type(self.action), ("FailedHistory", ""))[0]

    def kube_text(self) -> str:
        """As Kubernetes' own controller writes it."""
        doing = _FAILURES.get(type(self.action), ("", "writing the history"))[1]
        return f"Error {doing}: {self.error.server_message}"


class StatusWritten(ControllerEvent, frozen=True):
    """New counters in the status of a DaemonSet."""

    definition = EventDefinition("StatusWritten")


class StatusFailed(ControllerEvent, frozen=True):
    """A status update that the API server refused."""

    definition = EventDefinition("StatusFailed", Level.WARNING)

    error: ClusterError

    def text(self) -> str:
        """The line in the log."""
        return f"{self.daemonset}: status update failed: {self.error}"


class Listed(Event, frozen=True):
    """A list of all objects of a kind: at the start, or after the loss of a watch."""

    definition = EventDefinition("Listed")


class WatchFailed(Event, frozen=True):
    """A failed list or watch; the next attempt is `retry_in` seconds later."""

    definition = EventDefinition("WatchFailed", Level.WARNING, keys=("retry_in",))

    resource: Resource
    error: ClusterError
    retry_in: float

    def text(self) -> str:
        """The line in the log."""
        return (
            f"watch of {self.resource.plural} failed: {self.error}; next attempt in "
            f"{self.retry_in:.0f} s"
        )


class TaskRestarted(Event, frozen=True):
    """An unexpected error in a background task, which restarts `retry_in` seconds later."""

    definition = EventDefinition(
        "TaskRestarted", Level.ERROR, metric="gitopsds_task_restarts", keys=("retry_in",)
    )

    task: str
    message: str
    retry_in: float

    def text(self) -> str:
        """The line in the log."""
        return (
            f"internal error in task {self.task!r}: {self.message}; restart in "
            f"{self.retry_in:.0f} s"
        )

    def samples(self) -> tuple[Sample, ...]:
        """One restart of the task."""
        return (Sample(self.definition.metric, self.task),)


class DifferenceKind(StrEnum):
    """The subject of a difference between two controllers."""

    CREATE = "create"
    DELETE = "delete"
    ROLLOUT = "rollout"
    STANDSTILL = "standstill"


class Differed(ControllerEvent, frozen=True):
    """A difference to the built-in controller in an interval that began at `since` (seconds since
    1970): our decision, and the action of the built-in controller.
    """

    definition = EventDefinition(
        "Differed",
        Level.WARNING,
        metric="gitopsds_shadow_differences",
        keys=("since", "what", "ours", "theirs"),
    )

    since: float
    what: DifferenceKind
    ours: str
    theirs: str

    def text(self) -> str:
        """The line in the log."""
        return (
            f"{self.daemonset}: the built-in controller acted differently: ours wants "
            f"{self.ours}; theirs {self.theirs}"
        )

    def samples(self) -> tuple[Sample, ...]:
        """One difference of its subject."""
        return (Sample(self.definition.metric, self.what.value),)


class Compared(ControllerEvent, frozen=True):
    """A completed interval; without `differences` both controllers did the same.

    Pods by node: those that both created and deleted; of these, `replaced` by a rollout with at
    most `at_risk` nodes at once that lack an available pod or have a surplus one. `elsewhere` are
    pods that were deleted by others and that our controller would have kept.
    """

    definition = EventDefinition(
        "Compared",
        metric="gitopsds_shadow_intervals",
        keys=("since", "differences", "created", "deleted", "elsewhere", "replaced", "at_risk"),
    )

    since: float
    differences: int
    created: Mapping[str, int]
    deleted: Mapping[str, int]
    replaced: int = 0
    at_risk: int = 0
    elsewhere: Mapping[str, int] = msgspec.field(default_factory=dict)

    def samples(self) -> tuple[Sample, ...]:
        """One interval."""
        return (Sample(self.definition.metric, "differed" if self.differences else "agreed"),)


Emit = Callable[[Event], None]
