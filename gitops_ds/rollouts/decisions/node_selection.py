"""The nodes of the open stages to update now: their order, the batches, and the limits of nodes at
risk; the nodes that join during a rollout (`newNodes`), and stages that take idle nodes first
(`nodesWhen`): those without pods but those of DaemonSets, static pods, and pods that ended.

Every new pod is of the DaemonSet's own template, so a node that joins gets the proven one, and the
target in its stage. `newNodes` permits to update it before; it is at risk like any touched node.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence, Set

from gitops_ds.core.objects import Body
from gitops_ds.core.plain_text import counted
from gitops_ds.core.rollouts.rollout_policy import Pace, Stage
from gitops_ds.core.rollouts.staged_rollout import APART, UPDATING, HoldKind, NodeStep, StageHold
from gitops_ds.kube.apimachinery import cron_windows
from gitops_ds.rollouts.decisions import node_steps, stage_members
from gitops_ds.rollouts.decisions.staged_nodes import StagedNodes

RETRY_AFTER = 15.0  # seconds from the creation of a proven pod to the next try on its node


def take(
    fleet: StagedNodes, open_stages: Sequence[Stage], current: Stage | None, times: list[float]
) -> Iterator[str]:
    """The nodes whose pods are replaced now: in each stage those with a broken agent first, which
    are not limited by the nodes at risk. Appends to `times` when a later batch may begin.
    """
    room = _Room(fleet, fleet.risky)
    left = min(_pulls_left(fleet), _at_once(fleet))
    for name in _in_order(fleet, open_stages, current, times):
        if left <= 0:
            break
        free = fleet.is_agent_broken(name)
        if _is_able(fleet, name) and _is_due(fleet, name, times) and (free or room.admits(name)):
            left -= 1
            yield name


def _in_order(
    fleet: StagedNodes, open_stages: Sequence[Stage], current: Stage | None, times: list[float]
) -> Iterator[str]:
    """The nodes of the open stages in order, of the current stage those of its batch, and nodes
    that joined.
    """
    for stage, members in fleet.stages:
        if stage not in open_stages:
            continue
        able = [name for name in _order(fleet, stage, members, times) if _is_able(fleet, name)]
        able.sort(key=lambda name: not fleet.is_agent_broken(name))
        if stage is current:
            able = able[: max(0, _batch(fleet, stage, members, times))]
        yield from able
    yield from sorted(open_nodes(fleet) - members_of(fleet, open_stages))


def returned(fleet: StagedNodes) -> Iterator[str]:
    """The nodes with a pod of an abandoned template, which get the proven one at once: those that
    can start a pod, up to the limit of the API server.

    During a rollout only pods of a halted template are returned, and those of an edit: a ready pod
    of a rollout that was replaced is updated in its stage.
    """
    nodes = {node.name: node for node in fleet.layout.seen.nodes}
    able = [
        name
        for name in sorted(fleet.abandoned)
        if node_steps.node_problem(nodes[name]) not in ("NodeNotReady", "NodeDeleting")
    ]
    if fleet.inputs.target.staged:
        able = [name for name in able if any(map(fleet.is_returned, fleet.by_node[name].staying))]
    limit = _at_once(fleet)
    yield from able if math.isinf(limit) else able[: int(limit)]


def members_of(fleet: StagedNodes, stages: Sequence[Stage]) -> frozenset[str]:
    """The nodes of some stages."""
    return frozenset(name for stage, members in fleet.stages if stage in stages for name in members)


class _Room:
    """The number of nodes that may be at risk in addition to `risky`, in total and in each zone."""

    def __init__(self, fleet: StagedNodes, risky: Set[str]) -> None:
        self._fleet = fleet
        self.nodes: float = fleet.cap - len(risky)
        self._zones = _zone_rooms(fleet, risky)

    def admits(self, name: str) -> bool:
        """Whether one more node may be at risk; if so, it is counted."""
        zone = self._fleet.zones[name]
        if self.nodes <= 0 or self._zones.get(zone, 1) <= 0:
            return False
        self.nodes -= 1
        if self._zones:
            self._zones[zone] -= 1
        return True


def beyond_limits(fleet: StagedNodes) -> frozenset[str]:
    """The nodes without a pod that would be too many with the target. It is unknown whether the
    rollout or an eviction deleted the pod: as many nodes as the limits admit get the target.
    """
    without = [
        name
        for _, members in fleet.stages
        for name in members
        if fleet.nodes[name].step is NodeStep.REPLACING and not fleet.by_node[name].staying
    ]
    room = _Room(fleet, fleet.risky.difference(without))
    return frozenset(name for name in without if not room.admits(name))


def _is_due(fleet: StagedNodes, name: str, times: list[float]) -> bool:
    """Whether the pod of the node is old enough: one that the DaemonSet controller made since the
    rollout began came before a pinned pod, or after an eviction, and the next try waits.
    """
    if not fleet.inputs.target.staged:
        return True
    created = max((pod.created for pod in fleet.by_node[name].staying), default=0.0)
    if created < math.floor(fleet.inputs.record.began) or created + RETRY_AFTER <= fleet.now:
        return True
    times.append(created + RETRY_AFTER)
    return False


def _at_once(fleet: StagedNodes) -> float:
    return math.inf if fleet.inputs.at_once is None else fleet.inputs.at_once


def _pulls_left(fleet: StagedNodes) -> float:
    """How many further nodes may pull the image: a node counts until its new pod is ready. A
    template with the images of the proven one pulls none.
    """
    limit = fleet.policy.limits.registry.concurrent_pulls
    target, proven = fleet.inputs.target, fleet.layout.seen.daemonset.template
    if limit is None or not target.staged:
        return math.inf
    if proven != target.template and _images(proven) == _images(target.template):
        return math.inf
    return max(0, limit - sum(1 for node in fleet.nodes.values() if node.step in UPDATING))


def _images(template: Body) -> frozenset[str]:
    spec = template.get("spec") or {}
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    return frozenset(str(container.get("image")) for container in containers)


def _is_able(fleet: StagedNodes, name: str) -> bool:
    return fleet.nodes[name].step is NodeStep.WAITING and not _waits_for_others(fleet, name)


def witness(fleet: StagedNodes, open_stages: Sequence[Stage]) -> tuple[str, ...]:
    """One more node of a stage in which a node failed without peers, if the cap permits it."""
    stages = {fleet.nodes[name].stage for name in fleet.attributed.alone}
    if fleet.at_risk >= fleet.cap or fleet.inputs.record.halt is not None:
        return ()
    for stage, members in fleet.stages:
        if stage not in open_stages or stage.name not in stages:
            continue
        for name in _order(fleet, stage, members, []):
            if _is_able(fleet, name):
                return (name,)
    return ()


def _waits_for_others(fleet: StagedNodes, name: str) -> bool:
    """Whether `nodesWhen` or an agent that is updated first on the same node excludes it
    now.
    """
    if waits_for_idle(fleet, name):
        return True
    behind = (
        fleet.inputs.behind.get(after.agent, frozenset())
        for after in fleet.policy.after
        if after.same_node
    )
    return any(nodes is None or name in nodes for nodes in behind)


def _zone_rooms(fleet: StagedNodes, risky: Set[str]) -> dict[str, int]:
    """How many further nodes of each zone may be at risk, at least one if the zone has none; empty
    without such a limit.
    """
    share = fleet.policy.limits.at_risk.per_zone
    if share is None:
        return {}
    sizes = Counter(fleet.zones.values())
    rooms = {zone: max(1, share.of(size)) for zone, size in sizes.items()}
    for name in risky:
        rooms[fleet.zones[name]] -= 1
    return rooms


def _order(
    fleet: StagedNodes, stage: Stage, members: Sequence[str], times: list[float]
) -> Sequence[str]:
    """The members that may be taken now, in order: with `oneAtATime` only those of one value of
    the label.
    """
    if not stage.one_at_a_time:
        return members
    staged = fleet.inputs.target.staged
    labels = {
        node.name: node.labels.get(stage.one_at_a_time, "") for node in fleet.layout.seen.nodes
    }
    for value in sorted({labels[name] for name in members}):
        group = [name for name in members if labels[name] == value]
        able = [n for n in group if fleet.nodes[n].step not in APART]
        if any(fleet.nodes[name].step is not NodeStep.PROVED for name in able):
            return group
        ends = max((_proved_at(fleet, name, stage) for name in able), default=0.0)
        if staged and ends + stage.soak_between > fleet.now:
            times.append(ends + stage.soak_between)
            return ()
    return ()


def _proved_at(fleet: StagedNodes, name: str, stage: Stage) -> float:
    return max((pod.ready_since or 0.0) for pod in fleet.by_node[name].staying) + stage.soak


def _batch(fleet: StagedNodes, stage: Stage, members: Sequence[str], times: list[float]) -> int:
    """How many further nodes the current batch may take: a batch begins when the previous one runs
    the target.
    """
    touched = [
        name
        for name in members
        if fleet.nodes[name].step not in (NodeStep.WAITING, NodeStep.PARKED)
    ]
    running = sum(1 for n in touched if fleet.nodes[n].step not in UPDATING)
    before, size = batch_at(stage.pace, running, len(fleet.nodes))
    if len(touched) <= before and before and stage.pace.every:
        created = max(
            (pod.created for name in touched for pod in fleet.by_node[name].staying), default=0.0
        )
        if created + stage.pace.every > fleet.now:
            times.append(created + stage.pace.every)
            return 0
    return before + size - len(touched)


def batch_at(pace: Pace, running: int, eligible: int) -> tuple[int, int]:
    """The number of nodes in all earlier batches, and the size of the current batch when that many
    nodes run the target.
    """
    most = max(1, pace.max.of(eligible))
    size, before = min(most, max(1, pace.start.of(eligible))), 0
    while before + size <= running:
        before += size
        size = min(most, math.ceil(size * pace.factor))
    return before, size


def waits_for_idle(fleet: StagedNodes, name: str) -> bool:
    """Whether a node is not taken now because it is not idle."""
    if name not in fleet.inputs.busy or not fleet.inputs.target.staged:
        return False
    stage = next(known for known in fleet.policy.stages if known.name == fleet.nodes[name].stage)
    return stage.is_idle and fleet.now < _opened(fleet, stage) + stage.idle_for


def idle_hold(fleet: StagedNodes, stage: Stage | None, take: Sequence[str]) -> StageHold | None:
    """The hold of a stage in which only nodes are left that are not idle."""
    if stage is None or take or not stage.is_idle:
        return None
    waiting = [
        name
        for name, one in fleet.nodes.items()
        if one.stage == stage.name and one.step is NodeStep.WAITING
    ]
    if not waiting or not all(waits_for_idle(fleet, name) for name in waiting):
        return None
    is_final = math.isinf(stage.idle_for)
    until = _opened(fleet, stage) + (stage.until if is_final else stage.idle_for)
    overdue = ", overdue" if until <= fleet.now else ""
    reason = f"{counted(len(waiting), 'node')} with other pods (nodesWhen: {stage.nodes_when})"
    about = f"{stage.name}{overdue}"
    ends = None if overdue else until
    return StageHold(f"{reason}{overdue}", ends, kind=HoldKind.IDLE, about=about)


def _opened(fleet: StagedNodes, stage: Stage) -> float:
    """When the stage before passed, or the rollout began, in seconds since 1970."""
    passed, before = fleet.inputs.record.passed, fleet.inputs.record.began or fleet.now
    for known in fleet.policy.stages:
        if known is stage:
            break
        before = passed.get(known.name, fleet.now)
    return before


_BY_STAGE = ("stable", "end")


def open_nodes(fleet: StagedNodes) -> frozenset[str]:
    """The nodes that joined during the rollout, if they may get the target now."""
    began, policy = fleet.inputs.record.began, fleet.policy.new_nodes
    if not fleet.inputs.target.staged or not began or (policy.get, policy.until) == _BY_STAGE:
        return frozenset()
    joined = frozenset(
        node.name
        for node in fleet.layout.seen.nodes
        if node.created > began and node.name in fleet.nodes
    )
    if not joined or cron_windows.frozen_until(fleet.policy.freeze, fleet.now) is not None:
        return frozenset()
    permitted = policy.get == "target" or every_platform_is_proved(fleet)
    return joined if permitted else frozenset()


def every_platform_is_proved(fleet: StagedNodes) -> bool:
    """Whether a node of each operating system and architecture is proved."""
    every, proved = set(), set()
    for node in fleet.layout.seen.nodes:
        one = fleet.nodes.get(node.name)
        if one is None or one.step in APART:
            continue
        every.add(stage_members.platform_of(node))
        if one.step is NodeStep.PROVED:
            proved.add(stage_members.platform_of(node))
    return bool(proved) and every == proved
