"""Base against head: the changes of a commit for a cluster in sync with the base. No request is
sent to a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gitops_ds.core import names
from gitops_ds.core.change import Change, FieldChange, Operation
from gitops_ds.core.live import Live, NodeImpact, Revision
from gitops_ds.core.objects import Body, Key
from gitops_ds.core.redaction import objects
from gitops_ds.core.redaction.patterns import HIDDEN
from gitops_ds.core.sources.bundle import Bundle, Manifest
from gitops_ds.deploy.plan import apply_order, object_changes, rollout_impact
from gitops_ds.kube.apimachinery import defaults
from gitops_ds.ownership import diff

NOTHING_KNOWN = Live()


def changes(base: Bundle, head: Bundle, live: Live = NOTHING_KNOWN) -> tuple[Change, ...]:
    """Every object of either side, in the order of an apply; an object that only the base has is a
    delete.

    `live` has the nodes and the revisions of the cluster; without revisions the base is revision 1.
    """
    all_changes = [
        _change(manifest, base.manifests.get(key), live) for key, manifest in head.manifests.items()
    ]
    all_changes += [
        _leaving(manifest, live)
        for key, manifest in base.manifests.items()
        if key not in head.manifests
    ]
    return apply_order.ordered(all_changes, apply_order.waves(head.manifests.values()))


def drift(base: Bundle, live: Live) -> Mapping[Key, tuple[FieldChange, ...]]:
    """The drift of a cluster from the base: by object, the fields that an apply would change.

    Fields of other owners, defaulted fields and the labels and annotations of an apply are
    excluded, and so are values that a snapshot redacts: whether those differ is unknown.
    """
    drifted = {}
    for key, manifest in base.manifests.items():
        there = live.objects.get(key)
        if there is not None:
            desired = _stamped(defaults.without_string_data(manifest.body), there)
            differing = diff.compare(
                defaults.defaulted(there), object_changes.predicted(there, desired)
            )
            if seen := tuple(change for change in differing if not _is_unknown(key, change)):
                drifted[key] = seen
    return drifted


def _is_unknown(key: Key, change: FieldChange) -> bool:
    """Whether the values differ only in redacted values of the snapshot."""
    shown = objects.field(key, change)
    return HIDDEN in str(change.old) and shown.old == shown.new


def _stamped(body: Body, live: Body) -> Body:
    """The manifest with the values that our apply adds to the live object: owner, commit, change
    cause.
    """
    metadata, there = dict(body.get("metadata") or {}), live.get("metadata") or {}
    for part in ("labels", "annotations"):
        ours = {key: value for key, value in (there.get(part) or {}).items() if _is_stamp(key)}
        if ours:
            metadata[part] = {**(metadata.get(part) or {}), **ours}
    return {**body, "metadata": metadata}


def _is_stamp(key: str) -> bool:
    return key.startswith(f"{names.DOMAIN}/") or key == names.CHANGE_CAUSE


def _change(head: Manifest, base: Manifest | None, live: Live) -> Change:
    if base is not None and base.digest == head.digest:
        return Change(Operation.KEEP, head.key, head)
    new, old = defaults.defaulted(head.body), defaults.defaulted(base.body) if base else None
    differences = diff.compare(old, new) if old is not None else ()
    if old is not None and not differences:
        return Change(Operation.KEEP, head.key, head)
    operation = Operation.CREATE if old is None else Operation.UPDATE
    if head.key.kind != "DaemonSet":
        return Change(operation, head.key, head, differences)
    rollout = rollout_impact.rollout(old, new, _known(head.key, old, live))
    impact = rollout_impact.impact(old, new, live.nodes or (), rolls=rollout.rolls)
    impact = rollout_impact.with_waiting(impact, old, new, live.nodes or ())
    return Change(operation, head.key, head, differences, rollout, impact)


def _leaving(base: Manifest, live: Live) -> Change:
    if base.key.kind != "DaemonSet":
        return Change(Operation.DELETE, base.key, None)
    lost = rollout_impact.impact(base.body, None, live.nodes or (), rolls=False).lost
    return Change(Operation.DELETE, base.key, None, nodes=NodeImpact(lost=lost))


def _known(key: Key, base: Body | None, live: Live) -> Sequence[Revision]:
    observed = live.revisions.get(key, ())
    if observed or base is None:
        return observed
    template = (base.get("spec") or {}).get("template") or {}
    return (Revision("base", 1, "base", template, {}),)
