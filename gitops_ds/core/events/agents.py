"""Events of agents: health, rollouts, and nodes that lost their agent without a commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gitops_ds.core.events.base import Event
from gitops_ds.core.events.definition import EventDefinition, Level, Notice, Tone, Topic
from gitops_ds.core.health import Health, HealthState, NodeLoss
from gitops_ds.core.objects import CommitId, Key, short
from gitops_ds.core.plain_text import counted

HALTED = "halted"  # the mark of notifications about a halted rollout


class AgentEvent(Event, frozen=True):
    """An event about the agent that is this DaemonSet."""

    daemonset: Key
    uid: str

    @property
    def about(self) -> Key | None:
        """The DaemonSet."""
        return self.daemonset

    def text(self) -> str:
        """The line in the log: reason and message of the Kubernetes event."""
        if not self.kube_reason:
            return ""
        return f"{self.daemonset}: {self.kube_reason} {self.kube_text()}"


class CoverageLost(AgentEvent, frozen=True):
    """Nodes that lost the agent at about the same time without a commit, and the number that had
    it.
    """

    definition = EventDefinition(
        "CoverageLost", Level.WARNING, reason="CoverageLost", warning=True, topic=Topic.COVERAGE
    )

    losses: tuple[NodeLoss, ...]
    of: int

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return summarize_losses(self.losses, self.of)

    def notice(self) -> Notice | None:
        """The content of the notification."""
        return Notice(Topic.COVERAGE, f"{self.daemonset}: {self.kube_text()}", key=self.daemonset)


def summarize_losses(losses: Sequence[NodeLoss], of: int) -> str:
    """`20 of 500 nodes lost their agent without a commit: pool gpu: 20 (label disk=ssd was
    removed)`.
    """
    groups = Counter((loss.pool, loss.words) for loss in losses)
    ordered = sorted(groups.items(), key=lambda group: (-group[1], group[0]))
    parts = [
        f"{f'pool {pool}' if pool else 'no pool'}: {count} ({why})"
        for (pool, why), count in ordered[:5]
    ]
    more = f"; {len(ordered) - 5} more groups" if len(ordered) > 5 else ""
    summary = "; ".join(parts)
    return f"{len(losses)} of {of} nodes lost their agent without a commit: {summary}{more}"


_LEVELS = {HealthState.DEGRADED: Level.WARNING, HealthState.MISSING: Level.WARNING}


class HealthChanged(AgentEvent, frozen=True):
    """A new health of an agent; `before` is None at the first observation. `commit` is that of the
    object, or empty.
    """

    definition = EventDefinition("HealthChanged", Level.INFO, keys=("commit",))

    before: HealthState | None
    health: Health
    commit: CommitId

    @property
    def level(self) -> Level:
        """By the health; debug for the first observation of a healthy agent."""
        if self.before is None and self.health.state is HealthState.HEALTHY:
            return Level.DEBUG
        return _LEVELS.get(self.health.state, Level.INFO)

    @property
    def kube_reason(self) -> str:
        """Degraded, Recovered, or none."""
        if self.before is None:
            return ""
        if self.health.state is HealthState.DEGRADED:
            return "Degraded"
        recovered = self.health.state is HealthState.HEALTHY and self.before in (
            HealthState.DEGRADED,
            HealthState.FAILED,
        )
        return "Recovered" if recovered else ""

    @property
    def kube_warning(self) -> bool:
        """True for a degraded agent."""
        return self.health.state is HealthState.DEGRADED

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return self.health.message

    def details(self) -> Mapping[str, str]:
        """The health, its message, and the health before."""
        since = {} if self.before is None else {"before": str(self.before)}
        return {"health": str(self.health.state), "message": self.health.message, **since}


class CommitArrived(AgentEvent, frozen=True):
    """A DaemonSet has another commit than before; `subject` is that of the commit, empty if the
    object lacks it.
    """

    definition = EventDefinition("CommitArrived", Level.INFO, reason="Applied", keys=("commit",))

    commit: CommitId
    subject: str

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return f"{short(self.commit)} {self.subject}".rstrip()


def _revision(commit: CommitId, number: int) -> str:
    """The commit, if one gave the template, and the revision."""
    return f"{short(commit)}: revision {number}" if commit else f"revision {number}"


class RolloutStarted(AgentEvent, frozen=True):
    """`nodes` nodes run another template than the DaemonSet's; for a new agent, the template is its
    first one.
    """

    definition = EventDefinition(
        "RolloutStarted", Level.INFO, reason="RolloutStarted", keys=("commit",)
    )

    commit: CommitId
    revision: int
    nodes: int

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return (
            f"{_revision(self.commit, self.revision)}; "
            f"{counted(self.nodes, 'node runs', 'nodes run')} an earlier one"
        )


class RolloutCompleted(AgentEvent, frozen=True):
    """Every node that can be updated runs the DaemonSet's template, after `seconds`."""

    definition = EventDefinition(
        "RolloutCompleted",
        Level.INFO,
        Tone.GOOD,
        reason="RolloutCompleted",
        topic=Topic.DONE,
        keys=("commit",),
    )

    commit: CommitId
    revision: int
    nodes: int
    seconds: float

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return (
            f"{_revision(self.commit, self.revision)} runs on "
            f"{counted(self.nodes, 'node')}, after {self.seconds:.0f} s"
        )

    def notice(self) -> Notice | None:
        """The content of the notification."""
        text = f"{self.daemonset}: {self.kube_text()}"
        return Notice(Topic.DONE, text, str(self.revision), self.commit, self.daemonset)


class RolloutFailed(AgentEvent, frozen=True):
    """The health of a rollout is Failed; emitted once for each rollout. `halted`: a staged rollout
    is halted, which RolloutHalted reports too; receivers get one notification.
    """

    definition = EventDefinition(
        "RolloutFailed",
        Level.ERROR,
        reason="RolloutFailed",
        warning=True,
        topic=Topic.FAILED,
        keys=("commit",),
    )

    commit: CommitId
    revision: int
    message: str
    halted: bool = False

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return f"{_revision(self.commit, self.revision)}: {self.message}"

    def notice(self) -> Notice | None:
        """The content of the notification."""
        text = f"{self.daemonset}: rollout failed: {self.kube_text()}"
        mark = HALTED if self.halted else str(self.revision)
        return Notice(Topic.FAILED, text, mark, self.commit, self.daemonset)
