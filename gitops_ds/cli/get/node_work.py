"""The nodes of a cluster with the agents that they wait for, from lists."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gitops_ds.core import errors, startup_taints
from gitops_ds.core.cluster import BRIEF, ClusterReader
from gitops_ds.core.decision import Observation
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.live import Node, Taint
from gitops_ds.core.objects import CONFIG_MAP, POD, Body, Key
from gitops_ds.core.startup_taints import OWN, AgentWait, NodeWait, StartupTaintPolicy
from gitops_ds.daemonset import cache
from gitops_ds.daemonset.indexes import PodsByNode
from gitops_ds.deploy import state_store
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.startup_taints import node_waits, required_agents
from gitops_ds.startup_taints.node_waits import Surroundings
from gitops_ds.status import agent_lists


class NodeWork(msgspec.Struct, frozen=True):
    """A node, and its wait; None if it gets work as far as startup taints are concerned. Without a
    stored state of each owner (`is_known`) the agents that it waits for are unknown.
    """

    node: Node
    taints: tuple[str, ...]
    wait: NodeWait | None
    is_known: bool = True

    @property
    def word(self) -> str:
        """Yes, Waiting, Released for a node whose taints are about to be removed, or Unknown."""
        if not self.taints:
            return "Yes"
        if self.wait is not None:
            return "Waiting"
        return "Released" if self.is_known else "Unknown"


# The taints to which `deploy/rights/startup-taints` limits the service.
LIMITS = "gitops-ds-startup-taints"


async def policy_of_service(cluster: ClusterReader, state_namespace: str) -> StartupTaintPolicy:
    """The startup taints of the service, from the ConfigMap that limits it to them; the default
    ones if that is missing or may not be read. Raises ClusterError.
    """
    try:
        body = await cluster.get(CONFIG_MAP, state_namespace, LIMITS)
    except (errors.NotFound, errors.Forbidden):
        return StartupTaintPolicy()
    data = body.get("data") or {}
    own = _taints(str(data.get("taint") or ""))
    return StartupTaintPolicy(
        own=own[0] if own else OWN, others=_taints(str(data.get("alsoRemove") or ""))
    )


def _taints(text: str) -> tuple[Taint, ...]:
    """The taints in a text with commas, without those of another format."""
    found = []
    for word in filter(None, map(str.strip, text.split(","))):
        with contextlib.suppress(ValueError):
            found.append(startup_taints.parse(word))
    return tuple(found)


async def read(
    cluster: ClusterReader, state_namespace: str, policy: StartupTaintPolicy | None, now: float
) -> tuple[NodeWork, ...]:
    """All nodes, sorted by name. Without a policy that of the service is read. Raises
    ClusterError.
    """
    policy = policy or await policy_of_service(cluster, state_namespace)
    states = await state_store.load_all(cluster, state_namespace)
    content = cache.Cache()
    by_node = content.by_node = PodsByNode()
    kinds = [resource for resource in cache.WATCHED if resource != POD]
    lists = await asyncio.gather(*(cluster.list(resource, BRIEF) for resource in kinds))
    for resource, listing in zip(kinds, lists, strict=True):
        content.replace(resource, listing.items, listing.version)
    is_known = bool(states) and all(state.knows_required for state in states.values())
    required = required_agents.of_states(states.values())
    content.replace(POD, (), "")
    if any(policy.covers(taint) for node in content.nodes.values() for taint in node.taints):
        content.replace(POD, await _pods(cluster, content, required), "")
    agents = tuple(
        required_agents.agent_of(required[key], *content.find(key)) for key in sorted(required)
    )
    around = Surroundings(policy, agents, now)
    nodes = [
        node_waits.state_of(node, by_node.on(name), around)
        for name, node in sorted(content.nodes.items())
    ]
    return tuple(
        NodeWork(
            state.node,
            tuple(state.node.taints[at].text for at in state.taints),
            state.wait,
            is_known,
        )
        for state in nodes
    )


async def _pods(
    cluster: ClusterReader, content: cache.Cache, required: Iterable[Key]
) -> list[Body]:
    """The pods of these DaemonSets. Raises ClusterError."""
    daemonsets = (content.daemonset(key) for key in required)
    selections = agent_lists.pod_lists([one for one in daemonsets if one], ())
    lists = await asyncio.gather(*(cluster.list(POD, which) for which in selections))
    return [body for listing in lists for body in listing.items]


def of_agent(
    seen: Observation, state: DeployerState, policy: StartupTaintPolicy
) -> list[dict[str, Any]]:
    """The nodes with a startup taint that wait for one DaemonSet, as a part of a document; `state`
    is that of its owner.
    """
    required = required_agents.of_states([state]).get(seen.daemonset.key)
    if required is None:
        return []
    pods = PodsByNode()
    pods.replace(seen.pods)
    agents = (required_agents.agent_of(required, seen.daemonset, seen.revisions),)
    around = Surroundings(policy, agents, seen.now)
    states = (node_waits.state_of(node, pods.on(node.name), around) for node in seen.nodes)
    return [
        {"node": state.node.name, **_wait(wait)}
        for state in states
        if state.taints and not state.node.deleting
        for wait in state.waits
    ]


def as_json(work: NodeWork) -> dict[str, Any]:
    """The node as a document."""
    wait = work.wait
    document: dict[str, Any] = {
        "name": work.node.name,
        "ready": work.node.ready,
        "work": work.word,
        "startupTaints": list(work.taints),
    }
    if wait is not None:
        document |= {
            "waitingSince": timestamps.text(wait.since),
            "waitsFor": [
                {"namespace": agent.agent.namespace, "name": agent.agent.name, **_wait(agent)}
                for agent in wait.agents
            ],
        }
    return document


def _wait(agent: AgentWait) -> Mapping[str, Any]:
    until = {} if agent.until is None else {"until": timestamps.text(agent.until)}
    return {"reason": agent.reason, "message": agent.message, **until}
