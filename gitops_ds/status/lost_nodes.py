"""Nodes that lost their agent without a commit: by a label or taint of the node, by a manual edit
of the template, or because its pod is refused.

A fold over pairs of observations. Changes in the state of a node (it fails, joins or is removed)
are not losses, and neither are those by a commit with another template. Losses at about the same
time are reported together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

import msgspec

from gitops_ds.core import names
from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.decision import Observation
from gitops_ds.core.health import LossCause, NodeLoss
from gitops_ds.core.live import Node
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import node_eligibility, node_pools
from gitops_ds.kube.apimachinery.node_eligibility import Placement, Placer
from gitops_ds.status import fault_attribution

QUIET, LONGEST = 5.0, 30.0  # seconds without a further loss, and at most, until losses are reported


class Lost(msgspec.Struct, frozen=True):
    """The present losses by node, those that are reported, and the times of the first and the last
    unreported one (seconds since 1970).

    `bare` are nodes that need a pod and lost theirs.
    """

    losses: Mapping[str, NodeLoss] = msgspec.field(default_factory=dict)
    reported: frozenset[str] = frozenset()
    bare: frozenset[str] = frozenset()
    first: float = 0.0
    last: float = 0.0

    @property
    def unreported(self) -> tuple[NodeLoss, ...]:
        """The losses that are not reported yet, sorted by node."""
        return tuple(self.losses[node] for node in sorted(self.losses.keys() - self.reported))

    @property
    def due(self) -> float | None:
        """The time to report them; None without an unreported loss."""
        return (
            min(self.last + QUIET, self.first + LONGEST)
            if self.losses.keys() - self.reported
            else None
        )

    def reported_except(self, nodes: Set[str]) -> Lost:
        """All losses as reported, without those on `nodes`."""
        losses = {node: loss for node, loss in self.losses.items() if node not in nodes}
        return replace(self, losses=losses, reported=frozenset(losses))


def update(lost: Lost, before: Observation, after: Observation, refused: str) -> Lost:
    """The losses after another observation; `refused` is the reason why pods are refused."""
    if before.daemonset.uid != after.daemonset.uid or after.daemonset.deleting:
        return Lost()
    rules = _Rules(before, after)
    if rules.changed and rules.committed:
        return Lost()
    now = {node.name: node for node in after.nodes}
    bare = _bare(lost.bare, before, after, rules.now)
    losses = {loss.node: loss for loss in (*rules.losses(now), *_refused(bare, now, refused))}
    kept = {
        name: loss
        for name, loss in lost.losses.items()
        if name in losses or not _is_back(name, now, rules.now, after)
    }
    fresh = {name: loss for name, loss in losses.items() if name not in kept}
    lost = Lost({**kept, **fresh}, lost.reported & kept.keys(), bare, lost.first, lost.last)
    if not fresh:
        return lost
    return replace(
        lost,
        first=after.now
        if lost.unreported == tuple(fresh[name] for name in sorted(fresh))
        else lost.first,
        last=after.now,
    )


def covered(seen: Observation) -> frozenset[str]:
    """The nodes that need the agent, regardless of their state."""
    placer = node_eligibility.read(seen.daemonset.template)
    return frozenset(
        node.name
        for node in seen.nodes
        if fault_attribution.by_itself(placer, node) is Placement.RUN
    )


def family(daemonset: DaemonSet) -> object:
    """A value that is equal for all variants of an agent: namespace, owner, and the selector
    without the variant.
    """
    labels = (daemonset.raw.get("metadata") or {}).get("labels") or {}
    selector = {
        requirement for requirement in daemonset.selector or () if requirement.key != names.VARIANT
    }
    return daemonset.key.namespace, labels.get(names.OWNER_LABEL), frozenset(selector)


class _Rules:
    """The placement of the agent at the previous and at the present observation."""

    def __init__(self, before: Observation, after: Observation) -> None:
        self._before = before
        was, self._template = before.daemonset.template, after.daemonset.template
        self.changed = was is not self._template and _placing(was) != _placing(self._template)
        self.committed = _commit(before) != _commit(after)
        self.was, self.now = node_eligibility.read(was), node_eligibility.read(self._template)

    def losses(self, now: Mapping[str, Node]) -> Iterator[NodeLoss]:
        """Existing nodes that needed the agent before and no longer match."""
        for old in self._before.nodes:
            node = now.get(old.name)
            if node is None or node.deleting or (node is old and not self.changed):
                continue
            if (
                fault_attribution.by_itself(self.was, old) is Placement.RUN
                and fault_attribution.by_itself(self.now, node) is not Placement.RUN
            ):
                yield NodeLoss(node.name, node_pools.pool_of(old, ()), *self._cause(old, node))

    def _cause(self, old: Node, node: Node) -> tuple[LossCause, str]:
        if fault_attribution.by_itself(self.now, old) is not Placement.RUN:
            return LossCause.TEMPLATE, "its template was edited without a commit"
        if not self.now.selects(node):
            keys = sorted(
                key for key in _keys(self.now) if old.labels.get(key) != node.labels.get(key)
            )
            return LossCause.LABEL, "; ".join(
                _relabelled(key, old, node) for key in keys
            ) or "the node's labels changed"
        tolerated = node_eligibility.daemon_tolerations(self._template.get("spec") or {})
        new = (
            taint
            for taint in node.taints
            if taint not in old.taints and node_eligibility.untolerated(tolerated, (taint,))
        )
        taints = (
            f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}" for taint in new
        )
        return LossCause.TAINT, f"taint {', '.join(taints)} was set"


def _relabelled(key: str, old: Node, node: Node) -> str:
    was, is_now = old.labels.get(key), node.labels.get(key)
    if was is None:
        return f"label {key}={is_now} was set"
    return (
        f"label {key}={was} was removed" if is_now is None else f"label {key}={was} became {is_now}"
    )


def _bare(
    bare: frozenset[str], before: Observation, after: Observation, placer: Placer
) -> frozenset[str]:
    had, have = ({pod.node for pod in seen.pods if not pod.terminating} for seen in (before, after))
    without = (bare | had) - have
    return frozenset(
        node.name
        for node in after.nodes
        if node.name in without and placer.place(node) is Placement.RUN
    )


def _refused(bare: frozenset[str], now: Mapping[str, Node], refused: str) -> Iterator[NodeLoss]:
    """Nodes whose pod was removed, and whose new pod is refused."""
    for name in bare if refused else ():
        yield NodeLoss(
            name,
            node_pools.pool_of(now[name], ()),
            LossCause.REFUSED,
            f"a new pod is refused: {refused}",
        )


def _is_back(name: str, now: Mapping[str, Node], placer: Placer, after: Observation) -> bool:
    """Whether the loss is over: the agent matches the node again and has a pod there, or the node
    was removed.
    """
    node = now.get(name)
    if node is None or node.deleting:
        return True
    return fault_attribution.by_itself(placer, node) is Placement.RUN and any(
        pod.node == name for pod in after.pods
    )


def _placing(template: Mapping[str, object]) -> tuple[object, ...]:
    spec = template.get("spec")
    fields = ("nodeName", "nodeSelector", "affinity", "tolerations", "hostNetwork")
    return tuple(spec.get(field) for field in fields) if isinstance(spec, Mapping) else ()


def _commit(seen: Observation) -> str:
    return seen.daemonset.annotations.get(names.COMMIT, "")


def _keys(placer: Placer) -> set[str]:
    keys = {requirement.key for term in placer.terms or () for requirement in term.labels}
    return keys | set(placer.node_selector)
