"""What is told of agents as they stand: how a rollout went, and nodes that lost their agent though nobody committed that."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gitops_ds.model.decision import Health, HealthState
from gitops_ds.model.objects import CommitId, Key
from gitops_ds.model.record import Record


class Cover(StrEnum):
    """Why an agent is no longer on a node that is still there."""

    LABEL = "label"
    TAINT = "taint"
    TEMPLATE = "template"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Loss:
    """A node that lost its agent: its pool (empty: in none), and the cause, also in words that are the same for alike nodes."""

    node: str
    pool: str
    cause: Cover
    words: str


@dataclass(frozen=True, slots=True)
class CoverageLost(Record):
    """These nodes lost the agent close together, of so many that had it; no commit says so."""

    daemonset: Key
    uid: str
    losses: tuple[Loss, ...]
    of: int


@dataclass(frozen=True, slots=True)
class HealthChanged(Record):
    """An agent's health is another now; `before` is None at the first look. `commit` is the one on the object, or empty."""

    daemonset: Key
    uid: str
    before: HealthState | None
    health: Health
    commit: CommitId


@dataclass(frozen=True, slots=True)
class RolloutStarted(Record):
    """The wanted template is another one than `nodes` nodes run. `revision` is 0 where the controller has not made it yet."""

    daemonset: Key
    uid: str
    commit: CommitId
    revision: int
    nodes: int


@dataclass(frozen=True, slots=True)
class RolloutCompleted(Record):
    """Every node that can runs the wanted template; it took so many seconds."""

    daemonset: Key
    uid: str
    commit: CommitId
    revision: int
    nodes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RolloutFailed(Record):
    """A rollout's health is Failed; told once for each rollout."""

    daemonset: Key
    uid: str
    commit: CommitId
    revision: int
    message: str
