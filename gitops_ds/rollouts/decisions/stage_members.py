"""The nodes of each stage of a rollout, and their order in it.

The stages choose one after the other, each from the nodes that are left. Touched nodes come first,
so the choice does not move while a stage is in progress, and in a passed stage those that were
touched before it passed; then nodes that the policy prefers, one of each zone in turn, by name.
Parked nodes come late, and the node on which this process runs is the last one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence, Set

import msgspec

from gitops_ds.core.live import Node
from gitops_ds.core.rollouts.rollout_policy import NodeCount, RolloutPolicy, Stage
from gitops_ds.core.sources.bundle import Pool
from gitops_ds.kube.apimachinery import node_pools

ZONE = "topology.kubernetes.io/zone"


class Candidates(msgspec.Struct, frozen=True):
    """The nodes to divide into stages: all eligible ones, those that are touched with the time,
    those that are parked. For `lost` ones, which were touched and can't be proved, a stage of a
    number of nodes takes others; they remain in their stage. `passed` are the times at which stages
    passed. Times are seconds since 1970.
    """

    nodes: Sequence[Node]
    touched: Mapping[str, float] = {}
    parked: Set[str] = frozenset()
    lost: Set[str] = frozenset()
    passed: Mapping[str, float] = {}
    own_node: str = ""


_ONE = NodeCount(count=1)


def canary_source(
    policy: RolloutPolicy, nodes: Iterable[Node], pools: Sequence[Pool]
) -> Stage | None:
    """The stage that the first stage takes a node of, because no node is in its own scope; None if
    one is, or if no stage has any.
    """
    nodes = tuple(nodes)
    first, *others = policy.stages
    if any(node_pools.in_scope(first.where, node, pools) for node in nodes):
        return None
    return next(
        (
            stage
            for stage in others
            if any(node_pools.in_scope(stage.where, node, pools) for node in nodes)
        ),
        None,
    )


def members(
    policy: RolloutPolicy, candidates: Candidates, pools: Sequence[Pool]
) -> tuple[tuple[str, ...], ...]:
    """The nodes of each stage, in the order in which they are updated.

    If no node is in the scope of the first stage, it takes one of the next stage that has nodes: an
    empty canary proves nothing.
    """
    turns = _turns_in_zone(candidates.nodes)
    order = sorted(candidates.nodes, key=functools.partial(_rank, candidates, {}, turns))
    left = {node.name: node for node in order}
    stages: list[tuple[str, ...]] = []
    from_stage = canary_source(policy, order, pools)
    for number, stage in enumerate(policy.stages):
        where = stage.where if number or from_stage is None else from_stage.where
        ranked = [node for node in left.values() if node_pools.in_scope(where, node, pools)]
        prefer = stage.nodes.prefer if stage.nodes else {}
        if prefer:
            ranked.sort(key=functools.partial(_rank, candidates, prefer, turns))
        if stage.name in candidates.passed:
            ranked.sort(key=functools.partial(_is_later, candidates, stage.name))
        count = stage.nodes
        if where is not stage.where:
            count = _ONE
            if stage.name in candidates.passed:  # by its own nodes, if none was touched before
                ranked = [name for name in ranked if not _is_later(candidates, stage.name, name)]
        chosen = ranked if count is None else _counted(ranked, count, candidates)
        stages.append(tuple(node.name for node in chosen))
        for node in chosen:
            del left[node.name]
    return tuple(stages)


def zone_of(node: Node) -> str:
    """The zone of a node, empty without one."""
    return node.labels.get(ZONE, "")


def platform_of(node: Node) -> tuple[str, str]:
    """The operating system and the architecture of a node, empty without such labels."""
    return node.labels.get("kubernetes.io/os", ""), node.labels.get("kubernetes.io/arch", "")


def _turns_in_zone(nodes: Iterable[Node]) -> dict[str, int]:
    """The place of each node among the nodes of its zone, by name."""
    counts: dict[str, int] = {}
    turns = {}
    for node in sorted(nodes, key=lambda node: node.name):
        turns[node.name] = counts.get(zone_of(node), 0)
        counts[zone_of(node)] = turns[node.name] + 1
    return turns


def _rank(
    candidates: Candidates, prefer: Mapping[str, str], turns: Mapping[str, int], node: Node
) -> tuple[bool, bool, bool, bool, int, str, str]:
    return (
        node.name not in candidates.touched,
        node.name in candidates.parked and node.name not in candidates.touched,
        node.name == candidates.own_node,
        not all(node.labels.get(key) == value for key, value in prefer.items()),
        turns[node.name],
        zone_of(node),
        node.name,
    )


def _is_later(candidates: Candidates, stage: str, node: Node) -> bool:
    """Whether a node was not touched before the second in which the stage passed."""
    return candidates.touched.get(node.name, math.inf) >= math.floor(candidates.passed[stage])


def _counted(ranked: Sequence[Node], count: NodeCount, candidates: Candidates) -> list[Node]:
    """The first nodes, enough for every number of the stage, or all nodes, and lost ones."""
    eligible = len(candidates.nodes)
    total = max(count.count, count.per_variant, count.percent.of(eligible) if count.percent else 0)
    able = [node for node in ranked if node.name not in candidates.lost]
    chosen = {node.name: node for node in able[:total]}
    per_zone: dict[str, int] = {}
    for node in chosen.values():
        per_zone[zone_of(node)] = per_zone.get(zone_of(node), 0) + 1
    for node in able[total:]:
        if per_zone.get(zone_of(node), 0) < count.per_zone:
            chosen[node.name] = node
            per_zone[zone_of(node)] = per_zone.get(zone_of(node), 0) + 1
    return [node for node in ranked if node.name in chosen or node.name in candidates.lost]
