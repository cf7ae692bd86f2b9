"""What the controller remembers of staged rollouts between two decisions: refused writes, measured
gates, the last decision. It completes the inputs of a decision, and emits what a decision changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from gitops_ds.core import names, plain_text
from gitops_ds.core.cluster import ClusterReader
from gitops_ds.core.daemonset import PodCause, PodContent
from gitops_ds.core.decision import (
    Action,
    CreatePod,
    Decision,
    DeletePod,
    ExecutionOutcome,
    Observation,
    PromoteRevision,
    RecordRollout,
    RelabelPod,
)
from gitops_ds.core.errors import BadRequest, ClusterError, Forbidden, Invalid
from gitops_ds.core.events.base import Emit
from gitops_ds.core.events.rollouts import (
    RolloutHalted,
    RolloutHeld,
    RolloutProgressed,
    StageNodesReplaced,
    StageOpened,
    StagePassed,
)
from gitops_ds.core.objects import POD, Body, CommitId, Key
from gitops_ds.core.rate_limits import TokenBucket
from gitops_ds.core.rollouts.rollout_policy import RolloutPolicy
from gitops_ds.core.rollouts.staged_rollout import (
    RECORD,
    RolloutTarget,
    StageInputs,
    StagesDecision,
    StageState,
)
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import pod_contents, pods
from gitops_ds.rollouts.decisions import (
    measured_gates,
    pinned_bodies,
    pinned_pods,
    rollout_holds,
    stage_inputs,
)
from gitops_ds.rollouts.decisions.pinned_pods import WRITES_OF_A_NODE, StagedDecision
from gitops_ds.rollouts.decisions.rollout_holds import ReportedHolds
from gitops_ds.rollouts.decisions.stage_inputs import OtherPods
from gitops_ds.rollouts.decisions.stages import REFUSAL
from gitops_ds.rollouts.inputs.gate_measurement import GatePoller

REFUSED_FOR = 60.0  # seconds until pods that the API server refused are tried again
# Seconds until another refused write is tried again: it is one request, and what was refused for a
# moment does not delay a rollout for longer.
WRITE_REFUSED_FOR = 15.0
_UNKNOWN: tuple[str, frozenset[PodContent]] = ("", frozenset())
UNPERMITTED_FOR = 3600.0  # seconds until a nomination without permission is tried again


class _Refusal(msgspec.Struct, frozen=True):
    """The message of the API server, until when it counts, and what is refused; no message since
    it is admitted.
    """

    message: str = ""
    until: float | None = 0.0
    refuses: str = ""


_ADMITTED = _Refusal()
# What the API server refuses with an action, beside pods.
_REFUSES: Mapping[type[Action], str] = {
    DeletePod: "the replacement of pods",
    RelabelPod: "the labels of pods",
    RecordRollout: RECORD,
    PromoteRevision: "the promotion of the target revision",
}


class RolloutSources(msgspec.Struct, frozen=True):
    """What a rollout is decided by, beside its DaemonSet. `observations` are those of all
    DaemonSets: an agent may wait for others. `rollouts` are all in progress; `others` the pods of
    other owners. Without `gates` nothing is measured; `warnings` returns the newest warning events
    of its pods.
    """

    observations: Callable[[], Iterable[Observation]] = tuple
    rollouts: Callable[[], Iterable[stage_inputs.Rollout]] = tuple
    others: OtherPods | None = None
    gates: GatePoller | None = None
    warnings: Callable[[Observation], Mapping[str, PodCause]] = lambda _: {}


NO_SOURCES = RolloutSources()


class RolloutMemory:
    """The memory of the rollouts of one cluster. No part of it must survive a restart."""

    def __init__(
        self, emit: Emit, clock: Callable[[], float], sources: RolloutSources = NO_SOURCES
    ) -> None:
        self._emit, self._clock, self._sources = emit, clock, sources
        self._buckets: dict[Key, TokenBucket] = {}  # nodes that may be taken
        self._refused: dict[Key, _Refusal] = {}
        # the hash of the last target, and the decision about it
        self._decided: dict[Key, tuple[str, StagesDecision]] = {}
        self._held: dict[Key, ReportedHolds] = {}
        self._unpermitted: dict[str, float] = {}  # until when, by namespace
        # the hash whose pods the API server admits, and what they run by its answers
        self._admitted: dict[Key, tuple[str, frozenset[PodContent]]] = {}

    def inputs(self, seen: Observation) -> StageInputs | None:
        """The inputs of a DaemonSet's rollout.

        None without a policy, with an invalid one, and while its target revision is unknown.
        """
        key = seen.daemonset.key
        try:
            observed = stage_inputs.observed(seen)
        except ValueError:
            return None
        if observed is None:
            self.forget(key)
            return None
        observed = replace(observed, target=self._with_contents(key, observed.target))
        policy, has_target = observed.policy, observed.target.staged
        refusal = self._refused.get(key, _Refusal(observed.refused, None, observed.refuses))
        return replace(
            observed,
            behind=stage_inputs.behind(policy.after, self._sources.observations())
            if policy.after and has_target
            else {},
            refused=refusal.message,
            refused_until=refusal.until,
            refuses=refusal.refuses,
            readings=self._sources.gates.readings(key) if self._sources.gates else {},
            busy=self._busy(policy, observed.target),
            arrived=self._arrived(seen, observed.target),
            halted_elsewhere=stage_inputs.halt_elsewhere(seen.daemonset, self._sources.rollouts())
            if has_target
            else "",
            at_once=self._at_once(key, policy, seen.now),
            warnings=self._sources.warnings(seen),
            nominates=seen.now >= self._unpermitted.get(key.namespace, 0.0),
        )

    def _with_contents(self, key: Key, target: RolloutTarget) -> RolloutTarget:
        """The target with what its pods run, if the API server has answered for this one."""
        hash, answers = self._admitted.get(key, _UNKNOWN)
        if not answers or not target.staged or hash != target.hash:
            return target
        return replace(target, contents=(pod_contents.of_template(target.template), *answers))

    def created(self, key: Key, body: Body) -> None:
        """Keeps what the API server answered to the creation of a pod: a webhook may change it in
        another way than in a dry run.
        """
        hash, answers = self._admitted.get(key, _UNKNOWN)
        if hash and hash == pods.pod_of(body).hash:
            self._admitted[key] = hash, answers | _content(body)

    def inputs_of_turn(self, seen: Observation) -> StageInputs | None:
        """As `inputs`; a write that an earlier process found refused is tried again now."""
        inputs = self.inputs(seen)
        if inputs is None or not inputs.refused or inputs.refused_until is not None:
            return inputs
        self._refused[seen.daemonset.key] = _Refusal(inputs.refused, seen.now, inputs.refuses)
        return replace(inputs, refused_until=seen.now)

    def gated(self, seen: Observation) -> tuple[Action, ...]:
        """The deletes of the gated pods of a DaemonSet without inputs."""
        is_owner = seen.daemonset.selector is not None and not seen.daemonset.deleting
        if not is_owner or not any(pod.gated for pod in seen.pods):
            return ()
        return pinned_pods.ungated(seen)

    def _busy(self, policy: RolloutPolicy, target: RolloutTarget) -> frozenset[str]:
        others = self._sources.others
        is_read = target.staged and any(stage.is_idle for stage in policy.stages)
        return others.busy_nodes if others and is_read else frozenset()

    def _arrived(self, seen: Observation, target: RolloutTarget) -> Mapping[str, str]:
        others = self._sources.others
        unplaced = stage_inputs.unplaced(seen, target) if others and target.staged else {}
        return others.arrived(unplaced) if others and unplaced else {}

    def _at_once(self, key: Key, policy: RolloutPolicy, now: float) -> int | None:
        """The nodes that may be taken now, so that their writes stay below `limits.api`."""
        writes = policy.limits.api.writes_per_second
        if writes is None:
            self._buckets.pop(key, None)
            return None
        rate = writes / WRITES_OF_A_NODE
        bucket = self._buckets.get(key)
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[key] = TokenBucket(max(1.0, rate), rate)
        return max(0, int(bucket.held(now)))

    async def admitted(
        self, cluster: ClusterReader, seen: Observation, inputs: StageInputs, stages: StagesDecision
    ) -> bool:
        """Whether the API server admits the pods of the target, by a dry run before the first pod
        is deleted; a refusal (a policy, a quota) holds the rollout for a while. The answer shows
        what a pod of the target runs.
        """
        key, target, nodes = seen.daemonset.key, inputs.target, stages.take or sorted(stages.open)
        if not target.staged or not nodes or self._admitted.get(key, _UNKNOWN)[0] == target.hash:
            return True
        body = pinned_bodies.trial_pod(seen, inputs, nodes[0])
        try:
            answer = await cluster.dry_run(POD, body, manager=names.FIELD_MANAGER)
        except ClusterError as error:
            if stages.take:
                self._refused[key] = _Refusal(str(error), self._clock() + REFUSED_FOR)
            return not stages.take
        self._admitted[key] = target.hash, _content(answer.body)
        if stages.take and not inputs.refuses:
            self._refused[key] = _ADMITTED
        return True

    def halting_nodes(
        self, key: Key, inputs: StageInputs, stages: StagesDecision
    ) -> frozenset[str]:
        """The nodes whose failure halts the rollout by this decision, and not by an earlier one."""
        halt = stages.halt
        target, before = self._decided.get(key, ("", None))
        is_halted = before is not None and target == inputs.target.hash and before.halt is not None
        if halt is None or is_halted or inputs.record.halt is not None:
            return frozenset()
        return frozenset(node.node for node in halt.nodes)

    def decided(self, seen: Observation, inputs: StageInputs, staged: StagedDecision) -> None:
        """Stores a decision, and emits its changes."""
        key, now = seen.daemonset.key, staged.stages
        if (bucket := self._buckets.get(key)) is not None:
            bucket.borrow(seen.now, len(now.take))
        if self._sources.gates is not None:
            requests = measured_gates.requests(staged.layout, inputs, now)
            self._sources.gates.follow(key, inputs.target.hash, requests)
        target, before = self._decided.get(key, ("", None))
        self._decided[key] = inputs.target.hash, now
        if before == now:
            return
        is_staged = inputs.target.staged
        commit = CommitId(inputs.target.commit if is_staged else "")
        hold = now.hold if is_staged else None
        held = self._held.get(key, ReportedHolds()).after(inputs.target.hash, hold, seen.now)
        self._held[key] = held
        self._emit(RolloutProgressed(seen.now, key, seen.daemonset.uid, commit, now))
        if not is_staged:
            return
        # An earlier process has reported the state of a rollout that is in progress at the start.
        is_resumed = before is None and inputs.record.began > 0.0
        same = before if target == inputs.target.hash else None
        for stage in now.stages:
            if stage.state is StageState.PASSED and stage.name not in inputs.record.passed:
                self._emit(StagePassed(seen.now, key, commit, stage.name, stage.proved))
            is_new = (
                not (is_resumed or inputs.refused) and _state(same, stage.name) is not stage.state
            )
            if stage.state is StageState.OPEN and is_new:
                count, source = len(stage.nodes), stage.taken_from
                self._emit(StageOpened(seen.now, key, commit, stage.name, count, source))
        if same is not None:
            for replaced in rollout_holds.replaced(inputs.policy, same, now):
                lost = tuple(f"{node} ({reason})" for node, reason in replaced.lost.items())
                self._emit(
                    StageNodesReplaced(seen.now, key, commit, replaced.stage, lost, replaced.taken)
                )
        if now.halt is not None and inputs.record.halt is None:
            self._emit(RolloutHalted(seen.now, key, commit, now.halt))
        if hold is not None and held.is_new and not is_resumed:
            self._emit(RolloutHeld(seen.now, key, commit, hold))

    def performed(self, key: Key, decision: Decision, outcome: ExecutionOutcome) -> None:
        """Records that the API server refused a write: the rollout is on hold for a while; and that
        nominations are not permitted: they are left out for a while.
        """
        now = self._clock()
        if not outcome.may_nominate:
            self._unpermitted[key.namespace] = now + UNPERMITTED_FOR
        creates = any(isinstance(action, CreatePod) for action in decision.actions)
        action, error = outcome.refusal or (None, None)
        before = self._refused.get(key, _ADMITTED)
        if isinstance(action, CreatePod):
            self._refused[key] = _Refusal(str(error), now + REFUSED_FOR)
            self._admitted.pop(key, None)
        elif action is not None and isinstance(error, Forbidden | Invalid | BadRequest):
            refuses = _REFUSES.get(type(action), "a write")
            self._refused[key] = _Refusal(str(error), now + WRITE_REFUSED_FOR, refuses)
        elif outcome.errors or now < (before.until or 0.0):
            pass
        elif before.refuses or (creates and outcome.wrote):
            self._refused[key] = _ADMITTED

    def unrecorded(self, key: Key) -> str:
        """Why the API server refuses the record of the rollout, which states each other refused
        write; empty if it does not.
        """
        refusal = self._refused.get(key, _ADMITTED)
        return plain_text.line(refusal.message, REFUSAL) if refusal.refuses == RECORD else ""

    def forget(self, key: Key) -> None:
        """Drops the state of a DaemonSet that is gone or has no rollout."""
        self._decided.pop(key, None)
        self._held.pop(key, None)
        self._refused.pop(key, None)
        self._admitted.pop(key, None)
        self._buckets.pop(key, None)
        if self._sources.gates is not None:
            self._sources.gates.forget(key)


def _content(body: Body) -> frozenset[PodContent]:
    content = pod_contents.of_pod(body.get("spec") or {})
    return frozenset((content,)) if content.containers else frozenset()


def _state(decided: StagesDecision | None, stage: str) -> StageState | None:
    stages = decided.stages if decided is not None else ()
    return next((known.state for known in stages if known.name == stage), None)
