"""How a DaemonSet does, for people: one state, by what its controller has seen, its nodes, and
whose fault each one's trouble is.

Only the template's fault, or a deadline without progress that no node is to blame for, makes it
Failed. A node that dies, joins or is worked on never does; a template that fails never leaves it
Healthy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gitops_ds.daemonset import decide
from gitops_ds.daemonset.node_pods import NodePodLayout
from gitops_ds.fleet import fault_attribution
from gitops_ds.fleet.fault_attribution import JOINING, OUTDATED, FaultScope, NodeFaults
from gitops_ds.model import names
from gitops_ds.model.decision import Blame, Health, HealthState, NodeCounts, NodeHealth, Observation


@dataclass(frozen=True, slots=True)
class ProgressMarker:
    """What is remembered from look to look: what the last progress came to, and when it was made
    (seconds since 1970).
    """

    mark: object = None
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Judged:
    """The health at a look, and what to remember until the next one."""

    health: Health
    course: ProgressMarker


def judge(seen: Observation | None, refused: str = "") -> Health:
    """The health of a DaemonSet at a single look, which knows nothing of progress; None stands for
    one that is not there.

    `refused`: why its pods are refused just now, else empty.
    """
    if seen is None:
        return Health(HealthState.MISSING, "not in the cluster")
    return follow(ProgressMarker(), seen, FaultScope(refused=refused)).health


def follow(before: ProgressMarker, seen: Observation, scope: FaultScope | None = None) -> Judged:
    """The health at this look. A new commit or generation, and each node more that is done, begins
    the deadline anew.
    """
    scope = scope or FaultScope()
    daemonset = seen.daemonset
    if daemonset.selector is None:
        return Judged(Health(HealthState.FAILED, decide.SELECTING_ALL), before)
    if daemonset.deleting:
        return Judged(Health(HealthState.PROGRESSING, "being deleted"), before)
    spread = decide.layout(seen)
    blames = fault_attribution.judge(spread, scope)
    tally = _tally(blames)
    mark = (
        daemonset.uid,
        daemonset.generation,
        daemonset.annotations.get(names.COMMIT),
        tally.updated,
        _current(spread),
    )
    waits = _waits(seen, tally)
    course = before if waits and mark == before.mark else ProgressMarker(mark, seen.now)
    due = course.at + scope.deadline
    state, message = _summarize(_Summary(spread, blames, tally, seen.now >= due, scope.deadline))
    again = [
        time
        for time in (blames.again, due if waits else None)
        if time is not None and time > seen.now
    ]
    return Judged(Health(state, message, blames.nodes, tally, min(again, default=None)), course)


@dataclass(frozen=True, slots=True)
class _Summary:
    """What a state is made of; `late`: nothing moved for the whole deadline."""

    spread: NodePodLayout
    blames: NodeFaults
    tally: NodeCounts
    late: bool
    deadline: float

    @property
    def available(self) -> int:
        """How many nodes have an agent that runs, of whatever template."""
        return sum(
            1
            for spot in self.spread.spots
            if spot.wanted and any(map(self.spread.available, spot.staying))
        )

    def of(self, *blames: Blame) -> list[NodeHealth]:
        """The nodes of these blames, without those that only join."""
        return [
            node for node in self.blames.nodes if node.blame in blames and node.reason != JOINING
        ]

    def listed(self, found: Sequence[NodeHealth]) -> str:
        """`3 of 5 nodes (ImagePullBackOff: node-1, node-2, node-3)`; five names at most."""
        reasons = Counter(node.reason for node in found)
        parts = []
        for reason in sorted(reasons, key=lambda reason: (-reasons[reason], reason)):
            on = [node.node for node in found if node.reason == reason]
            parts.append(f"{reason}: {', '.join(on[:5])}{' and more' if len(on) > 5 else ''}")
        return f"{len(found)} of {self.blames.eligible} nodes ({'; '.join(parts)})"


def _summarize(told: _Summary) -> tuple[HealthState, str]:
    daemonset = told.spread.seen.daemonset
    if daemonset.suspended:
        failing = told.of(Blame.TEMPLATE)
        more = f"; the template fails on {told.listed(failing)}" if failing else ""
        return HealthState.SUSPENDED, f"suspended by the annotation {names.SUSPEND}{more}"
    if daemonset.observed_generation != daemonset.generation:
        waits = f"no controller has taken up generation {daemonset.generation} yet"
        return (
            (HealthState.FAILED, f"{waits}, for {told.deadline:.0f} s")
            if told.late
            else (HealthState.PROGRESSING, waits)
        )
    if failing := told.of(Blame.TEMPLATE):
        return HealthState.FAILED, f"the template fails on {told.listed(failing)}"
    ill, refused, coming = told.of(Blame.NODE), told.of(Blame.CLUSTER), told.of(Blame.UNKNOWN)
    if told.late and refused:
        return HealthState.FAILED, f"no progress for {told.deadline:.0f} s: {_why(refused)}"
    if ill or refused:
        more = f": {_why(refused)}" if refused else ""
        return HealthState.DEGRADED, f"not well on {told.listed([*ill, *refused])}{more}"
    if told.late and coming:
        return _no_progress(told, coming)
    if coming:
        return (
            HealthState.PROGRESSING,
            f"{told.blames.eligible - len(told.blames.nodes)} of {told.blames.eligible} nodes done",
        )
    return HealthState.HEALTHY, _healthy(told)


def _no_progress(told: _Summary, coming: Sequence[NodeHealth]) -> tuple[HealthState, str]:
    """A pod that doesn't end is its node's trouble: the template has no say in it."""
    stuck = [node for node in coming if node.reason != OUTDATED]
    if stuck and all(node.reason == "Terminating" for node in stuck):
        return HealthState.DEGRADED, f"pods don't end on {told.listed(stuck)}"
    return HealthState.FAILED, f"no progress for {told.deadline:.0f} s: {told.listed(coming)}"


def _healthy(told: _Summary) -> str:
    if not told.blames.eligible:
        return "0 nodes: none fits its selector, affinity and tolerations"
    joining = [node for node in told.blames.nodes if node.reason == JOINING]
    all = told.blames.eligible - len(joining)
    if not told.tally.parked:
        text = f"{all} of {all} nodes available"
    else:
        text = (
            f"{told.available} of {all} available; {told.tally.parked} run an earlier revision "
            "until their pods are deleted"
        )
    return text + (f"; {len(joining)} joining" if joining else "")


def _why(refused: Sequence[NodeHealth]) -> str:
    return f"pods are refused: {refused[0].message}"


def _tally(blames: NodeFaults) -> NodeCounts:
    counted = Counter(_field(node) for node in blames.nodes)
    return replace(NodeCounts(updated=blames.eligible - len(blames.nodes)), **counted)


def _field(node: NodeHealth) -> str:
    match node.blame:
        case Blame.TEMPLATE:
            return "template_fault"
        case Blame.NODE:
            return "node_fault"
        case Blame.CLUSTER:
            return "refused"
        case Blame.DESIGN:
            return "parked"
        case Blame.UNKNOWN:
            return {OUTDATED: "old", JOINING: "joining"}.get(node.reason, "starting")


def _current(spread: NodePodLayout) -> int:
    """How many pods of the wanted template there are."""
    return sum(1 for spot in spread.spots for pod in spot.pods if spread.updated(pod))


def _waits(seen: Observation, tally: NodeCounts) -> bool:
    """Whether something is to come yet, so that time runs."""
    return (
        bool(tally.starting or tally.old or tally.refused)
        or seen.daemonset.observed_generation != seen.daemonset.generation
    )
