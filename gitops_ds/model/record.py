"""One fact, one record: log, metrics, events, the status page and the journal are folds of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gitops_ds.errors import ClusterError
from gitops_ds.model.decision import Action, Decision, Observation, Status
from gitops_ds.model.objects import Key, Resource


@dataclass(frozen=True, slots=True)
class Record:
    """Something that happened, `at` seconds since 1970."""

    at: float


@dataclass(frozen=True, slots=True)
class Decided(Record):
    """A turn: all that was seen, and what it wants, often nothing; `performed` is False where the powers do not reach."""

    daemonset: Key
    decision: Decision
    performed: bool
    seen: Observation

    @property
    def wants(self) -> bool:
        """Whether it wants, or complains of, anything."""
        return bool(self.decision.actions or self.decision.status is not None or self.decision.complaint)


@dataclass(frozen=True, slots=True)
class Performed(Record):
    """An action that the cluster took. `object` is what it was done to, as the reply named it."""

    daemonset: Key
    action: Action
    object: Key


@dataclass(frozen=True, slots=True)
class ActionFailed(Record):
    """An action that the cluster refused."""

    daemonset: Key
    action: Action
    error: ClusterError


@dataclass(frozen=True, slots=True)
class StatusWritten(Record):
    """New counters."""

    daemonset: Key
    status: Status


@dataclass(frozen=True, slots=True)
class StatusFailed(Record):
    """Counters that the cluster did not take."""

    daemonset: Key
    error: ClusterError


@dataclass(frozen=True, slots=True)
class Listed(Record):
    """A whole list was read: at the start, or because the watch was lost."""

    resource: Resource
    objects: int
    version: str


@dataclass(frozen=True, slots=True)
class WatchFailed(Record):
    """A list or a watch failed, and is tried again `retry_in` seconds later."""

    resource: Resource
    error: ClusterError
    retry_in: float


@dataclass(frozen=True, slots=True)
class JournalFailed(Record):
    """The journal can't be written. Turns are missing in it until `JournalMended`."""

    message: str


@dataclass(frozen=True, slots=True)
class JournalMended(Record):
    """The journal is written again; so many turns are missing."""

    missing: int


Emit = Callable[[Record], None]
