"""The changes of startup taints: removed from nodes whose required agents are ready, and under
`continuous` added to single nodes whose agent is not; the history of those that are added again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import msgspec

from gitops_ds.core.daemonset import Pod
from gitops_ds.core.live import Node, Taint
from gitops_ds.core.objects import Body, Key
from gitops_ds.core.rate_limits import Backoff
from gitops_ds.core.startup_taints import AgentWait, StartupTaintPolicy, TaintChange
from gitops_ds.kube.apimachinery import nodes
from gitops_ds.startup_taints.node_waits import NodeState, Surroundings


class Unready(msgspec.Struct, frozen=True):
    """By node: since when each required agent is not ready, in seconds since 1970. `pending` are
    the nodes that are getting our taint.
    """

    since: Mapping[str, Mapping[Key, float]]
    pending: Set[str] = frozenset()


def removal(state: NodeState) -> TaintChange | None:
    """The removal of the startup taints of a node that may get work; None without any."""
    if not state.taints or not state.is_released:
        return None
    node = state.node
    return TaintChange(node.name, node.uid, node.taints, state.taints, agents=state.given_up)


def additions(
    states: Mapping[str, NodeState], unready: Unready, policy: StartupTaintPolicy, now: float
) -> tuple[TaintChange, ...]:
    """The nodes that get our taint because a required agent is not ready for too long, the longest
    first.

    No node gets it for an agent that is not ready on more nodes than may be tainted: that cause is
    not the node's, and the rollout of the agent halts.
    """
    late = _late(states, unready, policy, now)
    if not late:
        return ()
    common = _common(states.values(), policy)
    tainted = sum(policy.own in _plain(state.node.taints) for state in states.values())
    left = policy.most(len(states)) - tainted - len(unready.pending)
    changes: list[TaintChange] = []
    for name in sorted(late, key=lambda name: (min(unready.since[name].values()), name)):
        agents = tuple(wait for wait in late[name] if wait.agent not in common)
        if agents and len(changes) < left:
            node = states[name].node
            changes.append(TaintChange(name, node.uid, node.taints, (), policy.own, agents))
    return tuple(changes)


def follow(
    before: Mapping[Key, float], state: NodeState, pods: Sequence[Pod], around: Surroundings
) -> Mapping[Key, float]:
    """Since when each agent of a node is not ready; a new pod starts again, and a node that becomes
    ready, because its kubelet has not reported its pods yet.
    """
    keys = {agent.uid: agent.key for agent in around.agents}
    created = {keys.get(pod.owner.uid): pod.created for pod in pods if pod.owner is not None}
    return {
        wait.agent: max(
            before.get(wait.agent, around.now), created.get(wait.agent, 0.0), state.since
        )
        for wait in state.waits
        if not (wait.stuck or wait.planned)
    }


def removal_patch(change: TaintChange) -> list[dict[str, Any]]:
    """The JSON patch of a node, which fails if the node is another one, or if these taints are not
    at their indexes any more. Other taints may come and go.
    """
    patch: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": change.uid}]
    for at in change.removed:
        taint = change.taints[at]
        patch += (
            {"op": "test", "path": f"/spec/taints/{at}/{name}", "value": value}
            for name, value in (("key", taint.key), ("effect", taint.effect))
        )
    # from the end, so that the indexes before it stay valid
    patch += ({"op": "remove", "path": f"/spec/taints/{at}"} for at in reversed(change.removed))
    return patch


def addition_patch(change: TaintChange, live: Body) -> list[dict[str, Any]] | None:
    """The JSON patch of the live node, which fails if the node has changed meanwhile; None if it
    has other taints than before. A list that is absent can't be tested otherwise.
    """
    node, taint = nodes.node_of(live), change.added
    if taint is None or node.uid != change.uid or node.taints != change.taints:
        return None
    version = str((live.get("metadata") or {}).get("resourceVersion") or "")
    body = {"key": taint.key, "effect": taint.effect}
    path, value = ("/spec/taints/-", body) if node.taints else ("/spec/taints", [body])
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": path, "value": value},
    ]


def is_made(change: TaintChange, after: Node) -> bool:
    """Whether a node has the change after its patch, which an admission webhook may revert."""
    there = _plain(after.taints)
    if change.added is not None:
        return change.added in there
    return there.isdisjoint(_plain(change.taints[at] for at in change.removed))


def _late(
    states: Mapping[str, NodeState], unready: Unready, policy: StartupTaintPolicy, now: float
) -> dict[str, tuple[AgentWait, ...]]:
    """The agents that are not ready for too long, by node, of nodes that may get our taint. A pod
    that waits for nothing but a time is ready.
    """
    late = {}
    for name, times in unready.since.items():
        state = states.get(name)
        if state is None or not state.node.ready or state.node.deleting:
            continue
        if name in unready.pending or policy.own in _plain(state.node.taints):
            continue
        agents = tuple(
            wait
            for wait in state.waits
            if wait.until is None
            and wait.agent in times
            and now >= times[wait.agent] + policy.not_ready_for
        )
        if agents:
            late[name] = agents
    return late


def _common(states: Iterable[NodeState], policy: StartupTaintPolicy) -> frozenset[Key]:
    """The agents that are not ready on more of their nodes than may be tainted."""
    required, unready = Counter[Key](), Counter[Key]()
    for state in states:
        required.update(state.required)
        if state.node.ready:
            unready.update(wait.agent for wait in (*state.waits, *state.given_up))
    return frozenset(key for key, count in unready.items() if count > policy.most(required[key]))


def _plain(taints: Iterable[Taint]) -> set[Taint]:
    """The taints without their values."""
    return {Taint(taint.key, taint.effect) for taint in taints}


FORGOTTEN_AFTER = 600.0  # seconds after a removal; later ones count as the first
CONTESTED_AT = 3  # removals in a row; the first ones may be races
_BACKOFF = Backoff(first=1.0, longest=60.0)


class _Removals(msgspec.Struct, frozen=True):
    uid: str
    at: float
    count: int


class TaintHistory:
    """The startup taints of nodes that another client adds again, as far as this process saw it."""

    def __init__(self) -> None:
        self._untainted: dict[str, str] = {}  # UIDs by name
        self._tainted_at: dict[str, float] = {}
        self._removals: dict[str, _Removals] = {}

    def saw(self, node: Node, is_tainted: bool, now: float) -> None:
        """Notes a state of a node."""
        name, uid = node.name, node.uid
        if not is_tainted:
            self._untainted[name] = uid
            return
        known = self._untainted.pop(name, "")
        if known and (known != uid or self._of(name, uid, now) is None):
            self._tainted_at.pop(name, None)
        if known == uid:
            self._tainted_at.setdefault(name, now)

    def forget(self, name: str) -> None:
        """Forgets a node that is gone."""
        for memory in (self._untainted, self._tainted_at, self._removals):
            memory.pop(name, None)

    def tainted_at(self, name: str) -> float:
        """When a node without startup taints got one, for the first time while it was removed again
        and again, in seconds since 1970; 0 if it came with it.
        """
        return self._tainted_at.get(name, 0.0)

    def added(self, name: str) -> None:
        """Notes that the service added a startup taint itself."""
        self._removals.pop(name, None)

    def removed(self, name: str, uid: str, now: float) -> None:
        """Notes that the startup taints of a node were removed."""
        earlier = self._of(name, uid, now)
        self._removals[name] = _Removals(uid, now, earlier.count + 1 if earlier else 1)

    def removable_at(self, name: str, uid: str, now: float) -> float:
        """From when the startup taints of a node may be removed: less and less often while another
        client adds them again.
        """
        earlier = self._of(name, uid, now)
        return earlier.at + _BACKOFF.delay(earlier.count) if earlier else now

    def is_contested(self, name: str, uid: str, now: float) -> bool:
        """Whether another client adds the taint of a node again and again."""
        earlier = self._of(name, uid, now)
        return earlier is not None and earlier.count >= CONTESTED_AT

    def _of(self, name: str, uid: str, now: float) -> _Removals | None:
        earlier = self._removals.get(name)
        is_recent = earlier is not None and now < earlier.at + FORGOTTEN_AFTER
        return earlier if is_recent and earlier is not None and earlier.uid == uid else None
