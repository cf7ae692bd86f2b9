"""One fact, one record: log, metrics, events, the status page and the journal are folds of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gitops_ds.errors import ClusterError
from gitops_ds.model.decision import Action, Decision, Observation, StatusUpdate
from gitops_ds.model.objects import Key, Resource


@dataclass(frozen=True, slots=True)
class Record:
    """Something that happened, `at` seconds since 1970."""

    at: float


@dataclass(frozen=True, slots=True)
class Decided(Record):
    """A turn: all that was seen, and what it wants, often nothing; `performed` is False where the
    powers do not reach.
    """

    daemonset: Key
    decision: Decision
    performed: bool
    seen: Observation

    @property
    def wants(self) -> bool:
        """Whether it wants, or complains of, anything."""
        return bool(
            self.decision.actions or self.decision.status is not None or self.decision.complaint
        )


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
    status: StatusUpdate


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
class TaskRestarted(Record):
    """A background task ended with an error that it must not have, and starts again `retry_in`
    seconds later.
    """

    task: str
    message: str
    retry_in: float


@dataclass(frozen=True, slots=True)
class JournalFailed(Record):
    """The journal can't be written. Turns are missing in it until `JournalMended`."""

    message: str


@dataclass(frozen=True, slots=True)
class JournalMended(Record):
    """The journal is written again; so many turns are missing."""

    missing: int


class Unlike(StrEnum):
    """In what somebody else's controller did otherwise."""

    CREATE = "create"
    DELETE = "delete"
    ROLLOUT = "rollout"
    STANDSTILL = "standstill"


@dataclass(frozen=True, slots=True)
class Differed(Record):
    """In an interval that began at `since`, the built-in controller did otherwise: what ours
    wanted, what theirs did.
    """

    daemonset: Key
    since: float
    what: Unlike
    ours: str
    theirs: str


@dataclass(frozen=True, slots=True)
class Compared(Record):
    """An interval came to its end; without `differences` the built-in controller did what ours
    would have done.

    Pods by node: those that both made and ended, and of these `replaced` by a rollout with at most
    `at_risk` nodes without an available pod, or with one more, at once. `elsewhere` are pods that
    went, which ours would have kept: somebody's deletions.
    """

    daemonset: Key
    since: float
    differences: int
    created: Mapping[str, int]
    deleted: Mapping[str, int]
    replaced: int = 0
    at_risk: int = 0
    elsewhere: Mapping[str, int] = field(default_factory=dict)


Emit = Callable[[Record], None]
