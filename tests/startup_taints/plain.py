"""Plain nodes, agents and pods for the tables."""

from __future__ import annotations

from typing import Any

from gitops_ds.core.daemonset import Owner, Phase, Pod, PodContent
from gitops_ds.core.live import Node, Taint
from gitops_ds.core.objects import Body, Key
from gitops_ds.core.required_in_git import RequiredInGit
from gitops_ds.core.rollouts.proven_templates import TemplateHistory
from gitops_ds.core.startup_taints import OWN, Enforce, StartupTaintPolicy
from gitops_ds.kube.apimachinery import daemonsets, node_eligibility, pod_contents
from gitops_ds.startup_taints import node_waits, required_agents
from gitops_ds.startup_taints.node_waits import NodeState, Surroundings
from gitops_ds.startup_taints.required_agents import CountedTemplate, PodTemplates, RequiredAgent

START = 1_800_000_000.0
GPU = Taint("nvidia.com/gpu", "NoSchedule")
CILIUM = Taint("node.cilium.io/agent-not-ready", "NoExecute")
TOLERATES_ALL = [{"operator": "Exists"}]
POLICY = StartupTaintPolicy(others=(Taint("node.cilium.io/agent-not-ready", ""),))
CONTINUOUS = StartupTaintPolicy(enforce=Enforce.CONTINUOUS)


def content(image: str = "agent:1", **container: Any) -> PodContent:
    """The content of a pod with one container."""
    containers = [{"name": "agent", "image": image, **container}]
    return pod_contents.of_template({"spec": {"containers": containers}})


def templates(*hashes: str, pinned: str = "", note: str = "", stuck: bool = False) -> PodTemplates:
    """Templates of one content: of these hashes, and of a rollout in progress; of any without."""
    counted = [CountedTemplate(content(), frozenset(hashes) if hashes else None)]
    if pinned:
        counted.insert(0, CountedTemplate(content(), frozenset([pinned]), pinned=True))
    return PodTemplates(tuple(counted), note, stuck, frozenset([pinned] if pinned else []))


def in_git(
    body: Body, history: TemplateHistory | None = None, staged: bool = False, **about: Any
) -> RequiredInGit:
    """A required agent with this manifest, which is applied."""
    record = required_agents.record_of(body, staged=staged)
    key = daemonsets.daemonset_of(body).key
    return RequiredInGit(key, record, record, history or TemplateHistory(), **about)


def node(name: str = "n1", *taints: Taint, **fields: Any) -> Node:
    values = {"created": START, "ready_since": START, "uid": f"uid-{name}", **fields}
    return Node(name, taints=taints or (OWN,), **values)


def key(name: str) -> Key:
    return Key("apps", "DaemonSet", "agents", name)


ANY = templates()


def agent(
    name: str = "a",
    min_ready: int = 0,
    templates: PodTemplates | None = None,
    **spec: Any,
) -> RequiredAgent:
    placer = node_eligibility.read({"spec": {"tolerations": TOLERATES_ALL, **spec}})
    return RequiredAgent(key(name), f"uid-{name}", (placer,), min_ready, templates or ANY)


def pod(name: str = "a", on: str = "n1", ready: bool = True, **fields: Any) -> Pod:
    """A pod of an agent, ten seconds younger than its node, and ready after five."""
    values: dict[str, Any] = {
        "created": START + 10,
        "ready_since": START + 15,
        "phase": Phase.RUNNING,
        "hash": "1",
        "bound": True,
        "content": content(),
        **fields,
    }
    owner = Owner("DaemonSet", name, f"uid-{name}")
    return Pod(
        "agents", f"{name}-{on}", f"{name}-{on}", node=on, owner=owner, ready=ready, **values
    )


def state(
    node: Node,
    *pods: Pod,
    agents: tuple[RequiredAgent, ...] = (),
    after: float = 60.0,
    policy: StartupTaintPolicy = POLICY,
) -> NodeState:
    """The state of a node that many seconds after its start, with one agent by default."""
    return node_waits.state_of(
        node, pods, Surroundings(policy, agents or (agent_a,), START + after)
    )


agent_a = agent()
