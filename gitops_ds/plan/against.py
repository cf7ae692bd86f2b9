"""Base against head: what a commit changes for a cluster that holds what the base says. No cluster is asked."""

from __future__ import annotations

from collections.abc import Sequence

from gitops_ds.kinds import defaults
from gitops_ds.model.bundle import Bundle, Manifest
from gitops_ds.model.change import Change, NodeImpact, Operation
from gitops_ds.model.live import Live, Revision
from gitops_ds.model.objects import Body, Key
from gitops_ds.plan import fields, order, rollouts

NOTHING_KNOWN = Live()


def changes(base: Bundle, head: Bundle, live: Live = NOTHING_KNOWN) -> tuple[Change, ...]:
    """Every object of either side, in the order of an apply; an object that only the base has is a delete.

    `live` brings the nodes, and the revisions that the cluster knows; without them the base is revision 1.
    """
    made = [_change(manifest, base.manifests.get(key), live) for key, manifest in head.manifests.items()]
    made += [_leaving(manifest, live) for key, manifest in base.manifests.items() if key not in head.manifests]
    return order.ordered(made, order.waves(head.manifests.values()))


def _change(head: Manifest, base: Manifest | None, live: Live) -> Change:
    if base is not None and base.digest == head.digest:
        return Change(Operation.KEEP, head.key, head)
    new, old = defaults.defaulted(head.body), defaults.defaulted(base.body) if base else None
    differences = fields.compare(old, new) if old is not None else ()
    if old is not None and not differences:
        return Change(Operation.KEEP, head.key, head)
    operation = Operation.CREATE if old is None else Operation.UPDATE
    if head.key.kind != "DaemonSet":
        return Change(operation, head.key, head, differences)
    rollout = rollouts.rollout(old, new, _known(head.key, old, live))
    impact = rollouts.impact(old, new, live.nodes or (), rolls=rollout.rolls)
    return Change(operation, head.key, head, differences, rollout, impact)


def _leaving(base: Manifest, live: Live) -> Change:
    if base.key.kind != "DaemonSet":
        return Change(Operation.DELETE, base.key, None)
    lost = rollouts.impact(base.body, None, live.nodes or (), rolls=False).lost
    return Change(Operation.DELETE, base.key, None, nodes=NodeImpact(lost=lost))


def _known(key: Key, base: Body | None, live: Live) -> Sequence[Revision]:
    known = live.revisions.get(key, ())
    if known or base is None:
        return known
    template = (base.get("spec") or {}).get("template") or {}
    return (Revision("base", 1, "base", template, {}),)
