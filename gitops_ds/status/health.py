"""The health of a DaemonSet: one state, from its generation, its nodes and the fault of each node.

A DaemonSet is Failed if its template fails, or after a deadline without progress for which no node
is the cause. A node that fails, joins or is under maintenance never makes it Failed; a failing
template never leaves it Healthy.

In a staged rollout, a node that waits for its stage runs the proven template and is old, not
unhealthy; a parked node, and one that is set aside, is a fault of the node; a failed node is a
fault of the template as soon as the rollout is halted for it. A halted rollout is Failed, and one
with a stage that is not passed is never Healthy. The counters are those of `get`, the page and
JSON: each existing node once. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from gitops_ds.core import names, stated_reasons
from gitops_ds.core.daemonset import Counts, PodCause
from gitops_ds.core.decision import Observation
from gitops_ds.core.health import Blame, Health, HealthState, NodeCounts, NodeHealth
from gitops_ds.core.plain_text import counted
from gitops_ds.core.redaction import texts
from gitops_ds.core.rollouts.staged_rollout import NodeProgress, NodeStep
from gitops_ds.core.values import replace
from gitops_ds.daemonset import decide
from gitops_ds.daemonset.node_pods import NodePodLayout
from gitops_ds.rollouts.decisions import node_steps
from gitops_ds.rollouts.state import daemonset_statements, target_revisions
from gitops_ds.rollouts.views import staged_rollouts
from gitops_ds.rollouts.views.staged_rollouts import Assemble, StagedRollout
from gitops_ds.status import fault_attribution
from gitops_ds.status.fault_attribution import JOINING, OUTDATED, FaultScope, NodeFaults


class ProgressMarker(msgspec.Struct, frozen=True):
    """The last progress, and its time in seconds since 1970."""

    mark: object = None
    at: float = 0.0


class Judged(msgspec.Struct, frozen=True):
    """The health at one moment, and the progress to pass to the next call."""

    health: Health
    course: ProgressMarker


def judge(
    seen: Observation | None,
    refused: str = "",
    assemble: Assemble | None = None,
    warnings: Mapping[str, PodCause] | None = None,
) -> Health:
    """The health of a DaemonSet without regard to progress; None for a missing DaemonSet.

    `refused` is the reason why its pods are currently refused, else empty; `assemble` returns the
    inputs of its rollout; `warnings` are the newest warning events of its pods, by their UID.
    """
    if seen is None:
        return Health(HealthState.MISSING, "not in the cluster")
    scope = FaultScope(
        refused=refused,
        rollout=staged_rollouts.read(seen, assemble),
        warnings=warnings or {},
    )
    return follow(ProgressMarker(), seen, scope).health


def follow(before: ProgressMarker, seen: Observation, scope: FaultScope | None = None) -> Judged:
    """The health at this moment. A new commit or generation, and each further updated node,
    restarts the deadline.
    """
    scope = scope or FaultScope()
    daemonset = seen.daemonset
    if daemonset.selector is None:
        return Judged(Health(HealthState.FAILED, decide.SELECTING_ALL), before)
    if daemonset.deleting:
        return Judged(Health(HealthState.PROGRESSING, "being deleted"), before)
    layout = decide.layout(seen)
    blames, rollout = fault_attribution.judge(layout, scope), scope.rollout
    if rollout is not None:
        blames = staged_faults(blames, rollout)
    node_counts, counts = _node_counts(blames), status_counts(layout)
    mark = (
        daemonset.uid,
        daemonset.generation,
        daemonset.annotations.get(names.COMMIT),
        node_counts.updated,
        _current(layout),
        *((rollout.target.hash, rollout.progress) if rollout else ()),
    )
    waits = _waits(seen, node_counts) and not (rollout and moves_with_time(rollout))
    course = before if waits and mark == before.mark else ProgressMarker(mark, seen.now)
    deadline = rollout.inputs.policy.progress.deadline if rollout else scope.deadline
    due = course.at + deadline
    state, message = _summarize(
        _Summary(layout, blames, node_counts, seen.now >= due, deadline, rollout)
    )
    again = [
        time
        for time in (blames.again, due if waits else None)
        if time is not None and time > seen.now
    ]
    health = Health(
        state, message + _hold(seen), blames.nodes, node_counts, min(again, default=None), counts
    )
    return Judged(health, course)


def _hold(seen: Observation) -> str:
    """The hold outside of a rollout as the end of a message; that of a rollout is in the message of
    its stages.
    """
    hold = None if seen.daemonset.suspended else staged_rollouts.hold_at_rest(seen)
    return f"; on hold: {hold.text}" if hold is not None else ""


class _Summary(msgspec.Struct, frozen=True):
    """The input of a state; `late` if no progress was made for the whole deadline."""

    layout: NodePodLayout
    blames: NodeFaults
    node_counts: NodeCounts
    late: bool
    deadline: float
    rollout: StagedRollout | None = None

    @property
    def done(self) -> int:
        """The number of nodes with an available agent of the current template."""
        return self.blames.eligible - len(self.blames.nodes)

    @property
    def available(self) -> int:
        """The number of nodes with an available agent of any template."""
        return sum(
            1
            for node_pods in self.layout.nodes
            if node_pods.wanted and any(map(self.layout.available, node_pods.staying))
        )

    def of(self, *blames: Blame) -> list[NodeHealth]:
        """The nodes with one of these blames, without joining nodes."""
        return [
            node for node in self.blames.nodes if node.blame in blames and node.reason != JOINING
        ]

    def listed(self, nodes: Sequence[NodeHealth]) -> str:
        """`3 of 5 nodes (ImagePullBackOff: node-1, node-2, node-3)`; five names at most."""
        reasons = Counter(node.reason for node in nodes)
        parts = []
        for reason in sorted(reasons, key=lambda reason: (-reasons[reason], reason)):
            on = [node.node for node in nodes if node.reason == reason]
            parts.append(f"{reason}: {', '.join(on[:5])}{' and more' if len(on) > 5 else ''}")
        number, eligible = len(nodes), self.blames.eligible
        of = f"{number} of {eligible} nodes"
        if number > eligible:  # a taint excludes nodes with pods
            of = counted(number, "node")
        return f"{of} ({'; '.join(parts)})"


def _summarize(summary: _Summary) -> tuple[HealthState, str]:
    daemonset = summary.layout.seen.daemonset
    rollout = summary.rollout
    if daemonset.suspended:
        failing = summary.of(Blame.TEMPLATE)
        more = f"; the template fails on {summary.listed(failing)}" if failing else ""
        by = f"suspended by the annotation {names.SUSPEND}"
        stated = stated_reasons.after(by, daemonset.suspend_reason)
        return HealthState.SUSPENDED, f"{stated}{more}"
    if rollout is not None and rollout.halt is not None:
        return HealthState.FAILED, staged_message(rollout)
    if daemonset.observed_generation != daemonset.generation:
        waits = f"no controller has observed generation {daemonset.generation} yet"
        return (
            (HealthState.FAILED, f"{waits}, for {summary.deadline:.0f} s")
            if summary.late
            else (HealthState.PROGRESSING, waits)
        )
    if failing := summary.of(Blame.TEMPLATE):
        return HealthState.FAILED, f"the template fails on {summary.listed(failing)}"
    ill, refused, coming = (
        summary.of(Blame.NODE),
        summary.of(Blame.CLUSTER),
        summary.of(Blame.UNKNOWN),
    )
    if summary.late and refused:
        return HealthState.FAILED, f"no progress for {summary.deadline:.0f} s: {_why(refused)}"
    if ill or refused:
        more = f": {_why(refused)}" if refused else ""
        more += f"; {staged_message(rollout)}" if rollout else ""
        return HealthState.DEGRADED, f"unhealthy on {summary.listed([*ill, *refused])}{more}"
    if summary.late and coming:
        return _no_progress(summary, coming)
    if rollout is None and (missing := staged_rollouts.missing_target(summary.layout.seen)):
        return HealthState.PROGRESSING, missing
    if rollout is not None and not rollout.complete:
        return HealthState.PROGRESSING, staged_message(rollout)
    if coming:
        return (
            HealthState.PROGRESSING,
            f"{summary.done} of {summary.blames.eligible} nodes done",
        )
    return HealthState.HEALTHY, _healthy(summary)


def _no_progress(summary: _Summary, coming: Sequence[NodeHealth]) -> tuple[HealthState, str]:
    """The state after a deadline without progress. A pod that does not terminate is a fault of its
    node, not of the template.
    """
    stuck = [node for node in coming if node.reason != OUTDATED]
    if stuck and all(node.reason == "Terminating" for node in stuck):
        return HealthState.DEGRADED, f"pods do not terminate on {summary.listed(stuck)}"
    return HealthState.FAILED, f"no progress for {summary.deadline:.0f} s: {summary.listed(coming)}"


def _healthy(summary: _Summary) -> str:
    if not summary.blames.eligible:
        return "0 nodes: no node matches its selector, affinity and tolerations"
    joining = [node for node in summary.blames.nodes if node.reason == JOINING]
    all = summary.blames.eligible - len(joining)
    if not summary.node_counts.parked:
        text = f"{all} of {all} nodes available"
    else:
        text = (
            f"{summary.available} of {all} available; {summary.node_counts.parked} run an earlier "
            "revision until their pods are deleted"
        )
    return text + (f"; {len(joining)} joining" if joining else "")


def _why(refused: Sequence[NodeHealth]) -> str:
    return f"pods are refused: {refused[0].message}"


def _node_counts(blames: NodeFaults) -> NodeCounts:
    counted = Counter(_field(node) for node in blames.nodes)
    return replace(NodeCounts(updated=blames.eligible - len(blames.nodes)), **counted)


def _field(node: NodeHealth) -> str:
    match node.blame:
        case Blame.UNKNOWN:
            return {OUTDATED: "old", JOINING: "joining"}.get(node.reason, "starting")
        case Blame.TEMPLATE:
            return "template_fault"
        case Blame.NODE:
            return "node_fault"
        case Blame.CLUSTER:
            return "refused"
        case Blame.DESIGN:
            return "parked"


def _current(layout: NodePodLayout) -> int:
    """The number of pods of the current template."""
    return sum(1 for node_pods in layout.nodes for pod in node_pods.pods if layout.updated(pod))


def _waits(seen: Observation, node_counts: NodeCounts) -> bool:
    """Whether progress is expected, so that the deadline runs."""
    return (
        bool(node_counts.starting or node_counts.old or node_counts.refused)
        or seen.daemonset.observed_generation != seen.daemonset.generation
    )


def status_counts(layout: NodePodLayout) -> Counts | None:
    """The counters of the status as they are now. With a rollout policy `updated` are the desired
    nodes with the target or the proven template, while the status counts the DaemonSet's own one.

    None without nodes: they may not be listed.
    """
    seen = layout.seen
    if not seen.nodes:
        return None
    counts, target = layout.counts(), None
    if daemonset_statements.has_policy(seen.daemonset.annotations):
        target = target_revisions.target_of(seen.daemonset, seen.revisions)
    if target is None:
        return counts
    updated = sum(
        any(node_steps.runs_target(layout, target, pod) for pod in node_pods.staying)
        for node_pods in layout.nodes
        if node_pods.wanted
    )
    return replace(counts, updated=updated)


def counts_without_nodes(seen: Observation) -> Counts:
    """The counters of the status; in a staged rollout `updated` are the nodes of the target's
    pods.
    """
    counts = seen.daemonset.counts or Counts()
    if not daemonset_statements.has_target(seen.daemonset.annotations):
        return counts
    target = target_revisions.target_of(seen.daemonset, seen.revisions)
    if target is None or not target.staged:
        return counts
    return replace(counts, updated=nodes_by_hash(seen)[target.hash])


def nodes_by_hash(seen: Observation) -> Counter[str]:
    """The number of nodes that run each revision, by the hash of the revision."""
    nodes = {node.name for node in seen.nodes}
    return Counter(
        hash
        for hash, _ in {
            (pod.hash, pod.node)
            for pod in seen.pods
            if pod.node and not pod.terminating and (not nodes or pod.node in nodes)
        }
    )


def staged_faults(judged: NodeFaults, rollout: StagedRollout) -> NodeFaults:
    """The faults by the steps of the nodes; `judged` are those by their pods, with the target as
    the wanted template.
    """
    by_pod = {node.node: node for node in judged.nodes}
    by_node = {
        name: replace(node, blame=Blame.UNKNOWN) if node.blame is Blame.DESIGN else node
        for name, node in by_pod.items()
    }
    for staged in rollout.stages.nodes:
        by_node.pop(staged.node, None)
        node = _node(staged, by_pod.get(staged.node))
        if node is not None and node.blame is Blame.TEMPLATE and rollout.halt is None:
            node = replace(node, blame=Blame.UNKNOWN)  # one more node decides the cause
        if node is not None:
            by_node[staged.node] = node
    times = [time for time in (judged.again, rollout.stages.wake_at) if time is not None]
    nodes = tuple(by_node[name] for name in sorted(by_node))
    return NodeFaults(judged.eligible, nodes, min(times, default=None))


def moves_with_time(rollout: StagedRollout) -> bool:
    """Whether the rollout waits for a time or a person, so that no progress is expected now."""
    stages = rollout.stages
    return rollout.complete or stages.hold is not None or stages.wake_at is not None


def staged_message(rollout: StagedRollout) -> str:
    """`canary 2/2, rest 3/8; on hold: freeze, until 2027-01-04T00:00:00Z`."""
    if rollout.halt is not None:
        return f"halted in stage {rollout.halt.stage}: {rollout.halt.message}"
    hold = rollout.stages.hold
    return rollout.progress + (f"; on hold: {hold.text}" if hold else "")


def _node(one: NodeProgress, judged: NodeHealth | None) -> NodeHealth | None:
    """The entry of a node that does not run the target well, None for one that does."""
    message = texts.words(one.message)
    match one.step:
        case NodeStep.PROVED | NodeStep.SOAKING:
            return None
        case NodeStep.WAITING:
            return NodeHealth(one.node, OUTDATED, Blame.UNKNOWN, f"waits in stage {one.stage}")
        case NodeStep.PARKED | NodeStep.SET_ASIDE:
            return NodeHealth(one.node, one.reason, Blame.NODE, message)
        case NodeStep.FAILED:
            return NodeHealth(one.node, one.reason, Blame.TEMPLATE, message)
        case NodeStep.REPLACING | NodeStep.STARTING:
            if judged is not None and judged.blame in (Blame.UNKNOWN, Blame.CLUSTER):
                return judged
            return NodeHealth(one.node, "Starting", Blame.UNKNOWN, message)
