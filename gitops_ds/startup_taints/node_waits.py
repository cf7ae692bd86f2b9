"""For which of the agents that Git requires on it a node waits, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gitops_ds.core.daemonset import Pod, PodCause, PodContent
from gitops_ds.core.live import Node
from gitops_ds.core.objects import Key
from gitops_ds.core.startup_taints import AgentWait, NodeWait, StartupTaintPolicy
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import node_eligibility, pod_cause
from gitops_ds.startup_taints.required_agents import RequiredAgent

# Seconds after the creation of a node until pods that are older than it count: by then its kubelet
# has reported their state, or the garbage collector has deleted them.
# https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/controller/podgc/gc_controller.go
# (quarantineTime, gcCheckPeriod)
OLDER_PODS_COUNT_AFTER = 90.0

NO_POD = "NoPod"
NOT_READY = "NotReady"
STARTING = "Starting"
NOT_AVAILABLE = "MinReadySeconds"
OTHER_TEMPLATE = "Template"
OLDER_POD = "OlderPod"
NOT_TOLERATED = "TaintNotTolerated"
_UNSCHEDULABLE = "Unschedulable"

# The taints of Kubernetes, and Karpenter, for a state of the node that passes. That of a node that
# joins (`not-ready`) is still there when the node is ready, and pods of DaemonSets do not tolerate
# it.
# https://kubernetes.io/docs/reference/labels-annotations-taints/
# https://karpenter.sh/docs/concepts/nodeclaims/
_PASSING = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "karpenter.sh/unregistered",
)


class Surroundings(msgspec.Struct, frozen=True):
    """What the waits of all nodes depend on. `now` is in seconds since 1970; `warnings` are the
    newest warning events of pods that are not well, by their UID.
    """

    policy: StartupTaintPolicy
    agents: tuple[RequiredAgent, ...]
    now: float
    warnings: Mapping[str, PodCause] = msgspec.field(default_factory=dict)


class NodeState(msgspec.Struct, frozen=True):
    """A node: the indexes of its startup taints, the agents that it waits for, those that are stuck
    and no longer count, and since when it waits.

    `required` are all agents that Git requires on it. `since` and `wake_at`, when the state changes
    without an event, are seconds since 1970.
    """

    node: Node
    taints: tuple[int, ...] = ()
    waits: tuple[AgentWait, ...] = ()
    given_up: tuple[AgentWait, ...] = ()
    required: tuple[Key, ...] = ()
    since: float = 0.0
    wake_at: float | None = None

    @property
    def is_released(self) -> bool:
        """Whether the node may get work."""
        return self.node.ready and not self.node.deleting and not self.waits

    @property
    def wait(self) -> NodeWait | None:
        """The wait of a node with a startup taint; None for any other."""
        if not self.taints or self.node.deleting or self.is_released:
            return None
        node = self.node
        return NodeWait(node.name, node.uid, self.since, self.waits, ready=node.ready)


def state_of(
    node: Node, pods: Sequence[Pod], around: Surroundings, tainted_at: float = 0.0
) -> NodeState:
    """The state of a node with these pods. `tainted_at` is when it got a startup taint again."""
    policy = around.policy
    taints = tuple(at for at, taint in enumerate(node.taints) if policy.covers(taint))
    bare = node
    if node.taints:
        lasting = (taint for taint in node.taints if not taint.key.startswith(_PASSING))
        bare = replace(node, taints=tuple(taint for taint in lasting if not policy.covers(taint)))
    required = [agent for agent in around.agents if agent.is_required_on(bare)]
    edited = [agent for agent in around.agents if agent.is_edited_onto(bare)]
    waits = []
    for agent in (*required, *edited):
        wait = _wait(agent, node, tuple(_own(agent, pods)), around)
        if wait is not None:
            waits.append(replace(wait, stuck=wait.stuck or agent in edited))
    # the clock of the node may be ahead
    is_known = node.ready and node.ready_since <= around.now
    since = max(node.created, node.ready_since if is_known else 0.0, tainted_at)
    ends = {
        agent_wait.agent: max(since, agent_wait.since) + policy.report_after
        for agent_wait in waits
        if agent_wait.stuck
    }
    given_up = [
        agent_wait for agent_wait in waits if ends.get(agent_wait.agent, math.inf) <= around.now
    ]
    counted = [
        agent_wait for agent_wait in waits if ends.get(agent_wait.agent, math.inf) > around.now
    ]
    reported_at = since + policy.report_after
    times = [
        *(agent_wait.until for agent_wait in counted if agent_wait.until is not None),
        *(at for at in (*ends.values(), reported_at) if counted and at > around.now),
    ]
    return NodeState(
        node,
        taints,
        tuple(counted),
        tuple(given_up),
        tuple(agent.key for agent in required),
        since,
        min(times, default=None),
    )


def _own(agent: RequiredAgent, pods: Sequence[Pod]) -> Iterator[Pod]:
    for pod in pods:
        is_owned = pod.owner is not None and pod.owner.uid == agent.uid
        if is_owned and pod.namespace == agent.key.namespace and not (pod.terminating or pod.ended):
            yield pod


def _wait(
    agent: RequiredAgent, node: Node, pods: Sequence[Pod], around: Surroundings
) -> AgentWait | None:
    """Why the node waits for the agent; None if it is ready."""
    waits = []
    for pod in pods:
        wait = _wait_of_pod(agent, node, pod, around)
        if wait is None:
            return None
        waits.append(wait)
    note, stuck = agent.templates.note, agent.templates.stuck
    if not waits:
        if node.taints and not agent.is_required_on(node) and (taints := _untolerated(agent, node)):
            message = f"its pods do not tolerate {taints}"
            return AgentWait(agent.key, NOT_TOLERATED, message, stuck=True)
        return AgentWait(agent.key, NO_POD, note, stuck=stuck, since=agent.since)
    shown = min(waits, key=lambda one: one.until is None)  # the next to become available
    if note and not shown.message:
        shown = replace(shown, message=note)
    return replace(shown, stuck=shown.stuck or stuck)


def _untolerated(agent: RequiredAgent, node: Node) -> str:
    """The taints of the node that keep the agent away by its records, as `KEY:EFFECT`."""
    tolerated = agent.placers[0].tolerations
    return ", ".join(
        taint.text for taint in node.taints if node_eligibility.untolerated(tolerated, [taint])
    )


def _wait_of_pod(
    agent: RequiredAgent, node: Node, pod: Pod, around: Surroundings
) -> AgentWait | None:
    """Why this pod does not count; None if it does."""
    planned = pod.hash in agent.templates.targets
    template = agent.template_of(pod, around.policy.mirrors)
    if template is None:
        message = agent.difference(pod, around.policy.mirrors)
        return AgentWait(agent.key, OTHER_TEMPLATE, message, planned=planned or pod.ready)
    if not pod.ready:
        cause = pod_cause.shown(pod, pod.trouble or _unready_reason(pod), around.warnings)
        return AgentWait(
            agent.key,
            cause.reason,
            cause.message,
            stuck=pod.trouble == _UNSCHEDULABLE and _needs_the_same(pod, template),
            since=pod.created,
            planned=planned,
        )
    available_at = pod.available_at(agent.min_ready_seconds)
    if available_at is None or available_at > around.now:
        message = f"ready for less than {agent.min_ready_seconds} s"
        return AgentWait(agent.key, NOT_AVAILABLE, message, available_at, planned=planned)
    counts_at = node.created + OLDER_PODS_COUNT_AFTER
    if _is_older(pod, node, around.now) and around.now < counts_at:
        message = "its pod is older than the node, and may be that of an earlier one"
        return AgentWait(agent.key, OLDER_POD, message, counts_at, planned=planned)
    return None


def _needs_the_same(pod: Pod, template: PodContent) -> bool:
    """Whether the scheduler places a pod by the template alone: that another one fits no node
    does not concern the agent.
    """
    return pod.content is not None and pod.content.room == template.room


def _is_older(pod: Pod, node: Node, now: float) -> bool:
    """Whether a pod was created and became ready before its node: the status may be that of an
    earlier node of the same name, whose pods are not deleted yet, and whose clock may be ahead.
    """
    return pod.created < node.created and not node.created <= (pod.ready_since or 0.0) <= now


def _unready_reason(pod: Pod) -> str:
    return NOT_READY if pod.restarts or pod.ready_since else STARTING
