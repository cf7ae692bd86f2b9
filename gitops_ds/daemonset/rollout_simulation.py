"""The simulation of a rollout: the same `decide`, on nodes that only take time.

The only failure is a stalled rollout: no pod becomes ready on nodes that are not ready. The start
and end times of a pod are assumptions, and are shown beside every figure derived from them.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gitops_ds.apimachinery import daemonsets, node_eligibility, revisions
from gitops_ds.apimachinery.node_eligibility import Placement
from gitops_ds.daemonset import decide
from gitops_ds.model import names
from gitops_ds.model.daemonset import Owner, Phase, Pod, RollingUpdate
from gitops_ds.model.decision import Action, CreatePod, CreateRevision, DeletePod, Observation
from gitops_ds.model.live import Node, Revision
from gitops_ds.model.objects import DAEMONSET, Body
from gitops_ds.model.values import replace

_UID, _LONG_AGO = "rehearsal", -1e9
# One observation of a node is cheap, but a thousand nodes one by one need a million of them: then
# the rest is extrapolated from the beginning.
_MOST_LOOKS, _FEWEST_TURNS = 60_000, 60


class RolloutPace(msgspec.Struct, frozen=True):
    """How long a pod takes, in seconds: from its creation to readiness, and from its deletion until
    it is gone.
    """

    start: float = 30.0
    stop: float = 5.0


USUAL = RolloutPace()


class Rehearsal(msgspec.Struct, frozen=True):
    """How a rollout goes: seconds until it ends, the steps, and the most nodes at once without an
    available pod of their own.

    `waiting` are the nodes that still have no available pod of the new template where it stands
    still; empty when it ends. `estimated`: only the beginning of a long one was played, and the
    rest is taken to go at the same pace.
    """

    seconds: float
    steps: int
    at_once: int
    waiting: tuple[str, ...] = ()
    estimated: bool = False


def rehearse(
    old: Body | None, new: Body, nodes: Sequence[Node], pace: RolloutPace = USUAL
) -> Rehearsal:
    """Plays the way from the old DaemonSet, rolled out everywhere, to the new one; bodies as the
    API server stores them.

    A suspended DaemonSet, or one that is updated on delete, moves no pod, and its rehearsal ends at
    once.
    """
    stage = _Stage(_live(new, 2), nodes, pace)
    if old is not None:
        stage.settle(_live(old, 1))
    most = max(_FEWEST_TURNS, _MOST_LOOKS // max(len(nodes), 1))
    while stage.turn():
        if stage.turns >= most:
            return stage.estimated()
    return stage.rehearsal()


class _Stage:
    def __init__(self, body: Body, nodes: Sequence[Node], pace: RolloutPace) -> None:
        self.daemonset = daemonsets.daemonset_of(body)
        self.nodes = tuple(sorted(nodes, key=lambda node: node.name))
        self.ready = frozenset(node.name for node in nodes if node.ready)
        self.pace = pace
        self.now = self.moved_at = 0.0
        self.pods: dict[str, Pod] = {}
        self.revisions: list[Revision] = []
        # when, in which order, and what happens to which pod
        self.due: list[tuple[float, int, str]] = []
        self.turns = self.made = self.steps = self.at_once = 0
        self.leading: type[CreatePod] | type[DeletePod] = CreatePod
        placer = node_eligibility.read(self.daemonset.template)
        self.wanted = frozenset(node.name for node in nodes if placer.place(node) is Placement.RUN)

    def settle(self, before: Body) -> None:
        """Begins with the old DaemonSet on all its nodes."""
        strategy = self.daemonset.strategy
        if not (isinstance(strategy, RollingUpdate) and strategy.max_surge.of(1)):
            self.leading = DeletePod
        daemonset = daemonsets.daemonset_of(before)
        body = revisions.new(daemonset, 1)
        self.know(body)
        placer = node_eligibility.read(daemonset.template)
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
        available = {pod.node for pod in self.pods.values() if self.serves(pod)}
        self.at_once = (
            max(self.at_once, len((self.wanted & self.ready) - available))
            if self.leading is DeletePod
            else self.at_once
        )
        if decision.actions:
            self.moved_at = self.now
            return True
        return self.wait(decision.wake_after)

    def wait(self, wake_after: float | None) -> bool:
        """Advances to the next change; returns whether there is one."""
        times = [
            at
            for at in (
                self.due[0][0] if self.due else None,
                None if wake_after is None else self.now + wake_after,
            )
            if at
        ]
        if not times:
            return False
        self.now = self.moved_at = min(times)
        while self.due and self.due[0][0] <= self.now:
            pod = self.pods.get(heapq.heappop(self.due)[2])
            if pod is not None and pod.terminating:
                del self.pods[pod.uid]
            elif pod is not None and pod.node in self.ready:
                self.pods[pod.uid] = replace(
                    pod, ready=True, ready_since=self.now, phase=Phase.RUNNING
                )
        return True

    def perform(self, action: Action) -> None:
        match action:
            case CreateRevision(body=body):
                self.know(body)
            case CreatePod(node=node, body=body):
                self.later(self.pace.start, self.add(node, _hash(body)))
            case DeletePod(uid=uid):
                self.pods[uid] = replace(self.pods[uid], terminating=True)
                self.later(self.pace.stop, uid)
            case _:
                pass  # no other action occurs: the DaemonSet owns all these objects

    def add(self, node: str, hash: str, since: float | None = None) -> str:
        uid, ready = f"pod-{len(self.pods)}-{self.made}", since is not None and node in self.ready
        self.made += 1
        self.pods[uid] = Pod(
            namespace=self.daemonset.key.namespace, name=uid, uid=uid, node=node, bound=True,
            labels=self.labels, owner=_OWNER, phase=Phase.RUNNING if ready else Phase.PENDING,
            created=self.now, ready=ready, ready_since=since, hash=hash,
        )  # fmt: skip
        return uid

    @property
    def labels(self) -> Mapping[str, str]:
        return (self.daemonset.template.get("metadata") or {}).get("labels") or {}

    def later(self, seconds: float, uid: str) -> None:
        self.made += 1
        heapq.heappush(self.due, (self.now + seconds, self.made, uid))

    def know(self, body: Body) -> None:
        revision = revisions.revision_of(
            {**body, "metadata": {**body["metadata"], "uid": f"revision-{len(self.revisions)}"}}
        )
        if revision is not None:
            self.revisions.append(revision)

    def seen(self) -> Observation:
        return Observation(
            self.now, self.daemonset, self.nodes, tuple(self.pods.values()), tuple(self.revisions)
        )

    def serves(self, pod: Pod) -> bool:
        return not pod.terminating and pod.available(self.daemonset.min_ready_seconds, self.now)

    def rehearsal(self) -> Rehearsal:
        moves = isinstance(self.daemonset.strategy, RollingUpdate) and not self.daemonset.suspended
        return Rehearsal(
            self.moved_at,
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
            self.moved_at * len(eligible) / done,
            -(-self.steps * len(eligible) // begun),
        )
        return Rehearsal(
            seconds, steps, self.at_once, tuple(sorted(self.wanted - self.ready)), estimated=True
        )

    def updated(self) -> set[str]:
        latest = max(self.revisions, key=lambda revision: revision.number, default=None)
        return {
            pod.node
            for pod in self.pods.values()
            if self.serves(pod) and latest and pod.hash == latest.hash
        }


_OWNER = Owner(DAEMONSET.kind, "", _UID)


def _live(body: Body, generation: int) -> dict[str, Any]:
    """The DaemonSet as the controller would meet it, written and not yet observed."""
    metadata = {**body["metadata"], "uid": _UID, "generation": generation}
    return {**body, "metadata": metadata, "status": {"observedGeneration": generation - 1}}


def _hash(body: Body) -> str:
    return str(body["metadata"]["labels"][names.REVISION_HASH])
