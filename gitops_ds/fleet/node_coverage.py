"""Which nodes lost their agent though no commit says so: a label or taint of the node, a template
edited by hand, a refusal.

A fold over two looks at a time. What a node's own state does (it dies, joins, is taken away) is no
loss, and neither is what the commit did that came with another template. Losses that come together
are told together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from gitops_ds.apimachinery import node_eligibility, node_pools, tolerations
from gitops_ds.apimachinery.node_eligibility import Placement, Placer
from gitops_ds.fleet import fault_attribution
from gitops_ds.model import names
from gitops_ds.model.daemonset import DaemonSet
from gitops_ds.model.decision import Observation
from gitops_ds.model.events.agents import LossCause, NodeLoss
from gitops_ds.model.live import Node

QUIET, LONGEST = 5.0, 30.0  # seconds without a further loss, and at most, before losses are told


@dataclass(frozen=True, slots=True)
class Lost:
    """The losses that last, by node, those of them that were told, and when the first and the last
    untold one came.

    `bare` are nodes that had a pod, and have none now though they shall.
    """

    losses: Mapping[str, NodeLoss] = field(default_factory=dict)
    told: frozenset[str] = frozenset()
    bare: frozenset[str] = frozenset()
    first: float = 0.0
    last: float = 0.0

    @property
    def untold(self) -> tuple[NodeLoss, ...]:
        """Those that nobody was told of, sorted by node."""
        return tuple(self.losses[node] for node in sorted(self.losses.keys() - self.told))

    @property
    def due(self) -> float | None:
        """When to tell them; None when there are none."""
        return (
            min(self.last + QUIET, self.first + LONGEST) if self.losses.keys() - self.told else None
        )

    def told_but(self, nodes: Set[str]) -> Lost:
        """Everybody knows; on these it was no loss."""
        losses = {node: loss for node, loss in self.losses.items() if node not in nodes}
        return replace(self, losses=losses, told=frozenset(losses))


def update(lost: Lost, before: Observation, after: Observation, refused: str) -> Lost:
    """What is lost after another look; `refused` is why pods are refused just now."""
    if before.daemonset.uid != after.daemonset.uid or after.daemonset.deleting:
        return Lost()
    rules = _Rules(before, after)
    if rules.changed and rules.committed:
        return Lost()
    now = {node.name: node for node in after.nodes}
    bare = _bare(lost.bare, before, after, rules.now)
    found = {loss.node: loss for loss in (*rules.losses(now), *_refused(bare, now, refused))}
    kept = {
        name: loss
        for name, loss in lost.losses.items()
        if name in found or not _is_back(name, now, rules.now, after)
    }
    fresh = {name: loss for name, loss in found.items() if name not in kept}
    lost = Lost({**kept, **fresh}, lost.told & kept.keys(), bare, lost.first, lost.last)
    if not fresh:
        return lost
    return replace(
        lost,
        first=after.now
        if lost.untold == tuple(fresh[name] for name in sorted(fresh))
        else lost.first,
        last=after.now,
    )


def covered(seen: Observation) -> frozenset[str]:
    """The nodes that the agent belongs on, whatever state they are in."""
    placer = node_eligibility.read(seen.daemonset.template)
    return frozenset(
        node.name
        for node in seen.nodes
        if fault_attribution.by_itself(placer, node) is Placement.RUN
    )


def family(daemonset: DaemonSet) -> object:
    """The same for all variants of one agent: namespace, owner, and what their pods are selected by
    but for the variant.
    """
    labels = (daemonset.raw.get("metadata") or {}).get("labels") or {}
    selector = {
        requirement for requirement in daemonset.selector or () if requirement.key != names.VARIANT
    }
    return daemonset.key.namespace, labels.get(names.OWNER_LABEL), frozenset(selector)


class _Rules:
    """Where the agent belonged at the look before, and where it does now."""

    def __init__(self, before: Observation, after: Observation) -> None:
        self._before = before
        was, self._template = before.daemonset.template, after.daemonset.template
        self.changed = was is not self._template and _placing(was) != _placing(self._template)
        self.committed = _commit(before) != _commit(after)
        self.was, self.now = node_eligibility.read(was), node_eligibility.read(self._template)

    def losses(self, now: Mapping[str, Node]) -> Iterator[NodeLoss]:
        """Nodes that are still there, and had the right to an agent but have it no longer."""
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
        tolerated = tolerations.of_daemon(self._template.get("spec") or {})
        new = (
            taint
            for taint in node.taints
            if taint not in old.taints and tolerations.untolerated(tolerated, (taint,))
        )
        said = (
            f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}" for taint in new
        )
        return LossCause.TAINT, f"taint {', '.join(said)} was set"


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
    """Nodes whose pod went and gets no successor."""
    for name in bare if refused else ():
        yield NodeLoss(
            name,
            node_pools.pool_of(now[name], ()),
            LossCause.REFUSED,
            f"a new pod is refused: {refused}",
        )


def _is_back(name: str, now: Mapping[str, Node], placer: Placer, after: Observation) -> bool:
    """Whether nothing is lost there any more: the agent belongs there again and is let in, or the
    node went too.
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
    asked = {requirement.key for term in placer.terms or () for requirement in term.labels}
    return asked | set(placer.node_selector)
