"""The effect of a change on the pods: the revision of the template, and the nodes on which a pod is
added, removed or restarted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gitops_ds.core.change import Cost, Rollout
from gitops_ds.core.live import Node, NodeImpact, Revision
from gitops_ds.core.objects import Body, digest_of
from gitops_ds.core.startup_taints import OWN
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import (
    daemonsets,
    defaults,
    node_eligibility,
    node_pools,
    request_costs,
    revisions,
)
from gitops_ds.kube.apimachinery.node_eligibility import Placement


def rollout(old: Body | None, new: Body, revisions: Sequence[Revision]) -> Rollout:
    """Compares the template of `new` (as the API server would store it) with that of `old` and of
    earlier revisions.
    """
    template = (new.get("spec") or {}).get("template") or {}
    before = ((old or {}).get("spec") or {}).get("template")
    newest = max(revisions, key=lambda revision: revision.number, default=None)
    same = [revision.number for revision in revisions if same_template(revision.template, template)]
    number = newest.number if newest else 0
    number_before = max(same, default=None)
    current = max(
        (r.number for r in revisions if before is not None and same_template(r.template, before)),
        default=None,
    )
    # An earlier template gets the next number too, unless it is the current one.
    becomes = number if number_before is not None and number_before == number else number + 1
    return Rollout(
        old=None if before is None else digest_of(before),
        new=digest_of(template),
        current=current,
        known_as=number_before,
        becomes=becomes,
    )


def same_template(one: Body, other: Body) -> bool:
    """Whether two templates are equivalent when stored; one from before an upgrade of the API
    server may lack newer defaults.
    """
    return revisions.same_template(one, other) or revisions.same_template(
        defaults.defaulted_template(one), defaults.defaulted_template(other)
    )


def impact(old: Body | None, new: Body | None, nodes: Iterable[Node], *, rolls: bool) -> NodeImpact:
    """The nodes that gain, lose or restart a pod when `new` replaces `old`.

    With OnDelete a new template restarts no pod until that pod is deleted.
    """
    all_nodes = list(nodes)
    placers = [_placer(side) for side in (old, new)]
    groups = node_pools.equal_groups(
        all_nodes, node_pools.keys_of(placer for placer in placers if placer)
    )
    before, after = (_placements(placer, groups) for placer in placers)
    strategy = (((new or {}).get("spec") or {}).get("updateStrategy") or {}).get(
        "type"
    ) or "RollingUpdate"
    gained, lost, restarted = [], [], []
    for node in all_nodes:
        was = before.get(node.name, Placement.EVICT)
        will = after.get(node.name, Placement.EVICT)
        if will is Placement.RUN and was is not Placement.RUN:
            gained.append(node.name)
        elif was is Placement.RUN and will is Placement.EVICT:
            lost.append(node.name)
        elif (
            was is Placement.RUN and will is Placement.RUN and rolls and strategy == "RollingUpdate"
        ):
            restarted.append(node.name)
    return NodeImpact(tuple(gained), tuple(lost), tuple(restarted))


def costs(old: Body | None, new: Body | None, nodes: Sequence[Node] | None) -> tuple[Cost, ...]:
    """The additional requests when `new` replaces `old` on every node; none if these are
    unknown.
    """
    was, now = _pod_spec(old), _pod_spec(new)
    if nodes is None or was == now:
        return ()
    placers = [_placer(side) for side in (old, new)]
    groups = node_pools.equal_groups(
        nodes, node_pools.keys_of(placer for placer in placers if placer)
    )
    before, after = (
        {name for name, place in _placements(placer, groups).items() if place is Placement.RUN}
        for placer in placers
    )
    return tuple(request_costs.of_change(was, now, before, after))


def _pod_spec(daemonset: Body | None) -> Body:
    template = ((daemonset or {}).get("spec") or {}).get("template") or {}
    spec: Body = template.get("spec") or {}
    return spec


def _placements(
    placer: node_eligibility.Placer | None, groups: node_pools.Groups
) -> Mapping[str, Placement]:
    if placer is None:
        return {}
    return {
        node.name: placement
        for placement, some in node_pools.placed(placer, groups).items()
        for node in some
    }


def _placer(daemonset: Body | None) -> node_eligibility.Placer | None:
    template = ((daemonset or {}).get("spec") or {}).get("template")
    return None if template is None else node_eligibility.read(template)


def with_waiting(
    impact: NodeImpact, old: Body | None, new: Body, nodes: Iterable[Node]
) -> NodeImpact:
    """The impact with the nodes that wait for an agent which becomes required for work."""
    required = daemonsets.is_required_for_work
    if not required(new) or required(old or {}):
        return impact
    placer = node_eligibility.read((new.get("spec") or {}).get("template") or {})
    waiting = (node.name for node in nodes if placer.place(_bare(node)) is Placement.RUN)
    return replace(impact, waiting=tuple(sorted(waiting)))


def _bare(node: Node) -> Node:
    """The node without our startup taint, which does not count for eligibility."""
    return replace(node, taints=tuple(taint for taint in node.taints if taint.key != OWN.key))
