"""Events of startup taints: nodes that get work, and nodes that wait for their agents."""

from __future__ import annotations

from gitops_ds.core.errors import ClusterError
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.definition import EventDefinition, Level, Tone
from gitops_ds.core.live import Taint
from gitops_ds.core.startup_taints import AgentWait, NodeWait


class NodeEvent(Event, frozen=True):
    """An event about a node."""

    node: str
    uid: str

    def text(self) -> str:
        """The line in the log: the node, reason and message of the Kubernetes event."""
        return f"Node {self.node}: {self.kube_reason} {self.kube_text()}"


class StartupTaintsRemoved(NodeEvent, frozen=True):
    """A node gets work: the removed taints, the seconds that it waited, and the stuck agents that
    it has not.
    """

    definition = EventDefinition(
        "StartupTaintsRemoved", Level.INFO, Tone.GOOD, reason="AgentsReady"
    )

    taints: tuple[Taint, ...]
    seconds: float
    without: tuple[AgentWait, ...] = ()

    @property
    def level(self) -> Level:
        """A warning if the node lacks an agent."""
        return Level.WARNING if self.without else Level.INFO

    @property
    def kube_reason(self) -> str:
        """AgentsReady, or AgentsGivenUp if the node lacks one."""
        return "AgentsGivenUp" if self.without else self.definition.reason

    @property
    def kube_warning(self) -> bool:
        """True if the node lacks an agent."""
        return bool(self.without)

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        removed = f"removed {_texts(self.taints)} after {self.seconds:.0f} s"
        if not self.without:
            return f"the required agents are ready: {removed}"
        return f"{removed} without {'; '.join(agent_wait.text for agent_wait in self.without)}"


class StartupTaintAdded(NodeEvent, frozen=True):
    """A node gets no further work, because a required agent is not ready for too long."""

    definition = EventDefinition(
        "StartupTaintAdded", Level.WARNING, reason="AgentsNotReady", warning=True
    )

    taint: Taint
    agents: tuple[AgentWait, ...]

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return f"added {_texts((self.taint,))}: {'; '.join(agent.text for agent in self.agents)}"


class NodeWaitsForAgents(NodeEvent, frozen=True):
    """A node waits for longer than the settings allow."""

    definition = EventDefinition(
        "NodeWaitsForAgents", Level.WARNING, reason="WaitsForAgents", warning=True
    )

    wait: NodeWait

    def kube_text(self) -> str:
        """The message of the Kubernetes event."""
        return f"no work for {self.at - self.wait.since:.0f} s: {self.wait.text}"


class StartupTaintFailed(NodeEvent, frozen=True):
    """The taints of a node could not be changed; the request is repeated."""

    definition = EventDefinition("StartupTaintFailed", Level.WARNING)

    error: ClusterError

    def text(self) -> str:
        """The line in the log."""
        return f"Node {self.node}: startup taints are not changed: {self.error}"


def _texts(taints: tuple[Taint, ...]) -> str:
    return ", ".join(taint.text for taint in taints)
