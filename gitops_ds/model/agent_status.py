"""The status of an agent: its health, its sync status, and the nodes that lost it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from gitops_ds.model.health import HealthState, NodeCounts


class LossCause(StrEnum):
    """Why a node that still exists lost its agent."""

    LABEL = "label"
    TAINT = "taint"
    TEMPLATE = "template"
    REFUSED = "refused"


class NodeLoss(msgspec.Struct, frozen=True):
    """A node that lost its agent: its pool (empty for none) and the cause. Similar nodes have the
    same description.
    """

    node: str
    pool: str
    cause: LossCause
    words: str


class RolloutCounts(msgspec.Struct, frozen=True):
    """Node counts of a staged rollout in progress: at risk and their limit, parked (including those
    set aside), proved, and the total.
    """

    at_risk: int
    limit: int
    parked: int
    proved: int
    total: int
    halted: bool


class AgentStatus(msgspec.Struct, frozen=True):
    """The status of one agent, for metrics. `hold` is the kind of the hold of its rollout, or of
    that at rest, empty without one.
    """

    namespace: str
    name: str
    ready: bool
    health: HealthState
    sync: str
    suspended: bool
    commit: str
    tally: NodeCounts
    losses: tuple[NodeLoss, ...] = ()
    rollout: RolloutCounts | None = None
    hold: str = ""
