"""The staged rollout of an agent, from the objects of the cluster by the controller's decision
function. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gitops_ds.core.daemonset import PodCause
from gitops_ds.core.decision import Observation
from gitops_ds.core.health import RolloutCounts
from gitops_ds.core.objects import CommitId
from gitops_ds.core.redaction import texts
from gitops_ds.core.rollouts.rollout_gates import GateEvidence
from gitops_ds.core.rollouts.rollout_progress import RolloutProgress
from gitops_ds.core.rollouts.staged_rollout import (
    APART,
    MOVING,
    RECORD,
    Halt,
    HoldKind,
    NodeProgress,
    RolloutTarget,
    StageApproval,
    StageHold,
    StageInputs,
    StageProgress,
    StagesDecision,
    StageState,
    StageWait,
)
from gitops_ds.core.values import replace
from gitops_ds.daemonset import decide
from gitops_ds.daemonset.node_pods import NodePodLayout
from gitops_ds.kube.apimachinery import revisions, timestamps
from gitops_ds.rollouts.decisions import rollout_holds, stage_inputs, staged_forecast, stages
from gitops_ds.rollouts.decisions.stage_inputs import OtherPods
from gitops_ds.rollouts.inputs.rollout_memory import RolloutMemory, RolloutSources
from gitops_ds.rollouts.state import daemonset_statements, proofs, target_revisions

SHOWN = 4  # stages in one line; with more, only the number of passed ones is shown


class StagedRollout(msgspec.Struct, frozen=True):
    """A rollout in progress: the DaemonSet does not have the template of the target yet."""

    inputs: StageInputs
    stages: StagesDecision

    @property
    def target(self) -> RolloutTarget:
        """The target."""
        return self.inputs.target

    @property
    def commit(self) -> CommitId:
        """The commit of the target."""
        return CommitId(self.target.commit)

    @property
    def halt(self) -> Halt | None:
        """Why it is halted, None if it is not."""
        return self.stages.halt

    @property
    def complete(self) -> bool:
        """Whether every stage is passed, and every node that can be updated is proved."""
        return self.stages.complete

    @property
    def current(self) -> StageProgress | None:
        """The first stage that is not passed."""
        return next(
            (stage for stage in self.stages.stages if stage.state is not StageState.PASSED), None
        )

    @property
    def parked(self) -> tuple[NodeProgress, ...]:
        """The nodes for which the rollout does not wait: broken before, or afterwards by their own
        fault.
        """
        return tuple(node for node in self.stages.nodes if node.step in APART)

    @property
    def progress(self) -> str:
        """`canary 2/2, rest 3/8`: the proved nodes of each stage."""
        return ", ".join(self._parts())

    @property
    def state(self) -> str:
        """The stage in one word, for tables: `canary`, `rest (held)`, `canary (halted)`, `done`."""
        current = self.current
        if self.halt is not None:
            return f"{self.halt.stage} (halted)"
        if current is None:
            return "done" if self.complete else self.stages.stages[-1].name
        return f"{current.name} (held)" if self.stages.hold else current.name

    def waits_for(self, stage: StageProgress) -> StageWait | None:
        """The reason why a stage waits, and its end; None for a pending or passed stage."""
        match stage.state:
            case StageState.PENDING | StageState.PASSED:
                return None
            case StageState.HALTED:
                return StageWait("another commit")
            case StageState.HELD if self.stages.hold is not None:
                return self.stages.hold
            case StageState.OPEN | StageState.HELD:
                return self._moving(stage)

    def _moving(self, stage: StageProgress) -> StageWait | None:
        nodes = [
            node for node in self.stages.nodes if node.stage == stage.name and node.step in MOVING
        ]
        counts = Counter(node.step for node in nodes)
        times = [node.until for node in nodes if node.until is not None]
        if nodes:
            words = ", ".join(f"{counts[step]} {step}" for step in MOVING if counts[step])
            return StageWait(words, max(times, default=None))
        return StageWait("the next batch", self.stages.wake_at)

    def approvals_of(self, stage: StageProgress) -> tuple[StageApproval, ...]:
        """The approvers of a stage."""
        return tuple(approval for approval in self.inputs.approvals if approval.stage == stage.name)

    def number(self, seen: Observation) -> int:
        """The number of the revision after its promotion: its own, before that the next one."""
        own = (
            revision
            for revision in seen.revisions
            if (owner := revisions.owner_of(revision)) is not None
            and owner.uid == seen.daemonset.uid
        )
        newest = max(own, key=lambda one: one.number, default=None)
        if newest is None:
            return 1
        is_target = proofs.hash_of(newest) in {self.target.hash, *self.target.hashes}
        return newest.number if is_target and newest.number else newest.number + 1

    def _parts(self) -> Iterator[str]:
        shown = self.stages.stages
        if len(shown) > SHOWN:
            passed = sum(1 for stage in shown if stage.state is StageState.PASSED)
            yield f"{passed} of {len(shown)} stages passed"
            current = self.current
            shown = (current,) if current is not None else ()
        for stage in shown:
            yield f"{stage.label} {stage.proved}/{len(stage.nodes)}"


Assemble = Callable[[Observation], StageInputs | None]


def read(seen: Observation, assemble: Assemble | None = None) -> StagedRollout | None:
    """The rollout in progress, None without one. `assemble` returns the inputs beside pods
    and nodes; by default those that the objects of the cluster contain.
    """
    inputs = (assemble or from_objects((seen,)))(seen)
    if inputs is None or not inputs.target.staged:
        return None
    return of(decide.layout(seen), inputs)


def hold_at_rest(seen: Observation) -> StageHold | None:
    """Why the nodes do not get the proven template outside of a rollout; None without a hold or a
    policy.
    """
    if daemonset_statements.has_target(seen.daemonset.annotations):
        return None
    try:
        inputs = stage_inputs.observed(seen)
    except ValueError:
        return None
    return rollout_holds.at_rest(inputs, seen.daemonset) if inputs is not None else None


def of(layout: NodePodLayout, inputs: StageInputs) -> StagedRollout:
    """The rollout with these inputs. A halt counts when it is recorded: before that the controller
    reads its nodes once more, which may end it.
    """
    decided = stages.decide(layout, inputs)
    halt, record = decided.halt, inputs.record
    if halt is None or record.halt is not None or inputs.refuses == RECORD:
        return StagedRollout(inputs, decided)
    hold = StageHold(f"halts: {halt.message}", kind=HoldKind.SUSPICION)
    shown = tuple(
        replace(stage, state=StageState.HELD) if stage.state is StageState.HALTED else stage
        for stage in decided.stages
    )
    record = replace(decided.record, halt=None)
    return StagedRollout(inputs, replace(decided, stages=shown, record=record, hold=hold))


def missing_target(seen: Observation) -> str:
    """Why the rollout of a DaemonSet that names a target can't be decided; empty if it can."""
    try:
        if target_revisions.policy_of(seen.daemonset) is None:
            return ""
    except ValueError as error:
        return str(error)
    if target_revisions.target_of(seen.daemonset, seen.revisions) is None:
        name = daemonset_statements.target_name(seen.daemonset.annotations)
        return f"the target revision {name} does not exist yet"
    return ""


def counts(rollout: StagedRollout) -> RolloutCounts:
    """The numbers of nodes, for metrics."""
    stages = rollout.stages
    proved = sum(stage.proved for stage in stages.stages)
    return RolloutCounts(
        stages.at_risk,
        stages.cap,
        len(rollout.parked),
        proved,
        len(stages.nodes),
        rollout.halt is not None,
    )


def nodes_done(rollout: StagedRollout, now: float) -> RolloutProgress:
    """The proved nodes, of all nodes that the rollout can update, with the time left by its stages
    at `now`, in seconds since 1970.
    """
    numbers = counts(rollout)
    left = staged_forecast.time_left(rollout.inputs.policy, rollout.stages, now)
    seconds = left.seconds if left is not None and not left.at_least else 0.0
    return RolloutProgress(numbers.proved, numbers.total - numbers.parked, seconds)


def as_json(rollout: StagedRollout) -> dict[str, Any]:
    """The key `rollout` of a DaemonSetStatus (docs/reference/json.md). Times are in UTC."""
    stages, halt = rollout.stages, rollout.halt
    return {
        "commit": rollout.commit,
        "target": rollout.target.revision,
        "hash": rollout.target.hash,
        "complete": rollout.complete,
        "began": _time(stages.record.began),
        "atRisk": stages.at_risk,
        "atRiskLimit": stages.cap,
        "stages": [_stage_json(rollout, stage) for stage in stages.stages],
        "hold": hold_json(stages.hold),
        "halt": {
            "stage": halt.stage,
            "at": _time(halt.at),
            "message": halt.message,
            "nodes": [
                {
                    "node": node.node,
                    "reason": node.reason,
                    "blame": node.blame.value,
                    "message": texts.words(node.message),
                }
                for node in halt.nodes
            ],
            "gate": _gate_json(halt.gate),
        }
        if halt
        else None,
        "parked": [
            {
                "node": node.node,
                "stage": node.stage,
                "step": node.step.value,
                "reason": node.reason,
                "message": node.message,
            }
            for node in rollout.parked
        ],
    }


def _stage_json(rollout: StagedRollout, stage: StageProgress) -> dict[str, Any]:
    return {
        "name": stage.name,
        "state": stage.state.value,
        "nodes": len(stage.nodes),
        "proved": stage.proved,
        "takenFrom": stage.taken_from or None,
        "waitsFor": hold_json(rollout.waits_for(stage)),
        "approvedBy": [approval.text for approval in rollout.approvals_of(stage)],
    }


def _gate_json(gate: GateEvidence | None) -> dict[str, Any] | None:
    if gate is None:
        return None
    facts = {"name": gate.gate, "query": gate.query, "value": gate.value, "bound": gate.bound}
    return {**facts, "nodes": list(gate.nodes)}


def hold_json(hold: StageWait | None) -> dict[str, Any] | None:
    """A hold, or what a stage waits for; null without one."""
    if hold is None:
        return None
    kind = hold.kind.value if isinstance(hold, StageHold) else None
    return {"reason": hold.reason, "until": _time(hold.until), "kind": kind}


def _time(at: float | None) -> str | None:
    return timestamps.text(at) if at else None


def from_objects(
    observations: Iterable[Observation],
    warnings: Mapping[str, PodCause] | None = None,
    others: OtherPods | None = None,
) -> Assemble:
    """The inputs that the objects of a cluster contain, with all its DaemonSets; `warnings` are the
    newest warning events of pods, by their UID, and `others` the pods of other owners.
    """
    all_observations = tuple(observations)
    rollouts = [(observation.daemonset, observation.revisions) for observation in all_observations]
    sources = RolloutSources(
        lambda: all_observations, lambda: rollouts, others, warnings=lambda _: warnings or {}
    )
    return RolloutMemory(lambda _: None, lambda: 0.0, sources).inputs
