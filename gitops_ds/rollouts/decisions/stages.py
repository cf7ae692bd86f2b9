"""The nodes that a staged rollout updates now: the single decision for preview, simulation and
controller.

Invariants, over any observations (tests/rollouts/test_stages.py):

1. Cap: a node is taken only while the nodes at risk stay within `cap`. At risk are touched nodes
   that are not proved, and nodes whose earlier pod broke after the rollout began.
2. Order: a node is taken only when its stage is open, and a stage opens only after the one before
   it passed. Nodes that joined are taken before if `newNodes` permits it.
3. Halt: after a failure that the template causes no node is taken, until another target replaces
   this one.
4. Attribution: a node that was broken before is parked, and never a reason to halt.
5. Progress: without faults every rollout ends; each hold has a reason, and a time if time ends it.

6. Return: a node with an abandoned template gets the proven one at once, regardless of the state of
   other nodes, without order, batches and cap.

Outside of rollouts the proven template is the target. Nodes that were parked get it, and after a
rollback all of them: in the order of the stages, in batches and within the cap, without soak and
gates. While the DaemonSet has another template, by an edit, no pod is replaced because of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gitops_ds.core import plain_text
from gitops_ds.core.rollouts.rollout_policy import Stage
from gitops_ds.core.rollouts.staged_rollout import (
    APART,
    Halt,
    HoldKind,
    NodeStep,
    StageHold,
    StageInputs,
    StageProgress,
    StagesDecision,
    StageState,
)
from gitops_ds.core.values import replace
from gitops_ds.daemonset.node_pods import NodePodLayout
from gitops_ds.rollouts.decisions import measured_gates, node_selection, rollout_holds, staged_nodes
from gitops_ds.rollouts.decisions.measured_gates import GateResult, GateState
from gitops_ds.rollouts.decisions.staged_nodes import StagedNodes

REFUSAL = 300  # characters of the message of the API server in the record
_ENDED = (NodeStep.PROVED, *APART)


class _Stages(msgspec.Struct, frozen=True):
    """The passed stages with their times, the current one with the results of its gates, and all
    open ones.
    """

    passed: Mapping[str, float]
    current: Stage | None
    open: Sequence[Stage]
    hold: StageHold | None
    gates: Sequence[GateResult]


class _SelectedNodes(msgspec.Struct, frozen=True):
    """The nodes to update now, or why no node is; `times` are those of later batches."""

    take: tuple[str, ...]
    hold: StageHold | None
    halt: Halt | None
    times: Sequence[float]


def decide(layout: NodePodLayout, inputs: StageInputs) -> StagesDecision:
    """The nodes to update now, a deterministic function of the observation and the inputs."""
    fleet = StagedNodes.of(layout, inputs)
    decided = _decided(fleet, inputs)
    relisted = rollout_holds.relisted(layout.seen)
    if not (inputs.is_edited or relisted):
        return decided
    # The stages may be those of another policy, the nodes and proofs those of another template.
    passed = inputs.record.passed
    return replace(
        decided,
        take=(),
        returned=(),
        open=frozenset(),
        stages=tuple(
            replace(stage, state=StageState.PASSED if stage.name in passed else StageState.HELD)
            for stage in decided.stages
        ),
        record=inputs.record,
        hold=relisted or decided.hold,
        complete=False,
        commits=False,
    )


def _decided(fleet: StagedNodes, inputs: StageInputs) -> StagesDecision:
    stages = _stages(fleet)
    selection = _selected_nodes(fleet, stages)
    hold, halt = selection.hold, selection.halt
    ended = all(node.step in _ENDED for node in fleet.nodes.values())
    complete = stages.current is None and not selection.take and ended
    is_early = not complete and _is_early(fleet, stages.passed, halt)
    ends = (hold.until if hold else None, *(node.until for node in fleet.nodes.values()))
    due = (time for time in (*ends, *selection.times) if time is not None and time > fleet.now)
    return StagesDecision(
        take=selection.take,
        returned=_returned(fleet, stages, halt),
        open=_open_nodes(fleet, stages),
        nodes=tuple(fleet.nodes[name] for name in sorted(fleet.nodes)),
        stages=tuple(_progress(fleet, stages, selection)),
        at_risk=fleet.at_risk,
        cap=fleet.cap,
        record=replace(
            inputs.record,
            began=inputs.record.began or fleet.now,
            passed=stages.passed,
            halt=halt,
            # Until the deployer has the proof, the DaemonSet keeps the template that it got early.
            early=inputs.record.early if complete else is_early,
            before=_before(fleet, stages, selection),
            gates={gate.probe.key: gate.record for gate in stages.gates if gate.record is not None},
            refused=(refused := _refused(inputs, hold)),
            refuses=inputs.refuses if refused else "",
        ),
        hold=hold,
        complete=complete,
        commits=halt is None and inputs.target.staged and (complete or is_early),
        wake_at=min(due, default=None),
    )


def _refused(inputs: StageInputs, hold: StageHold | None) -> str:
    """The refusal in the record: the first message, until pods are admitted or another hold begins,
    so that no attempt writes.
    """
    if not inputs.refused or (hold is not None and hold.kind is not HoldKind.REFUSED):
        return ""
    first = inputs.record.refused if inputs.record.refuses == inputs.refuses else ""
    return first or plain_text.line(inputs.refused, REFUSAL)


def _open_nodes(fleet: StagedNodes, stages: _Stages) -> frozenset[str]:
    """The nodes that may get the target if they have no pod."""
    opened = node_selection.members_of(fleet, stages.open) | node_selection.open_nodes(fleet)
    return opened - node_selection.beyond_limits(fleet)


def _returned(fleet: StagedNodes, stages: _Stages, halt: Halt | None) -> tuple[str, ...]:
    """The nodes that get the proven template back during a rollout. One of an open stage that runs
    the target by an edit is updated in its stage instead.
    """
    if not fleet.inputs.target.staged or fleet.layout.seen.daemonset.suspended:
        return ()
    returned = node_selection.returned(fleet)
    if halt is not None or fleet.inputs.held:
        return tuple(returned)
    opened = node_selection.members_of(fleet, stages.open)
    return tuple(name for name in returned if not (name in opened and fleet.runs_target(name)))


def _stages(fleet: StagedNodes) -> _Stages:
    """The stages: one passes when its nodes are proved and its gates pass; the first other one is
    the current one.
    """
    passed, current, hold = dict(fleet.inputs.record.passed), None, None
    staged = fleet.inputs.target.staged
    gates: Sequence[GateResult] = ()
    for stage, members in fleet.stages:
        if staged_nodes.is_passed(stage, fleet.inputs):
            continue
        is_proved = fleet.is_proved(members) or not (staged or fleet.able(members))
        gates = measured_gates.of(fleet, stage, members)
        hold = measured_gates.pending(gates) if is_proved else rollout_holds.unable(fleet, members)
        if not is_proved or any(gate.state is not GateState.PASSED for gate in gates):
            current = stage
            break
        gates = ()
        passed[stage.name] = fleet.now
    is_open = [stage for stage in fleet.policy.stages if stage.name in passed]
    if current is not None:
        closed = rollout_holds.closed(fleet, current, passed) if staged else None
        hold = closed or hold
        is_open += [] if closed else [current]
    return _Stages(passed, current, is_open, hold, gates)


def _before(fleet: StagedNodes, stages: _Stages, selection: _SelectedNodes) -> Mapping[str, float]:
    """When the current stage first touched a node, if one of its gates compares with the time
    before.
    """
    stage, record = stages.current, fleet.inputs.record
    if stage is None or not any(
        fleet.policy.gate(name).compare.before is not None for name in stage.gates
    ):
        return {}
    if stage.name in record.before:
        return {stage.name: record.before[stage.name]}
    if stages.gates:  # nodes were touched before the policy had the gate
        return {stage.name: max(record.passed.values(), default=record.began)}
    return {stage.name: fleet.now} if selection.take else {}


def _selected_nodes(fleet: StagedNodes, stages: _Stages) -> _SelectedNodes:
    """The nodes to update. If the cause of a failure is undecided, one more node decides it."""
    times = list[float]()
    general = rollout_holds.hold(fleet)
    if not fleet.inputs.target.staged:
        return _SelectedNodes(*_restored(fleet, stages, general, times), None, times)
    witness = node_selection.witness(fleet, stages.open) if general is None else ()
    halt = fleet.inputs.record.halt or rollout_holds.halt(fleet, stages.gates, waits=bool(witness))
    ending = rollout_holds.halts_after_batch(fleet, halt)
    if ending is not None:
        return _SelectedNodes((), ending, None, times)
    if witness:
        return _SelectedNodes(witness, rollout_holds.suspicion(fleet), halt, times)
    take: tuple[str, ...] = ()
    pause = measured_gates.pause(stages.gates)
    if halt is None and general is None and pause is None:
        take = tuple(node_selection.take(fleet, stages.open, stages.current, times))
    idle = node_selection.idle_hold(fleet, stages.current, take)
    hold = general or stages.hold or pause or idle or rollout_holds.capped(fleet, take)
    return _SelectedNodes(take, hold, halt, times)


def _restored(
    fleet: StagedNodes, stages: _Stages, general: StageHold | None, times: list[float]
) -> tuple[tuple[str, ...], StageHold | None]:
    """The nodes that get the proven template, outside of rollouts, or why none does."""
    if general is not None:
        return (), general
    returned = tuple(node_selection.returned(fleet))
    at_rest = rollout_holds.at_rest(fleet.inputs, fleet.layout.seen.daemonset)
    if at_rest is not None:
        return returned, at_rest
    others = node_selection.take(fleet, stages.open, stages.current, times)
    return tuple(dict.fromkeys((*returned, *others))), None


def _is_early(fleet: StagedNodes, passed: Mapping[str, float], halt: Halt | None) -> bool:
    """Whether the DaemonSet gets the template before the end, or already has it: after the first
    stage, with a proved node of every platform, and more than half of the nodes proved.
    """
    if fleet.inputs.record.early or halt is not None:
        return fleet.inputs.record.early
    if fleet.policy.template.commit != "late" or fleet.policy.stages[0].name not in passed:
        return False
    proved = sum(1 for node in fleet.nodes.values() if node.step is NodeStep.PROVED)
    return 2 * proved > len(fleet.nodes) and node_selection.every_platform_is_proved(fleet)


def _progress(
    fleet: StagedNodes, stages: _Stages, selection: _SelectedNodes
) -> Iterator[StageProgress]:
    """Each stage with its state."""
    for stage, members in fleet.stages:
        state = StageState.PENDING
        if stage.name in stages.passed:
            state = StageState.PASSED
        elif stage is stages.current:
            state = StageState.HELD if selection.hold else StageState.OPEN
            state = StageState.HALTED if selection.halt else state
        proved = sum(1 for name in members if fleet.nodes[name].step is NodeStep.PROVED)
        source = fleet.canary_source if stage is fleet.policy.stages[0] else ""
        yield StageProgress(stage.name, state, tuple(members), proved, source)
