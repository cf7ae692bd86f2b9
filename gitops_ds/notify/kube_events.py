"""The Kubernetes events of our events, with reasons that alerts rely on. Pure.

Events of a deployer are about the ConfigMap of its state. Events about a DaemonSet are those of the
controller, with the reasons and messages of Kubernetes' own, and those of commits and rollouts. A
repeated event raises the count of the first one, many similar events become one, and too many
events about one object with one reason are dropped: a rollout over 5,000 nodes costs the API server
a few dozen events (the rules of client-go's tools/record/events_cache.go, which counts the events
of all reasons together, so that many of one reason suppress a warning).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeGuard, TypeVar

import msgspec

from gitops_ds.core.decision import Action, DeleteCause, DeletePod
from gitops_ds.core.events.agents import AgentEvent
from gitops_ds.core.events.base import ControllerEvent, Decided, Event
from gitops_ds.core.events.commits import CommitRejected
from gitops_ds.core.events.drift import DriftEvent
from gitops_ds.core.events.leader_election import LeaderElected
from gitops_ds.core.events.rollouts import RolloutProgressed
from gitops_ds.core.events.startup_taints import NodeEvent
from gitops_ds.core.objects import DAEMONSET, LEASE, NODE, Key, short
from gitops_ds.core.redaction import report
from gitops_ds.core.values import replace

ALIKE = 10  # different messages of one reason, before the next ones are combined
ALIKE_WITHIN = 600.0  # seconds
BURST, REFILL = 25, 300.0  # events of one reason about an object; then one per that many seconds
REMEMBERED = 4096
COMBINED = "(combined from similar events): "


class InvolvedObject(msgspec.Struct, frozen=True):
    """The object that a Kubernetes event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


class KubeEvent(msgspec.Struct, frozen=True):
    """A Kubernetes event: its object, reason, message, and whether its type is Warning."""

    about: InvolvedObject
    reason: str
    message: str
    warning: bool = False


# One for each pod, by the DaemonSet controller only.
OF_PODS = frozenset(("SuccessfulCreate", "SuccessfulDelete"))
# The reasons of Kubernetes' own controller; such an event names it as its source.
UPSTREAM = frozenset(
    (
        *("SelectingAll", *OF_PODS),
        *("FailedCreate", "FailedDelete", "FailedHistory"),
        *("FailedDaemonPod", "SucceededDaemonPod", "FailedPlacement"),
    )
)


@dataclass(slots=True)
class EventRecorder:
    """Turns events into Kubernetes events; those of a deployer are about its `state`, and those of
    single pods are omitted unless `of_pods`. It remembers the UIDs of DaemonSets.
    """

    state: InvolvedObject | None = None
    of_pods: bool = True
    _daemonsets: dict[Key, InvolvedObject] = field(default_factory=dict)

    def kube_events(self, event: Event) -> tuple[KubeEvent, ...]:
        """The Kubernetes events of an event; none for an event that only logs contain."""
        if isinstance(event, Decided):
            if not event.performed:
                return ()
            about = _daemonset(event.daemonset, event.seen.daemonset.uid)
            self._daemonsets[event.daemonset] = about
            return tuple(_decided(event, about))
        if isinstance(event, RolloutProgressed):
            self._daemonsets[event.daemonset] = _daemonset(event.daemonset, event.uid)
            return ()
        result = kube_event(event, self._state(event))
        if result is None or (result.reason in OF_PODS and not self.of_pods):
            return ()
        return (result,)

    def _state(self, event: Event) -> InvolvedObject | None:
        if isinstance(event, ControllerEvent):
            return self._daemonsets.get(event.daemonset) or _daemonset(event.daemonset, "")
        if isinstance(event, LeaderElected):  # about the lease, if no repository is followed
            lease = InvolvedObject(LEASE.api_version, LEASE.kind, event.namespace, event.lease)
            return None if self.state else lease
        return self.state


def kube_event(event: Event, state: InvolvedObject | None) -> KubeEvent | None:
    """The Kubernetes event of an event that has a reason: about a DaemonSet, else about `state`."""
    about = _involved(event, state)
    if about is None or not event.kube_reason:
        return None
    message = _rejection(event) if isinstance(event, CommitRejected) else event.kube_text()
    return KubeEvent(about, event.kube_reason, message, event.kube_warning)


def _rejection(event: CommitRejected) -> str:
    return f"{short(event.commit)} is not applied: {report.line_of(event.findings[0])}"


def _involved(event: Event, state: InvolvedObject | None) -> InvolvedObject | None:
    match event:
        case AgentEvent(daemonset=key, uid=uid):
            return _daemonset(key, uid)
        case NodeEvent(node=name, uid=uid):
            return InvolvedObject(NODE.api_version, NODE.kind, "", name, uid)
        case DriftEvent(object=key, drifted=drifted) if key.is_daemonset and state is not None:
            return _daemonset(key, drifted.uid)
        case _:
            return state


def _daemonset(key: Key, uid: str) -> InvolvedObject:
    return InvolvedObject(DAEMONSET.api_version, key.kind, key.namespace, key.name, uid)


def _decided(event: Decided, about: InvolvedObject) -> Iterator[KubeEvent]:
    decision = event.decision
    if decision.complaint:
        yield KubeEvent(about, "SelectingAll", decision.complaint, warning=True)
    for action in decision.actions:
        if _has_ended(action):
            yield _ended(action, about)
    for node, reason in decision.unplaced.items():
        message = f"failed to place pod on {node!r}: {reason}"
        yield KubeEvent(about, "FailedPlacement", message, warning=True)


def _has_ended(action: Action) -> TypeGuard[DeletePod]:
    causes = (DeleteCause.FAILED, DeleteCause.SUCCEEDED)
    return isinstance(action, DeletePod) and action.cause in causes


def _ended(action: DeletePod, about: InvolvedObject) -> KubeEvent:
    """The text of Kubernetes' own controller."""
    pod = f"daemon pod {action.key.namespace}/{action.key.name} on node {action.node}"
    if action.cause is DeleteCause.FAILED:
        message = f"Found failed {pod}, will try to kill it"
        return KubeEvent(about, "FailedDaemonPod", message, warning=True)
    return KubeEvent(about, "SucceededDaemonPod", f"Found succeeded {pod}, will try to delete it")


class EventSeries(msgspec.Struct, frozen=True):
    """A Kubernetes event to create if `count` is 1, else to update. `first` and `last` are seconds
    since 1970.

    `id` is unique, and constant in a series.
    """

    event: KubeEvent
    id: str
    count: int
    first: float
    last: float


@dataclass(slots=True)
class _Alike:
    """The different messages of one reason about one object, and the time of the last one."""

    last: float
    messages: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Counted:
    """The ID of a series, the time of its first event, and the number of its events, also of those
    that were not written.
    """

    id: str
    first: float
    count: int = 0


@dataclass(slots=True)
class EventCorrelator:
    """Combines repeated and similar events, and limits those of one reason about an object."""

    _alike: dict[tuple[InvolvedObject, str], _Alike] = field(default_factory=dict)
    _counted: dict[KubeEvent, _Counted] = field(default_factory=dict)
    _full_at: dict[tuple[InvolvedObject, str], float] = field(default_factory=dict)

    def take(self, event: KubeEvent, now: float) -> EventSeries | None:
        """The event to write; None above the limit."""
        alike = self._alike.get((event.about, event.reason))
        if alike is None or now - alike.last > ALIKE_WITHIN:
            alike = _keep(self._alike, (event.about, event.reason), _Alike(now))
        alike.last = now
        series = event
        if len(alike.messages) >= ALIKE and event.message not in alike.messages:
            series = replace(event, message=COMBINED)
        else:
            alike.messages.add(event.message)
        counted = self._counted.get(series)
        if counted is None:
            id = hashlib.sha256(f"{series}{now}".encode()).hexdigest()[:16]
            counted = _keep(self._counted, series, _Counted(id, now))
        counted.count += 1
        if not self._allowed((event.about, event.reason), now):
            return None
        shown = event if series is event else replace(event, message=COMBINED + event.message)
        return EventSeries(shown, counted.id, counted.count, counted.first, now)

    def _allowed(self, kind: tuple[InvolvedObject, str], now: float) -> bool:
        full_at = max(self._full_at.get(kind, now), now) + REFILL
        if full_at - now > BURST * REFILL:
            return False
        _keep(self._full_at, kind, full_at)
        return True


K = TypeVar("K")
V = TypeVar("V")


def _keep(memory: dict[K, V], key: K, value: V) -> V:
    """Adds an entry; above the limit the oldest one is dropped."""
    memory[key] = value
    if len(memory) > REMEMBERED:
        del memory[next(iter(memory))]
    return value
