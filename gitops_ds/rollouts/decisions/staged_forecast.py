"""The forecast of a staged rollout: the decisions of the controller, on nodes without failures, and
the estimated remaining time of one in progress.

`of` runs `pinned_pods.decide_pinned`, and with it `stages.decide`, in virtual time. A pod takes a
stated number of seconds to start and to stop, so only the duration differs from a real rollout, and
the order with `limits.atRisk.perZone`, where the first zone below its limit comes first
(tests/rollouts/test_staged_forecast.py).

Of a rollout on many nodes only the beginning is simulated, and the rest is estimated as by
`time_left`.

Approvals, windows, freezes and measured gates depend on people, calendars and metrics: they count
as open here, and the forecast names them.

`time_left` is cheap enough for every read of a status: it counts batches, soaks and the cap on
nodes at risk, without simulating single nodes. The limits of zones and registries are ignored.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from gitops_ds.core import names
from gitops_ds.core.change import StagedPreview, StagePreview
from gitops_ds.core.daemonset import DaemonSet, Owner, Phase, Pod
from gitops_ds.core.decision import CreatePod, DeletePod, Observation
from gitops_ds.core.live import Node
from gitops_ds.core.objects import DAEMONSET, Body
from gitops_ds.core.rollouts.rollout_policy import Neighbours, RolloutPolicy, Stage
from gitops_ds.core.rollouts.staged_rollout import (
    MOVING,
    NodeProgress,
    NodeStep,
    RolloutRecord,
    RolloutTarget,
    StageInputs,
    StageProgress,
    StagesDecision,
    StageState,
)
from gitops_ds.core.sources.bundle import Pool
from gitops_ds.core.values import replace
from gitops_ds.daemonset.pod_changes import BURST
from gitops_ds.daemonset.rollout_forecast import USUAL, RolloutPace
from gitops_ds.kube.apimachinery import daemonsets, node_eligibility, revisions
from gitops_ds.kube.apimachinery.node_eligibility import Placement
from gitops_ds.rollouts.decisions import measured_gates, node_steps, pinned_pods
from gitops_ds.rollouts.decisions.node_selection import batch_at
from gitops_ds.rollouts.state import target_revisions

_UID, _LONG_AGO, _START = "simulated", -math.inf, 1.0
_MOST_LOOKS = 100_000  # two seconds of CPU
_TOUCHED = (*MOVING, NodeStep.PROVED, NodeStep.FAILED, NodeStep.SET_ASIDE)


class RolloutNodes(msgspec.Struct, frozen=True):
    """The nodes of a rollout, the pools for the policy, and the node of the controller, if known.
    The simulation ends after `most_looks` nodes times turns; the rest is estimated.
    """

    nodes: Sequence[Node]
    pools: tuple[Pool, ...] = ()
    own_node: str = ""
    most_looks: int = _MOST_LOOKS


def of(
    old: Body,
    template: Body,
    policy: RolloutPolicy,
    cluster: RolloutNodes,
    pace: RolloutPace = USUAL,
) -> StagedPreview:
    """The rollout of a template to a DaemonSet that runs on every node; bodies as the API server
    stores them.
    """
    run = _Simulation(_daemonset(old), template, policy, cluster, pace)
    while run.turn():
        pass
    return run.forecast()


@dataclass
class _Progress:
    """The recorded order of updates and times of the stages."""

    taken: dict[str, float] = field(default_factory=dict)
    record: RolloutRecord = field(default_factory=RolloutRecord)
    last: StagesDecision | None = None
    ended: float | None = None


class _Simulation:
    def __init__(
        self,
        daemonset: DaemonSet,
        template: Body,
        policy: RolloutPolicy,
        cluster: RolloutNodes,
        pace: RolloutPace,
    ) -> None:
        self.policy, self.pools, self.pace = policy, cluster.pools, pace
        self.nodes = tuple(sorted(cluster.nodes, key=lambda node: node.name))
        self.daemonset, self.own_node = daemonset, cluster.own_node
        self.now, self.turns, self.most_looks = _START, 0, cluster.most_looks
        self.due: list[tuple[float, str]] = []
        self.numbers, self.is_cut = itertools.count(), False
        self.progress = _Progress()
        hash = revisions.hash_of(daemonset.template, daemonset.collision_count)
        self.target = _target(daemonset, template)
        # in the order of their names
        self.pods: dict[str, Pod] = {}
        self.unbound: dict[str, str] = {}  # by node: the pod that waits for the end of another
        placer = node_eligibility.read(daemonset.template)
        eligible = [node for node in self.nodes if placer.place(node) is Placement.RUN]
        for node in eligible:
            self._add(node.name, hash, _LONG_AGO)
        self.parked = tuple(node.name for node in eligible if node_steps.node_problem(node))

    def turn(self) -> bool:
        """One decision and its writes, or the time until the next change; returns whether more
        follows.
        """
        self.turns += 1
        progress = self.progress
        staged = pinned_pods.decide_pinned(self._observation(), self._inputs())
        progress.record, progress.last = staged.stages.record, staged.stages
        for node in staged.stages.take:
            progress.taken.setdefault(node, self.now)
        if staged.stages.complete:
            progress.ended = self.now
            return False
        actions = staged.decision.actions
        writes = [action for action in actions if isinstance(action, DeletePod | CreatePod)]
        for write in writes:
            self._perform(write)
        if self.turns * len(self.nodes) > self.most_looks:
            self.is_cut = True
            return False
        # The same observation results in no other write, unless a turn had too many of them.
        return len(writes) >= BURST or self._wait(staged.stages.wake_at) or bool(writes)

    def forecast(self) -> StagedPreview:
        """The stages with their simulated nodes and times."""
        progress = self.progress
        decided = progress.last
        assert decided is not None
        estimated = self._estimated(decided) if self.is_cut else {}
        stages = []
        for stage, state in zip(self.policy.stages, decided.stages, strict=True):
            members = [node for node in state.nodes if node not in self.parked]
            order = sorted(
                (node for node in members if node in progress.taken), key=progress.taken.__getitem__
            )
            order += [node for node in members if node not in progress.taken]
            begins, ends = estimated.get(stage.name, (None, None))
            begins = progress.taken.get(order[0], begins) if order else None
            ends = progress.record.passed.get(stage.name, ends)
            waits = tuple(_waits(self.policy, stage))
            stages.append(
                StagePreview(
                    stage.name, tuple(order), _since(begins), _since(ends), waits, state.taken_from
                )
            )
        last = max((ends for _, ends in estimated.values()), default=None)
        ended = last if progress.ended is None else progress.ended
        pace = self.pace
        return StagedPreview(
            tuple(stages),
            _since(ended),
            decided.cap,
            self.parked,
            pace.start,
            pace.stop,
            estimated=self.is_cut,
        )

    def _estimated(self, decided: StagesDecision) -> Mapping[str, tuple[float, float]]:
        """The begin and the end of each stage that was not passed."""
        clock = _Clock(self.now, decided.cap, self.pace)
        return clock.stages(_without_waits(self.policy), decided)

    def _inputs(self) -> StageInputs:
        policy = _without_waits(self.policy)
        return StageInputs(policy, self.target, self.progress.record, self.pools)

    def _observation(self) -> Observation:
        pods = tuple(self.pods.values())
        return Observation(self.now, self.daemonset, self.nodes, pods, own_node=self.own_node)

    def _perform(self, write: DeletePod | CreatePod) -> None:
        match write:
            case DeletePod(uid=uid):
                self.pods[uid] = replace(self.pods[uid], terminating=True)
                self._later(self.pace.stop, uid)
            case CreatePod(node=node):
                self._add(node, self.target.hash, None)

    def _wait(self, wake_at: float | None) -> bool:
        """Advances to the next change; returns whether one exists."""
        times = [self.due[0][0]] if self.due else []
        times += [wake_at] if wake_at is not None else []
        if times:
            self.now = max(self.now, min(times))
        while self.due and self.due[0][0] <= self.now:
            uid = heapq.heappop(self.due)[1]
            if self.pods[uid].terminating:
                self._bind(self.pods.pop(uid).node)
            else:
                self.pods[uid] = _ready(self.pods[uid], self.now)
        return bool(times)

    def _bind(self, node: str) -> None:
        """The scheduler binds the pod that waited for the end of the earlier one."""
        if (uid := self.unbound.pop(node, "")) in self.pods:
            self.pods[uid] = replace(self.pods[uid], bound=True, released=self.now)
            self._later(self.pace.start, uid)

    def _later(self, seconds: float, uid: str) -> None:
        heapq.heappush(self.due, (self.now + seconds, uid))

    def _add(self, node: str, hash: str, ready_since: float | None) -> None:
        uid = f"pod-{next(self.numbers):09}"
        created = self.now if ready_since is None else ready_since
        labels = {**((self.daemonset.template.get("metadata") or {}).get("labels") or {})}
        is_bound = ready_since is not None
        if not is_bound:
            labels[names.ROLLOUT] = hash
            self.unbound[node] = uid
        pod = Pod(
            namespace=self.daemonset.key.namespace, name=uid, uid=uid, node=node,
            labels=labels, owner=Owner(DAEMONSET.kind, self.daemonset.key.name, _UID),
            created=created, hash=hash, bound=is_bound,
        )  # fmt: skip
        self.pods[uid] = pod if ready_since is None else _ready(pod, ready_since)


def _since(time: float | None) -> float | None:
    """Seconds since the start of a simulation."""
    return None if time is None else time - _START


def _ready(pod: Pod, since: float) -> Pod:
    return replace(pod, ready=True, ready_since=since, phase=Phase.RUNNING)


def _daemonset(body: Body) -> DaemonSet:
    """The DaemonSet before its rollout, fully rolled out and not suspended."""
    spec = {**body["spec"], "updateStrategy": {"type": "OnDelete"}}
    metadata = {**body["metadata"], "uid": _UID, "annotations": {}}
    return daemonsets.daemonset_of({**body, "metadata": metadata, "spec": spec})


def _target(daemonset: DaemonSet, template: Body) -> RolloutTarget:
    body = target_revisions.body_of(daemonset, template, "")
    metadata = body["metadata"]
    hash = str(metadata["labels"][names.ROLLOUT])
    name = str(metadata["name"])
    return RolloutTarget(hash, template, name, name, staged=True, hashes=frozenset({hash}))


def _without_waits(policy: RolloutPolicy) -> RolloutPolicy:
    """The policy without conditions that can't be simulated."""
    stages = tuple(
        replace(stage, windows=(), approval=None, nodes_when="any") for stage in policy.stages
    )
    gates = {
        name: replace(
            gate, prometheus="", webhook=None, memory_of_limit=None, neighbours=Neighbours()
        )
        for name, gate in policy.gates.items()
    }
    return replace(policy, stages=stages, gates=gates, freeze=(), after=())


def _waits(policy: RolloutPolicy, stage: Stage) -> Iterator[str]:
    """The conditions of a stage that the simulation ignores, as text."""
    if stage.approval is not None:
        yield f"approval by {', '.join(stage.approval.from_)}"
    if stage.windows:
        yield f"window {', '.join(stage.windows)}"
    if stage.nodes_when != "any":
        yield f"nodes when {stage.nodes_when}"
    for name in dict.fromkeys(probe.gate for probe in measured_gates.probes_of(policy, stage)):
        yield f"gate {name}"
    for after in policy.after:
        yield f"agent {after.agent}{' on the same node' if after.same_node else ''}"


class TimeLeft(msgspec.Struct, frozen=True):
    """Seconds until every node is proved. `at_least`: a remaining stage also waits for people,
    windows, metrics or idle nodes.
    """

    seconds: float
    at_least: bool = False


def time_left(
    policy: RolloutPolicy, decided: StagesDecision, now: float, pace: RolloutPace = USUAL
) -> TimeLeft | None:
    """The estimate for a decision; None after a failure, and on a hold without a known end."""
    hold = decided.hold
    if decided.halt is not None or (hold is not None and hold.until is None):
        return None
    if any(node.step is NodeStep.FAILED for node in decided.nodes):
        return None
    clock = _Clock(max(now, hold.until or now) if hold else now, decided.cap, pace)
    at_least = False
    for stage, progress in zip(policy.stages, decided.stages, strict=True):
        if progress.state is StageState.PASSED:
            continue
        if progress.state is StageState.HELD and (stage.approval is not None or stage.is_idle):
            return None  # `until` of the hold is its deadline
        at_least = at_least or _waits_longer(stage, progress)
    clock.stages(policy, decided)
    return TimeLeft(clock.now - now, at_least)


def batch(policy: RolloutPolicy, decided: StagesDecision) -> int:
    """The size of the current batch; 0 if every stage is passed."""
    for stage, progress in zip(policy.stages, decided.stages, strict=True):
        if progress.state is not StageState.PASSED:
            steps = Counter(node.step for node in decided.nodes if node.stage == progress.name)
            running = sum(steps[step] for step in (NodeStep.SOAKING, NodeStep.PROVED))
            size = batch_at(stage.pace, running, len(decided.nodes))[1]
            return min(size, decided.cap, max(1, len(progress.nodes)))
    return 0


def _waits_longer(stage: Stage, progress: StageProgress) -> bool:
    """Whether the stage waits for more than time."""
    is_open = progress.state is StageState.OPEN
    before = (stage.approval is not None or bool(stage.windows)) and not is_open
    return before or stage.is_idle or bool(stage.one_at_a_time)


@dataclass(slots=True)
class _Clock:
    """The time of the estimate. `ends` is a heap of the times at which nodes of `at_risk` are
    proved, with their numbers.
    """

    now: float
    cap: int
    pace: RolloutPace
    at_risk: int = 0
    ends: list[tuple[float, int]] = field(default_factory=list)

    def stages(
        self, policy: RolloutPolicy, decided: StagesDecision
    ) -> Mapping[str, tuple[float, float]]:
        """Advances to the end of the last stage; the begin and the end of each that was not
        passed.
        """
        times = dict[str, tuple[float, float]]()
        for stage, progress in zip(policy.stages, decided.stages, strict=True):
            if progress.state is not StageState.PASSED:
                begins = self.now
                nodes = [node for node in decided.nodes if node.stage == progress.name]
                self._play(stage, nodes, len(decided.nodes))
                times[stage.name] = begins, self.now
        return times

    def _play(self, stage: Stage, nodes: Sequence[NodeProgress], eligible: int) -> None:
        """Advances to the end of a stage."""
        steps = Counter(node.step for node in nodes)
        delay = self.pace.start + self.pace.stop
        for node in nodes:
            if node.step is NodeStep.SOAKING:
                self._risk(node.until or self.now + stage.soak, 1)
        moving = steps[NodeStep.REPLACING] + steps[NodeStep.STARTING]
        if moving:
            self._risk(self.now + delay + stage.soak, moving)
            self.now += delay
        touched = sum(steps[step] for step in _TOUCHED)
        waiting = steps[NodeStep.WAITING]
        while waiting:
            before, size = batch_at(stage.pace, touched, eligible)
            taken = min(before + size - touched, self._room(), waiting)
            touched, waiting = touched + taken, waiting - taken
            self._risk(self.now + delay + stage.soak, taken)
            is_whole = touched == before + size
            self.now += max(delay, stage.pace.every) if is_whole and waiting else delay
        while self.ends:
            self._prove()

    def _risk(self, until: float, count: int) -> None:
        heapq.heappush(self.ends, (until, count))
        self.at_risk += count

    def _prove(self) -> None:
        """Advances until the next nodes are proved."""
        until, count = heapq.heappop(self.ends)
        self.now, self.at_risk = max(self.now, until), self.at_risk - count

    def _room(self) -> int:
        """How many nodes may be taken, after the time until at least one may."""
        while self.ends and (self.ends[0][0] <= self.now or self.at_risk >= self.cap):
            self._prove()
        return max(1, self.cap - self.at_risk)
