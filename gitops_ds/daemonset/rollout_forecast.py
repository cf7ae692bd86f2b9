"""The simulation of a rollout: the same `decide`, on simulated nodes with fixed delays.

The only failure is a stalled rollout: no pod becomes ready on nodes that are not ready. The start
and end times of a pod are assumptions, and are shown beside every figure derived from them.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence

import msgspec

from gitops_ds.core import names
from gitops_ds.core.daemonset import DaemonSet, Owner, Pod, RollingUpdate
from gitops_ds.core.decision import (
    Action,
    CreatePod,
    CreateRevision,
    DeletePod,
    DeleteRevision,
    Observation,
)
from gitops_ds.core.live import Node, Revision
from gitops_ds.core.objects import DAEMONSET, Body
from gitops_ds.core.values import replace
from gitops_ds.daemonset import decide
from gitops_ds.kube.apimachinery import daemonsets, node_eligibility, revisions
from gitops_ds.kube.apimachinery.node_eligibility import Placement
from gitops_ds.rollouts.state import target_revisions

_UID, _LONG_AGO = "rehearsal", -math.inf
# A rollout of a thousand nodes one by one needs a million observations of a node: then the rest is
# extrapolated from the beginning.
_MOST_LOOKS, _FEWEST_TURNS = 60_000, 60


class RolloutPace(msgspec.Struct, frozen=True):
    """The assumed times of a pod in seconds: from its creation to readiness, and from its deletion
    until it is gone.
    """

    start: float = 30.0
    stop: float = 5.0


USUAL = RolloutPace()


class Rehearsal(msgspec.Struct, frozen=True):
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


def rehearse(
    old: Body | None, new: Body, nodes: Sequence[Node], pace: RolloutPace = USUAL
) -> Rehearsal:
    """Simulates the rollout from the old DaemonSet, complete on every node, to the new one; bodies
    as the API server stores them.

    The simulation of a suspended DaemonSet, or of one with OnDelete, ends at once without any
    change.
    """
    stage = _Stage(_daemonset(new), nodes, pace)
    if old is not None:
        stage.settle(_daemonset(old))
    while stage.turn():
        if stage.turns >= _FEWEST_TURNS and stage.turns * len(nodes) >= _MOST_LOOKS:
            return stage.estimated()
    return stage.rehearsal()


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

    def rehearsal(self) -> Rehearsal:
        moves = isinstance(self.daemonset.strategy, RollingUpdate) and not self.daemonset.suspended
        return Rehearsal(
            self.now,
            self.steps,
            self.at_once,
            tuple(sorted(self.wanted - self.updated())) if moves else (),
        )

    def estimated(self) -> Rehearsal:
        latest, eligible = self.updated(), self.wanted & self.ready
        before = {pod.node for pod in self.pods.values() if self.serves(pod)} - latest
        done, begun = len(eligible & latest), len(eligible - before)
        if not done:
            return self.rehearsal()
        seconds, steps = (
            self.now * len(eligible) / done,
            -(-self.steps * len(eligible) // begun),
        )
        return Rehearsal(
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
