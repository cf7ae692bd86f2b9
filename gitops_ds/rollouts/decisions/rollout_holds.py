"""Why a staged rollout does not continue: its holds, which end, and its halt, which does not; and
which of them are reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gitops_ds.core import plain_text, stated_reasons
from gitops_ds.core.daemonset import DaemonSet, RollingUpdate
from gitops_ds.core.decision import Observation
from gitops_ds.core.plain_text import counted
from gitops_ds.core.redaction import texts
from gitops_ds.core.rollouts.rollout_policy import RolloutPolicy, Stage
from gitops_ds.core.rollouts.staged_rollout import (
    APART,
    MOVING,
    UPDATING,
    Halt,
    HoldKind,
    NodeStep,
    StageHold,
    StageInputs,
    StagesDecision,
    StageState,
)
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import cron_windows
from gitops_ds.rollouts.decisions import measured_gates, node_steps
from gitops_ds.rollouts.decisions.failures import OVERDUE
from gitops_ds.rollouts.decisions.measured_gates import GateResult
from gitops_ds.rollouts.decisions.staged_nodes import StagedNodes
from gitops_ds.rollouts.state import daemonset_statements, rollout_annotations

_PODS = "the pods"
_MOVED = StageHold(
    "nodeSelector, affinity or tolerations of the DaemonSet were edited in the cluster: it selects "
    "nodes as neither the proven template nor the target; no node is updated and no stage passes",
    kind=HoldKind.EDITED,
)


def hold(fleet: StagedNodes) -> StageHold | None:
    """Why no node at all is updated now."""
    if fleet.layout.seen.daemonset.suspended:
        return _suspended(fleet.layout.seen.daemonset)
    if fleet.inputs.foreign:
        return _foreign(fleet.inputs, fleet.layout.seen.daemonset)
    if fleet.inputs.moved:
        return _MOVED
    if fleet.inputs.held and fleet.inputs.record.halt is None:
        return StageHold(fleet.inputs.held, kind=HoldKind.HALTED_BEFORE)
    if fleet.inputs.halted_elsewhere:
        return StageHold(fleet.inputs.halted_elsewhere, kind=HoldKind.HALTED_ELSEWHERE)
    if is_refused(fleet.inputs, fleet.now):
        reason = f"the API server refuses {fleet.inputs.refuses or _PODS}: {fleet.inputs.refused}"
        return StageHold(reason, fleet.inputs.refused_until, kind=HoldKind.REFUSED)
    if fleet.inputs.target.staged and fleet.attributed.suspected:
        return suspicion(fleet)
    if fleet.inputs.target.staged and fleet.attributed.held:
        return _others(fleet)
    parked = sum(1 for node in fleet.nodes.values() if node.step is NodeStep.PARKED)
    limit = fleet.policy.limits.parked.of(len(fleet.nodes))
    if fleet.inputs.target.staged and parked > limit:
        reason = f"{counted(parked, 'node')} parked, more than limits.parked ({limit})"
        return StageHold(reason, kind=HoldKind.PARKED)
    return None


def relisted(seen: Observation) -> StageHold | None:
    """The hold while some kinds may be of another history of the cluster than the others."""
    if not seen.unlisted:
        return None
    reason = f"{', '.join(seen.unlisted)} are listed again, after a watch lost its history"
    return StageHold(reason, kind=HoldKind.RELISTED)


def is_refused(inputs: StageInputs, now: float) -> bool:
    """Whether the write that the API server refused is not tried again yet."""
    return bool(inputs.refused) and (inputs.refused_until is None or now < inputs.refused_until)


def closed(fleet: StagedNodes, stage: Stage, passed: Mapping[str, float]) -> StageHold | None:
    """Why the current stage is not open; `passed` are the times of the stages before it."""
    until = cron_windows.frozen_until(fleet.policy.freeze, fleet.now)
    if until is not None:
        return StageHold("freeze", until, kind=HoldKind.FREEZE)
    until = cron_windows.closed_until(stage.windows, fleet.policy.windows, fleet.now)
    if until is not None:
        reason = f"window {', '.join(stage.windows)} is closed"
        return StageHold(reason, until, kind=HoldKind.WINDOW, about=stage.name)
    if stage.approval is not None and stage.name not in fleet.inputs.approved:
        since = max(passed.values(), default=fleet.inputs.record.began)
        until = (since or fleet.now) + stage.approval.within
        overdue = ", overdue" if until <= fleet.now else ""
        reason = f"approval by {', '.join(stage.approval.from_)}{overdue}"
        about = f"{stage.name}{overdue}"
        return StageHold(reason, None if overdue else until, kind=HoldKind.APPROVAL, about=about)
    for after in fleet.policy.after:
        if not after.same_node and after.agent in fleet.inputs.behind:
            reason = f"agent {after.agent} is updated first"
            return StageHold(reason, kind=HoldKind.AFTER, about=after.agent)
    return None


def unable(fleet: StagedNodes, members: Sequence[str]) -> StageHold | None:
    """The hold of a stage of which no node can be proved: all are broken or cordoned."""
    if not members or fleet.able(members):
        return None
    steps = (fleet.nodes[name] for name in members)
    reasons = ", ".join(sorted({step.reason for step in steps if step.reason}))
    return StageHold(f"no node of the stage can be updated ({reasons})", kind=HoldKind.UNABLE)


def at_rest(inputs: StageInputs, daemonset: DaemonSet) -> StageHold | None:
    """The hold outside of a rollout: the agent is suspended, or the DaemonSet has another template
    than the proven one, or an annotation of another writer.
    """
    if daemonset.suspended:
        return _suspended(daemonset)
    if inputs.foreign:
        return _foreign(inputs, daemonset)
    if not inputs.target.edited:
        return None
    effect = "no pod is replaced because of it"
    if isinstance(daemonset.strategy, RollingUpdate):
        effect = "the DaemonSet controller rolls it out (atRest: RollingUpdate)"
    reason = f"the template was edited in the cluster; {effect}; `gitops-ds drift` names the fields"
    return StageHold(reason, kind=HoldKind.EDITED)


def _suspended(daemonset: DaemonSet) -> StageHold:
    reason = stated_reasons.after("suspended", daemonset.suspend_reason)
    return StageHold(reason, kind=HoldKind.SUSPENDED)


def _foreign(inputs: StageInputs, daemonset: DaemonSet) -> StageHold:
    """The hold while an annotation of the deployer has the value of another writer, or none."""
    if rollout_annotations.is_missing_proof(inputs.foreign, daemonset):
        reason = "no template is proven yet; the next apply records the present one"
        return StageHold(reason, kind=HoldKind.EDITED)
    what = f"the annotation {inputs.foreign}"
    if daemonset_statements.is_target(inputs.foreign):
        what = f"{what}, or the ControllerRevision that it names,"
    reason = f"{what} was edited in the cluster"
    return StageHold(f"{reason}; no pod is replaced because of it", kind=HoldKind.EDITED)


def _others(fleet: StagedNodes) -> StageHold:
    """The failures that others cause. They end without a decision: the pod waits for its place, or
    the kubelet tries again.
    """
    first = fleet.nodes[min(fleet.attributed.held)]
    more = len(fleet.attributed.held) - 1
    nodes = f"{first.node} and {counted(more, 'other node')}" if more else first.node
    message = texts.words(first.message)
    reason = f"{first.reason} on {nodes}, caused by {first.cause}, not by the template"
    about = f"{first.node}/{first.reason}"
    reason = plain_text.line(f"{reason}: {message}" if message else reason)
    return StageHold(reason, kind=HoldKind.OTHERS, about=about)


def suspicion(fleet: StagedNodes) -> StageHold:
    """The failure whose cause other nodes decide, and their deadline."""
    first = fleet.nodes[min(fleet.attributed.suspected | fleet.attributed.alone)]
    starting = [node for node in fleet.nodes.values() if node.step in UPDATING]
    until = max((node.until for node in starting if node.until is not None), default=None)
    others = f"{counted(len(starting), 'node')} still starting" if starting else "one more decides"
    return StageHold(f"{first.reason} on {first.node}; {others}", until, kind=HoldKind.SUSPICION)


def capped(fleet: StagedNodes, take: Sequence[str]) -> StageHold | None:
    """The hold at the limit of nodes at risk, if time does not prove any of them."""
    if take or fleet.at_risk < fleet.cap or any(fleet.nodes[n].step in MOVING for n in fleet.risky):
        return None
    reason = f"{counted(fleet.at_risk, 'node')} at risk, the limit is {fleet.cap}"
    return StageHold(reason, kind=HoldKind.AT_RISK)


def halts_after_batch(fleet: StagedNodes, failure: Halt | None) -> StageHold | None:
    """The hold before a halt, while touched nodes may still start; None if the failure halts at
    once.
    """
    if failure is None or failure == fleet.inputs.record.halt:
        return None
    if fleet.policy.on_failure.halt != "after-batch":
        return None
    moving = [
        node for node in fleet.nodes.values() if node.step in UPDATING and node.reason != OVERDUE
    ]
    if not moving:
        return None
    until = max((node.until for node in moving if node.until is not None), default=None)
    return StageHold(f"halts after this batch: {failure.message}", until, kind=HoldKind.BATCH)


def halt(fleet: StagedNodes, gates: Sequence[GateResult], *, waits: bool) -> Halt | None:
    """The failure that halts the rollout: failed nodes, else a measured gate of the current
    stage. `waits`: one more node decides about failures without peers.
    """
    if not fleet.inputs.target.staged:
        return None
    # The message of a container's end may be the end of its log.
    failed = tuple(
        replace(node, message=texts.words(node.message))
        for node in node_steps.failed_nodes(fleet.attributed, waits=waits)
    )
    if failed:
        first = failed[0]
        more = f" and {counted(len(failed) - 1, 'other node')}" if len(failed) > 1 else ""
        message = f"{first.reason} on {first.node}{more}"
        if first.message:
            message = plain_text.line(f"{message}: {first.message}")
        return Halt(fleet.now, fleet.nodes[first.node].stage, message, failed)
    return measured_gates.halt(gates, fleet.now)


RETURNS = 300.0  # seconds in which a hold that ended and begins again is the same one

_HoldOfTarget = tuple[str, HoldKind, str]  # the hash of the target, the kind, and the subject


class ReportedHolds(msgspec.Struct, frozen=True):
    """The hold in force, None without one, and the ends of recent holds, in seconds since 1970.
    Each hold is reported once while it lasts or returns.
    """

    current: _HoldOfTarget | None = None
    ended: Mapping[_HoldOfTarget, float] = {}

    @property
    def is_new(self) -> bool:
        """Whether the hold in force must be reported."""
        return self.current is not None and self.current not in self.ended

    def after(self, target: str, hold: StageHold | None, now: float) -> ReportedHolds:
        """The holds after a decision about the target with this hash."""
        ended = {one: end for one, end in self.ended.items() if now - end <= RETURNS}
        if self.current is not None:
            ended[self.current] = now
        current = (target, hold.kind, hold.about) if hold is not None else None
        return ReportedHolds(current, ended)


class ReplacedNodes(msgspec.Struct, frozen=True):
    """The stage, its `lost` nodes with the reason of each, and the nodes that it takes instead."""

    stage: str
    lost: Mapping[str, str]
    taken: tuple[str, ...]


def replaced(
    policy: RolloutPolicy, before: StagesDecision, now: StagesDecision
) -> Iterator[ReplacedNodes]:
    """The replacements between two decisions about one target: after all nodes of a stage were set
    aside or left the cluster, it takes others.
    """
    counted = {stage.name for stage in policy.stages if stage.nodes is not None}
    steps = {node.node: node for node in now.nodes}
    for was, stage in zip(before.stages, now.stages, strict=False):
        taken = tuple(name for name in stage.nodes if name not in was.nodes)
        kept = [steps[name] for name in was.nodes if name in steps]
        is_lost = all(node.step in APART for node in kept)
        if not (taken and is_lost and stage.name in counted) or stage.state is StageState.PASSED:
            continue
        lost = {node.node: node.reason for node in kept if node.step is NodeStep.SET_ASIDE}
        lost |= {name: "NodeGone" for name in was.nodes if name not in steps}
        if lost:
            yield ReplacedNodes(stage.name, lost, taken)
