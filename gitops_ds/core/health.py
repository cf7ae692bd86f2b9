"""The health of a DaemonSet and of the nodes that need its agent, and the status of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from gitops_ds.core.daemonset import Counts


class HealthState(StrEnum):
    """The health of an agent, as in docs/guides/health.md."""

    HEALTHY = "Healthy"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    SUSPENDED = "Suspended"
    MISSING = "Missing"
    FAILED = "Failed"


class Blame(StrEnum):
    """The cause of a node without a healthy agent of the wanted template.

    CLUSTER: a quota or an admission webhook refuses the pod. DESIGN: it waits because of the user's
    settings. UNKNOWN: it is in progress.
    """

    TEMPLATE = "template"
    NODE = "node"
    CLUSTER = "cluster"
    DESIGN = "design"
    UNKNOWN = "unknown"


class NodeHealth(msgspec.Struct, frozen=True):
    """A node with an unhealthy agent: the reason in one word, the cause, and the message of the
    kubelet or scheduler.
    """

    node: str
    reason: str
    blame: Blame
    message: str = ""


class NodeCounts(msgspec.Struct, frozen=True):
    """The nodes that need an agent, each counted once.

    `updated` nodes run the wanted template and are healthy, `starting` ones start it, `old` ones
    run an earlier template until their replacement, `parked` ones do so by design; `joining` ones
    were added after the change began and have no healthy agent yet. The other counters are named
    after the cause; `refused` counts nodes whose pod a quota or webhook refused.
    """

    updated: int = 0
    starting: int = 0
    old: int = 0
    parked: int = 0
    node_fault: int = 0
    template_fault: int = 0
    refused: int = 0
    joining: int = 0


class Health(msgspec.Struct, frozen=True):
    """The health of a DaemonSet: the state, a message, and the unhealthy nodes, sorted by name.

    `node_counts` divides its nodes by their state; `counts` are the counters of its status as they
    are now, None if the nodes may not be listed. `again` is when (seconds since 1970) the health
    may change without any event, None if it never does.
    """

    state: HealthState
    message: str
    nodes: tuple[NodeHealth, ...] = ()
    node_counts: NodeCounts = NodeCounts()
    again: float | None = None
    counts: Counts | None = None


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
    that at rest, empty without one. `requests` are those on all its nodes, in thousandths.
    """

    namespace: str
    name: str
    ready: bool
    health: HealthState
    sync: str
    suspended: bool
    commit: str
    node_counts: NodeCounts
    losses: tuple[NodeLoss, ...]
    rollout: RolloutCounts | None
    hold: str
    requests: Mapping[str, int]
