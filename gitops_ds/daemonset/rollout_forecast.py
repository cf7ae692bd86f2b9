"""The forecast of a rollout of a DaemonSet: the nodes on which a change adds, removes or restarts a
pod, and its duration. Both are results of the same `decide`.

A node with a new taint or without a former label may keep its pod, but gets no other one: the
rollout removes it. Eligibility, which is a function of nodes, does not include that, so the nodes
are forecast from live pods.

The duration is that of a simulation, on nodes with fixed delays. The only failure is a stalled
rollout: no pod becomes ready on nodes that are not ready. The start and end times of a pod are
assumptions, and are shown beside every figure derived from them.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import msgspec

from gitops_ds.core import names, startup_taints
from gitops_ds.core.daemonset import DaemonSet, Owner, Phase, Pod, RollingUpdate, Share
from gitops_ds.core.decision import (
    Action,
    Adopt,
    CreatePod,
    CreateRevision,
    DeletePod,
    DeleteRevision,
    Observation,
)
from gitops_ds.core.live import JoinTime, Node, NodeImpact, Revision
from gitops_ds.core.objects import DAEMONSET, Body
from gitops_ds.core.values import replace
from gitops_ds.daemonset import claims, decide
from gitops_ds.kube.apimachinery import daemonsets, node_eligibility, revisions
from gitops_ds.kube.apimachinery.node_eligibility import Placement
from gitops_ds.rollouts.state import target_revisions

_EVERY_NODE = 10**9
_MOST_DECISIONS = 12
_WELL_SINCE = 0.0
_UID, _LONG_AGO = "rehearsal", -math.inf
# A rollout of a thousand nodes one by one needs a million observations of a node: then the rest is
# extrapolated from the beginning.
_MOST_LOOKS, _FEWEST_TURNS = 60_000, 60


def impact(seen: Observation) -> NodeImpact:
    """The effect after the rollout, if every new pod becomes ready; each group of nodes is sorted.

    `seen` has the future DaemonSet and the present nodes, pods and revisions. All nodes are updated
    at once: a budget affects the time of an update, not its result.
    """
    strategy = seen.daemonset.strategy
    if isinstance(strategy, RollingUpdate):
        whole = RollingUpdate(_whole(strategy.max_unavailable), _whole(strategy.max_surge))
        seen = replace(seen, daemonset=replace(seen.daemonset, strategy=whole, min_ready_seconds=0))
    seen = _adopted(replace(seen, pods=tuple(map(_well, seen.pods)), rooms=None, backoffs={}))
    # The pods of a deleted node end with or without the change.
    existing = {node.name for node in seen.nodes}
    before = {
        node: uids for node, uids in _by_node(claims.claim(seen).pods).items() if node in existing
    }
    for _ in range(_MOST_DECISIONS):
        after = _after(seen)
        if after is seen:
            break
        seen = after
    there = _by_node(claims.claim(seen).pods)
    return NodeImpact(
        gained=tuple(sorted(there.keys() - before.keys())),
        lost=tuple(sorted(before.keys() - there.keys())),
        restarted=tuple(
            sorted(node for node in before.keys() & there.keys() if not before[node] & there[node])
        ),
    )


def _whole(share: Share) -> Share:
    """A budget for all nodes at once. A number, because a percentage of zero desired nodes is
    zero.
    """
    if not share.amount:
        return share
    return Share(100, percent=True) if share.percent else Share(_EVERY_NODE)


def impact_of_change(seen: Observation, new: Body) -> NodeImpact:
    """As `impact`, for a change of the observed DaemonSet to `new`, as the API server would store
    it.
    """
    live, desired = seen.daemonset, daemonsets.daemonset_of(new)
    changed = not revisions.same_template(live.template, desired.template)
    after = replace(
        desired,
        uid=live.uid,
        template_generation="" if changed else live.template_generation,
        generation=live.generation + changed,
        observed_generation=live.observed_generation,
        collision_count=live.collision_count,
    )
    effect = impact(replace(seen, daemonset=after))
    if startup_taints.is_required(after.annotations):
        return replace(effect, joined=_join_time(seen))
    return effect


def _after(seen: Observation) -> Observation:
    """The observation after all actions of one decision; the same observation if it has no
    actions.
    """
    moves, past = decide.moves(seen)
    if not moves:
        return seen
    bodies = [action.body for action in past.actions if isinstance(action, CreateRevision)]
    new_revisions = [
        revisions.revision_of({**body, "metadata": {**body["metadata"], "uid": "new"}})
        for body in bodies
    ]
    gone = {action.uid for action in moves.deletes}
    new = [
        _made(seen, node, past.hash)
        for node in (*(action.node for action in moves.creates), *moves.later)
    ]
    pods = [pod for pod in seen.pods if pod.uid not in gone]
    return replace(
        seen,
        pods=(*pods, *new),
        revisions=(
            *seen.revisions,
            *(revision for revision in new_revisions if revision is not None),
        ),
    )


def _made(seen: Observation, node: str, hash: str) -> Pod:
    daemonset = seen.daemonset
    labels = (daemonset.template.get("metadata") or {}).get("labels") or {}
    return Pod(
        namespace=daemonset.key.namespace, name=f"new-{node}", uid=f"new-{node}", node=node,
        bound=True, labels=labels, owner=_owner(daemonset), phase=Phase.RUNNING,
        created=seen.now, ready=True, ready_since=_WELL_SINCE, hash=hash,
    )  # fmt: skip


def _owner(daemonset: DaemonSet) -> Owner:
    return Owner(DAEMONSET.kind, daemonset.key.name, daemonset.uid)


def _adopted(seen: Observation) -> Observation:
    """The observation after all adoptions of pods."""
    uids = {action.uid for action in claims.claim(seen).actions if isinstance(action, Adopt)}
    if not uids:
        return seen
    owner = _owner(seen.daemonset)
    pods = tuple(replace(pod, owner=owner) if pod.uid in uids else pod for pod in seen.pods)
    return replace(seen, pods=pods)


def _well(pod: Pod) -> Pod:
    """The pod as a healthy one: failures are replaced with or without the change."""
    return replace(
        pod, bound=True, phase=Phase.RUNNING, terminating=False, ready=True, ready_since=_WELL_SINCE
    )


def _by_node(pods: Iterable[Pod]) -> dict[str, set[str]]:
    uids: dict[str, set[str]] = {}
    for pod in pods:
        if pod.node:
            uids.setdefault(pod.node, set()).add(pod.uid)
    return uids


# Seconds after its node within which the first pod of a node is created.
_FIRST_WITHIN = 60.0


def _join_time(seen: Observation) -> JoinTime | None:
    """The time of the nodes whose first pod runs and was never restarted; None without any."""
    nodes = {node.name: node for node in seen.nodes}
    times = [
        pod.ready_since + seen.daemonset.min_ready_seconds - nodes[pod.node].created
        for pod in seen.pods
        if pod.node in nodes and pod.ready_since is not None and _is_first(pod, nodes[pod.node])
    ]
    return JoinTime(median(times), len(times)) if times else None


def _is_first(pod: Pod, node: Node) -> bool:
    is_of_join = 0.0 <= pod.created - node.created <= _FIRST_WITHIN
    return pod.ready and not pod.restarts and bool(node.created) and is_of_join


class RolloutPace(msgspec.Struct, frozen=True):
    """The assumed times of a pod in seconds: from its creation to readiness, and from its deletion
    until it is gone.
    """

    start: float = 30.0
    stop: float = 5.0


USUAL = RolloutPace()


class RolloutForecast(msgspec.Struct, frozen=True):
    """The result of a simulated rollout: its seconds, its steps, and the maximum of nodes at once
    without an available pod.

    `waiting` are the nodes without an available pod of the new template if it makes no progress;
    empty if it ends. `estimated`: only the beginning of a long rollout was simulated, and the rest
    is extrapolated.
    """

    seconds: float
    steps: int
    at_once: int
    waiting: tuple[str, ...] = ()
    estimated: bool = False


def of(
    old: Body | None, new: Body, nodes: Sequence[Node], pace: RolloutPace = USUAL
) -> RolloutForecast:
    """Simulates the rollout from the old DaemonSet, complete on every node, to the new one; bodies
    as the API server stores them.

    The simulation of a suspended DaemonSet, or of one with OnDelete, ends at once without any
    change; so does that of one whose selector does not match its template: the API server refuses
    it, and its pods would be created without end.
    """
    daemonset = _daemonset(new)
    labels = (daemonset.template.get("metadata") or {}).get("labels") or {}
    if not claims.selects(daemonset, daemonset.key.namespace, labels):
        return RolloutForecast(0.0, 0, 0)
    stage = _Stage(daemonset, nodes, pace)
    if old is not None:
        stage.settle(_daemonset(old))
    while stage.turn():
        if stage.turns >= _FEWEST_TURNS and stage.turns * len(nodes) >= _MOST_LOOKS:
            return stage.estimated()
    return stage.forecast()


class _Stage:
    def __init__(self, daemonset: DaemonSet, nodes: Sequence[Node], pace: RolloutPace) -> None:
        self.daemonset = daemonset
        self.nodes = tuple(sorted(nodes, key=lambda node: node.name))
        self.ready = frozenset(node.name for node in nodes if node.ready)
        self.pace = pace
        self.now = 0.0
        self.pods: dict[str, Pod] = {}
        self.revisions: dict[str, Revision] = {}
        self.due: list[tuple[float, str]] = []  # the time and the pod of an event
        self.numbers = itertools.count()
        self.turns = self.steps = self.at_once = 0
        self.leading: type[CreatePod] | type[DeletePod] = CreatePod
        placer = node_eligibility.read(self.daemonset.template)
        self.wanted = frozenset(node.name for node in nodes if placer.place(node) is Placement.RUN)

    def settle(self, before: DaemonSet) -> None:
        """Starts with the old DaemonSet on all its nodes."""
        strategy = self.daemonset.strategy
        if not (isinstance(strategy, RollingUpdate) and strategy.surges):
            self.leading = DeletePod
        body = revisions.new(before, 1, target_revisions.NEVER_COPIED)
        self.know(body)
        placer = node_eligibility.read(before.template)
        for node in self.nodes:
            if placer.place(node) is Placement.RUN:
                self.add(node.name, _hash(body), since=_LONG_AGO)

    def turn(self) -> bool:
        """One observation and its actions; returns whether more follows."""
        self.turns += 1
        decision = decide.decide(self.seen())
        for action in decision.actions:
            self.perform(action)
        if any(isinstance(action, self.leading) for action in decision.actions):
            self.steps += 1
        if self.leading is DeletePod:
            available = {pod.node for pod in self.pods.values() if self.serves(pod)}
            self.at_once = max(self.at_once, len((self.wanted & self.ready) - available))
        return bool(decision.actions) or self.wait(decision.wake_after)

    def wait(self, wake_after: float | None) -> bool:
        """Advances to the next change; returns whether there is one."""
        times = [self.due[0][0]] if self.due else []
        if wake_after is not None:
            times.append(self.now + wake_after)
        if not times:
            return False
        self.now = min(times)
        while self.due and self.due[0][0] <= self.now:
            pod = self.pods.get(heapq.heappop(self.due)[1])
            if pod is not None and pod.terminating:
                del self.pods[pod.uid]
            elif pod is not None and pod.node in self.ready:
                self.pods[pod.uid] = replace(pod, ready=True, ready_since=self.now)
        return True

    def perform(self, action: Action) -> None:
        match action:
            case CreateRevision(body=body):
                self.know(body)
            case DeleteRevision(uid=uid):
                del self.revisions[uid]
            case CreatePod(node=node, body=body):
                self.later(self.pace.start, self.add(node, _hash(body)))
            case DeletePod(uid=uid):
                self.pods[uid] = replace(self.pods[uid], terminating=True)
                self.later(self.pace.stop, uid)
            case _:
                pass  # no other action occurs: the DaemonSet owns all these objects

    def add(self, node: str, hash: str, since: float | None = None) -> str:
        uid, ready = f"pod-{next(self.numbers)}", since is not None and node in self.ready
        self.pods[uid] = Pod(
            namespace=self.daemonset.key.namespace, name=uid, uid=uid, node=node,
            labels=self.labels, owner=_OWNER, ready=ready, ready_since=since, hash=hash,
        )  # fmt: skip
        return uid

    @property
    def labels(self) -> Mapping[str, str]:
        return (self.daemonset.template.get("metadata") or {}).get("labels") or {}

    def later(self, seconds: float, uid: str) -> None:
        heapq.heappush(self.due, (self.now + seconds, uid))

    def know(self, body: Body) -> None:
        uid = str(body["metadata"]["name"])
        revision = revisions.revision_of({**body, "metadata": {**body["metadata"], "uid": uid}})
        if revision is not None:
            self.revisions[uid] = revision

    def seen(self) -> Observation:
        pods, known = tuple(self.pods.values()), tuple(self.revisions.values())
        return Observation(self.now, self.daemonset, self.nodes, pods, known)

    def serves(self, pod: Pod) -> bool:
        return not pod.terminating and pod.available(self.daemonset.min_ready_seconds, self.now)

    def forecast(self) -> RolloutForecast:
        moves = isinstance(self.daemonset.strategy, RollingUpdate) and not self.daemonset.suspended
        return RolloutForecast(
            self.now,
            self.steps,
            self.at_once,
            tuple(sorted(self.wanted - self.updated())) if moves else (),
        )

    def estimated(self) -> RolloutForecast:
        latest, eligible = self.updated(), self.wanted & self.ready
        before = {pod.node for pod in self.pods.values() if self.serves(pod)} - latest
        done, begun = len(eligible & latest), len(eligible - before)
        if not done:
            return self.forecast()
        seconds, steps = (
            self.now * len(eligible) / done,
            -(-self.steps * len(eligible) // begun),
        )
        return RolloutForecast(
            seconds, steps, self.at_once, tuple(sorted(self.wanted - self.ready)), estimated=True
        )

    def updated(self) -> set[str]:
        latest = max(self.revisions.values(), key=lambda revision: revision.number, default=None)
        return {
            pod.node
            for pod in self.pods.values()
            if self.serves(pod) and latest and pod.hash == latest.hash
        }


_OWNER = Owner(DAEMONSET.kind, "", _UID)


def _daemonset(body: Body) -> DaemonSet:
    return replace(daemonsets.daemonset_of(body), uid=_UID)


def _hash(body: Body) -> str:
    return str(body["metadata"]["labels"][names.REVISION_HASH])
