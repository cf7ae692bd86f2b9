"""What is told of agents as they stand: how a rollout went, and nodes that lost their agent though
nobody committed that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gitops_ds.model.decision import Health, HealthState, NodeCounts
from gitops_ds.model.events.base import Record
from gitops_ds.model.objects import CommitId, Key


class Cover(StrEnum):
    """Why an agent is no longer on a node that is still there."""

    LABEL = "label"
    TAINT = "taint"
    TEMPLATE = "template"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Loss:
    """A node that lost its agent: its pool (empty: in none), and the cause, also in words that are
    the same for alike nodes.
    """

    node: str
    pool: str
    cause: Cover
    words: str


@dataclass(frozen=True, slots=True)
class Standing(Record):
    """About the agent that is this DaemonSet."""

    daemonset: Key
    uid: str


@dataclass(frozen=True, slots=True)
class CoverageLost(Standing):
    """These nodes lost the agent close together, of so many that had it; no commit says so."""

    losses: tuple[Loss, ...]
    of: int


@dataclass(frozen=True, slots=True)
class HealthChanged(Standing):
    """An agent's health is another now; `before` is None at the first look. `commit` is the one on
    the object, or empty.
    """

    before: HealthState | None
    health: Health
    commit: CommitId


@dataclass(frozen=True, slots=True)
class CommitArrived(Standing):
    """The DaemonSet as it is now is of another commit than before; `subject` is that one's, where
    the object tells it.
    """

    commit: CommitId
    subject: str


@dataclass(frozen=True, slots=True)
class RolloutStarted(Standing):
    """The wanted template is another one than `nodes` nodes run; of a new agent it is the first
    one.
    """

    commit: CommitId
    revision: int
    nodes: int


@dataclass(frozen=True, slots=True)
class RolloutCompleted(Standing):
    """Every node that can runs the wanted template; it took so many seconds."""

    commit: CommitId
    revision: int
    nodes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RolloutFailed(Standing):
    """A rollout's health is Failed; told once for each rollout."""

    commit: CommitId
    revision: int
    message: str


@dataclass(frozen=True, slots=True)
class AgentLine:
    """What is counted of one agent."""

    namespace: str
    name: str
    ready: bool
    health: HealthState
    sync: str
    suspended: bool
    commit: str
    tally: NodeCounts
    losses: tuple[Loss, ...] = ()
