"""Which nodes a staged rollout updates now: the one decision for the preview, the simulation and
the controller.

Invariants, over any observations (tests/daemonset/test_stages.py):

1. Cap: a node is taken only while the nodes at risk stay within `cap`. At risk are touched nodes
   that are not proved, and nodes whose earlier pod broke after the rollout began.
2. Order: a node is taken only when its stage is open, and a stage opens only after the one before
   it passed.
3. Halt: after a failure that the template causes no node is taken, until another target replaces
   this one.
4. Attribution: a node that was broken before is parked, and never a reason to halt.
5. Progress: without faults every rollout ends; each hold has a reason, and a time where time ends
   it.

A target that the DaemonSet has already (a revert, or nodes that were parked) is proved: its nodes
need no stage and no soak.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gitops_ds.apimachinery import rollout_windows
from gitops_ds.apimachinery.node_eligibility import Placement
from gitops_ds.daemonset import node_steps, stage_members
from gitops_ds.daemonset.failure_cause import AttributedNodes
from gitops_ds.daemonset.node_pods import NodePodLayout, NodePods
from gitops_ds.daemonset.node_steps import TOUCHED, NodeSteps
from gitops_ds.daemonset.stage_members import Candidates
from gitops_ds.model.plural import counted
from gitops_ds.model.rollout_policy import NodeShare, Pace, RolloutPolicy, Stage
from gitops_ds.model.staged_rollout import (
    GateState,
    Halt,
    NodeProgress,
    NodeStep,
    StageHold,
    StageInputs,
    StageProgress,
    StagesDecision,
    StageState,
)


def decide(layout: NodePodLayout, inputs: StageInputs) -> StagesDecision:
    """The nodes to update now. The same observation and inputs always give the same decision."""
    fleet = _Fleet.of(layout, inputs)
    passed, times = dict(inputs.record.passed), list[float]()
    current, hold = None, None
    for stage, members in zip(inputs.policy.stages, fleet.members, strict=True):
        if stage.name in passed or not inputs.target.revision:
            passed.setdefault(stage.name, fleet.now)
            continue
        hold = fleet.gate_hold(stage) if fleet.is_proved(stage, members) else None
        if hold is None and fleet.is_proved(stage, members):
            passed[stage.name] = fleet.now
            continue
        current = stage
        break
    open_stages = [stage for stage in inputs.policy.stages if stage.name in passed]
    if current is not None:
        closed = fleet.closed(current)
        hold = hold or closed
        if closed is None:
            open_stages.append(current)
    opened = frozenset(
        name
        for stage, members in zip(inputs.policy.stages, fleet.members, strict=True)
        if stage in open_stages
        for name in members
    )
    general = fleet.hold()
    hold = general or hold
    take = fleet.witness(open_stages) if general is None else ()
    halt = inputs.record.halt or fleet.halt(current, waits=bool(take))
    if take:
        hold = fleet.suspicion()
    elif halt is None and general is None:
        take = tuple(fleet.take(open_stages, current, times))
    hold = hold or fleet.capped(take)
    record = msgspec.structs.replace(
        inputs.record, began=inputs.record.began or fleet.now, passed=passed, halt=halt
    )
    complete = (
        current is None
        and not take
        and all(
            one.step in (NodeStep.PROVED, NodeStep.PARKED, NodeStep.SET_ASIDE)
            for one in fleet.nodes.values()
        )
    )
    times += [one.until for one in fleet.nodes.values() if one.until is not None]
    times += [hold.until] if hold and hold.until is not None else []
    return StagesDecision(
        take=take,
        open=opened,
        nodes=tuple(fleet.nodes[name] for name in sorted(fleet.nodes)),
        stages=tuple(fleet.progress(passed, current, hold, halted=halt is not None)),
        at_risk=fleet.at_risk,
        cap=fleet.cap,
        record=record,
        hold=hold,
        complete=complete,
        commits=halt is None
        and bool(inputs.target.revision)
        and (complete or fleet.commits_early(passed)),
        wake_at=min((time for time in times if time > fleet.now), default=None),
    )


@dataclass(frozen=True, slots=True)
class _Fleet:
    """The eligible nodes, divided into stages, with their steps."""

    layout: NodePodLayout
    inputs: StageInputs
    spots: Mapping[str, NodePods]
    members: tuple[tuple[str, ...], ...]
    attributed: AttributedNodes
    zones: Mapping[str, str]
    risky: frozenset[str]

    @classmethod
    def of(cls, layout: NodePodLayout, inputs: StageInputs) -> _Fleet:
        spots = {
            spot.node: spot
            for spot in layout.spots
            if spot.wanted or (spot.placement is Placement.KEEP and spot.staying)
        }
        steps = NodeSteps(layout, inputs)
        nodes = [
            node for node in layout.seen.nodes if node.name in spots and not steps.is_excluded(node)
        ]
        parked = frozenset(node.name for node in nodes if node_steps.node_problem(node))
        touched = frozenset(
            name for name, spot in spots.items() if any(map(steps.is_target, spot.staying))
        )
        candidates = Candidates(nodes, touched, parked, layout.seen.own_node)
        members = stage_members.members(inputs.policy, candidates, inputs.pools)
        found = steps.attributed(
            {
                name: steps.of(spots[name], stage, is_passed=_is_passed(stage, inputs))
                for stage, names in zip(inputs.policy.stages, members, strict=True)
                for name in names
            }
        )
        risky = frozenset(
            name
            for name, one in found.nodes.items()
            if one.step in TOUCHED
            or (one.step is NodeStep.PARKED and steps.broke_since(spots[name]))
        )
        zones = {node.name: stage_members.zone_of(node) for node in nodes}
        return cls(layout, inputs, spots, members, found, zones, risky)

    @property
    def nodes(self) -> Mapping[str, NodeProgress]:
        """The progress of each node."""
        return self.attributed.nodes

    @property
    def now(self) -> float:
        return self.layout.seen.now

    @property
    def policy(self) -> RolloutPolicy:
        return self.inputs.policy

    @property
    def at_risk(self) -> int:
        return len(self.risky)

    @property
    def cap(self) -> int:
        """The most nodes that may be at risk; at least one, or no rollout would begin."""
        limits, eligible = self.policy.limits.at_risk, len(self.nodes)
        shares = (limits.cluster, limits.per_variant)
        caps = [share.of(eligible) for share in shares if share is not None]
        return max(1, min([*caps, *([limits.nodes] if limits.nodes is not None else [])]))

    def is_proved(self, stage: Stage, members: Sequence[str]) -> bool:
        """Whether every node of a stage that can run the target does so for long enough.

        A stage of a number of nodes needs at least one proved node: with every node parked nothing
        is proved.
        """
        steps = [self.nodes[name].step for name in members]
        able = [step for step in steps if step not in (NodeStep.PARKED, NodeStep.SET_ASIDE)]
        if stage.nodes is not None and members and NodeStep.PROVED not in able:
            return False
        return all(step is NodeStep.PROVED for step in able)

    def gate_hold(self, stage: Stage) -> StageHold | None:
        """Why a stage whose nodes are proved does not pass: a measured gate has no result yet."""
        for gate in stage.gates:
            result = self.inputs.gates.get((stage.name, gate))
            if result is not None and result.state is not GateState.PASSED:
                return StageHold(f"gate {gate}: {result.message}")
            if result is None and self.policy.gate(gate).prometheus:
                return StageHold(f"gate {gate}: not measured yet")
        return None

    def halt(self, current: Stage | None, *, waits: bool) -> Halt | None:
        """The failure that halts the rollout: failed nodes, else a measured gate of the current
        stage. `waits`: one more node decides about failures without peers.
        """
        if not self.inputs.target.revision:
            return None
        if failed := node_steps.failed_nodes(self.attributed, waits=waits):
            first = failed[0]
            more = f" and {counted(len(failed) - 1, 'other node')}" if len(failed) > 1 else ""
            message = f"{first.reason} on {first.node}{more}"
            return Halt(self.now, self.nodes[first.node].stage, message, failed)
        for (stage, gate), result in sorted(self.inputs.gates.items()):
            if current is not None and stage == current.name and result.state is GateState.FAILED:
                return Halt(self.now, stage, f"gate {gate} failed: {result.message}")
        return None

    def hold(self) -> StageHold | None:
        """Why no node at all is updated now."""
        if self.layout.seen.daemonset.suspended:
            return StageHold("suspended")
        if self.inputs.held and self.inputs.record.halt is None:
            return StageHold(self.inputs.held)
        if self.inputs.refused:
            reason = f"the API server refuses the pods: {self.inputs.refused}"
            return StageHold(reason, self.inputs.refused_until)
        if self.inputs.target.revision and self.attributed.suspected:
            return self.suspicion()
        parked = sum(1 for one in self.nodes.values() if one.step is NodeStep.PARKED)
        limit = self.policy.limits.parked.of(len(self.nodes))
        if self.inputs.target.revision and parked > limit:
            return StageHold(f"{counted(parked, 'node')} parked, more than limits.parked ({limit})")
        return None

    def suspicion(self) -> StageHold:
        """The failure about whose cause other nodes decide, and when they do at the latest."""
        first = self.nodes[min(self.attributed.suspected | self.attributed.alone)]
        moving = (NodeStep.REPLACING, NodeStep.STARTING)
        starting = [one for one in self.nodes.values() if one.step in moving]
        until = max((one.until for one in starting if one.until is not None), default=None)
        reason = f"{first.reason} on {first.node}; {counted(len(starting), 'node')} still starting"
        return StageHold(reason, until)

    def capped(self, take: Sequence[str]) -> StageHold | None:
        """The limit of nodes at risk, where none of those will be proved by time alone."""
        moving = (NodeStep.REPLACING, NodeStep.STARTING, NodeStep.SOAKING)
        if take or self.at_risk < self.cap or any(self.nodes[n].step in moving for n in self.risky):
            return None
        return StageHold(f"{counted(self.at_risk, 'node')} at risk, the limit is {self.cap}")

    def closed(self, stage: Stage) -> StageHold | None:
        """Why the current stage is not open."""
        until = rollout_windows.frozen_until(self.policy.freeze, self.now)
        if until is not None:
            return StageHold("freeze", until)
        until = rollout_windows.closed_until(stage.windows, self.policy.windows, self.now)
        if until is not None:
            return StageHold(f"window {', '.join(stage.windows)} is closed", until)
        if stage.approval is not None and stage.name not in self.inputs.approved:
            since = max(self.inputs.record.passed.values(), default=self.inputs.record.began)
            until = (since or self.now) + stage.approval.within
            overdue = ", overdue" if until <= self.now else ""
            reason = f"approval by {', '.join(stage.approval.from_)}{overdue}"
            return StageHold(reason, None if overdue else until)
        for after in self.policy.after:
            if not after.same_node and after.agent in self.inputs.behind:
                return StageHold(f"agent {after.agent} is updated first")
        return None

    def take(
        self, open_stages: Sequence[Stage], current: Stage | None, times: list[float]
    ) -> Iterator[str]:
        """The nodes whose pods are replaced now. Appends to `times` when a later batch may
        begin.
        """
        room = self.cap - self.at_risk
        zones = self._zone_rooms()
        for stage, members in zip(self.policy.stages, self.members, strict=True):
            if stage not in open_stages:
                continue
            batch = self._batch(stage, members, times) if stage is current else len(members)
            for name in self._order(stage, members, times):
                if batch <= 0 or room <= 0:
                    break
                if self.nodes[name].step is not NodeStep.WAITING or self._waits_for_others(name):
                    continue
                if (
                    zones
                    and zones.setdefault(self.zones[name], self._zone_cap(self.zones[name])) <= 0
                ):
                    continue
                if zones:
                    zones[self.zones[name]] -= 1
                batch, room = batch - 1, room - 1
                yield name

    def witness(self, open_stages: Sequence[Stage]) -> tuple[str, ...]:
        """One more node of a stage in which a node failed without peers, where the cap permits
        one.
        """
        stages = {self.nodes[name].stage for name in self.attributed.alone}
        if self.at_risk >= self.cap or self.inputs.record.halt is not None:
            return ()
        for stage, members in zip(self.policy.stages, self.members, strict=True):
            if stage not in open_stages or stage.name not in stages:
                continue
            for name in self._order(stage, members, []):
                waiting = self.nodes[name].step is NodeStep.WAITING
                if waiting and not self._waits_for_others(name):
                    return (name,)
        return ()

    def _waits_for_others(self, name: str) -> bool:
        """Whether `nodesWhen` or an agent that is updated first on the same node excludes it
        now.
        """
        if name in self.inputs.busy:
            return True
        behind = (
            self.inputs.behind.get(after.agent, frozenset())
            for after in self.policy.after
            if after.same_node
        )
        return any(nodes is None or name in nodes for nodes in behind)

    def _zone_cap(self, zone: str) -> int:
        share = self.policy.limits.at_risk.per_zone or NodeShare("100%")
        return max(1, share.of(sum(1 for other in self.zones.values() if other == zone)))

    def _zone_rooms(self) -> dict[str, int]:
        """How many further nodes of each zone may be at risk; empty without such a limit."""
        if self.policy.limits.at_risk.per_zone is None:
            return {}
        rooms = {zone: self._zone_cap(zone) for zone in set(self.zones.values())}
        for name in self.risky:
            rooms[self.zones[name]] -= 1
        return rooms

    def _order(self, stage: Stage, members: Sequence[str], times: list[float]) -> Sequence[str]:
        """The members that may be taken now, in order: with `oneAtATime` only those of one value of
        the label.
        """
        if not stage.one_at_a_time:
            return members
        labels = {
            node.name: node.labels.get(stage.one_at_a_time, "") for node in self.layout.seen.nodes
        }
        for value in sorted({labels[name] for name in members}):
            group = [name for name in members if labels[name] == value]
            able = [
                n for n in group if self.nodes[n].step not in (NodeStep.PARKED, NodeStep.SET_ASIDE)
            ]
            if any(self.nodes[name].step is not NodeStep.PROVED for name in able):
                return group
            ends = max((self._proved_at(name, stage) for name in able), default=0.0)
            if ends + stage.soak_between > self.now:
                times.append(ends + stage.soak_between)
                return ()
        return ()

    def _proved_at(self, name: str, stage: Stage) -> float:
        return max((pod.ready_since or 0.0) for pod in self.spots[name].staying) + stage.soak

    def _batch(self, stage: Stage, members: Sequence[str], times: list[float]) -> int:
        """How many further nodes the current batch may take: a batch begins when the one before it
        runs the target.
        """
        touched = [
            name
            for name in members
            if self.nodes[name].step not in (NodeStep.WAITING, NodeStep.PARKED)
        ]
        running = sum(
            1 for n in touched if self.nodes[n].step not in (NodeStep.REPLACING, NodeStep.STARTING)
        )
        before, size = _batch_at(stage.pace, running, len(self.nodes))
        if len(touched) <= before and before and stage.pace.every:
            created = max(
                (pod.created for name in touched for pod in self.spots[name].staying), default=0.0
            )
            if created + stage.pace.every > self.now:
                times.append(created + stage.pace.every)
                return 0
        return before + size - len(touched)

    def commits_early(self, passed: Mapping[str, float]) -> bool:
        """Whether the DaemonSet gets the template before the end: after the first stage, with more
        than half of the nodes.
        """
        if self.policy.template.commit != "late" or self.policy.stages[0].name not in passed:
            return False
        proved = sum(1 for one in self.nodes.values() if one.step is NodeStep.PROVED)
        return 2 * proved > len(self.nodes)

    def progress(
        self,
        passed: Mapping[str, float],
        current: Stage | None,
        hold: StageHold | None,
        *,
        halted: bool,
    ) -> Iterator[StageProgress]:
        """Each stage with its state."""
        for stage, members in zip(self.policy.stages, self.members, strict=True):
            state = StageState.PENDING
            if stage.name in passed:
                state = StageState.PASSED
            elif stage is current:
                state = StageState.HELD if hold else StageState.OPEN
                state = StageState.HALTED if halted else state
            proved = sum(1 for name in members if self.nodes[name].step is NodeStep.PROVED)
            yield StageProgress(stage.name, state, tuple(members), proved)


def _is_passed(stage: Stage, inputs: StageInputs) -> bool:
    return stage.name in inputs.record.passed or not inputs.target.revision


def _batch_at(pace: Pace, running: int, eligible: int) -> tuple[int, int]:
    """The nodes of all earlier batches, and the size of the batch that is under way when so many
    nodes run the target.
    """
    most = max(1, pace.max.of(eligible))
    size, before = min(most, max(1, pace.start.of(eligible))), 0
    while before + size <= running:
        before += size
        size = min(most, math.ceil(size * pace.factor))
    return before, size
