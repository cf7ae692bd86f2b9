"""The nodes that gain or lose an agent by the template of a staged rollout, at its start. Pure.

The DaemonSet gets the template at the end, so its own change moves no node before. A guard at the
end would come after every node was updated; here the losses count when the rollout begins, and no
longer when the template follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gitops_ds.apimachinery import revisions, target_revisions
from gitops_ds.model import names
from gitops_ds.model.bundle import Manifest
from gitops_ds.model.change import Change, Operation
from gitops_ds.model.impact import NodeImpact
from gitops_ds.model.live import Live
from gitops_ds.model.objects import CONTROLLER_REVISION, Body, Key
from gitops_ds.plan import rollout_impact


def of(change: Change, manifests: Mapping[Key, Manifest], live: Live) -> Change:
    """The change with the nodes of the target that it names, or without losses where it follows the
    promotion of one.
    """
    old = live.objects.get(change.key)
    is_update = change.operation is Operation.UPDATE and change.key.is_daemonset
    if not is_update or old is None or change.manifest is None:
        return change
    before, after = _target(old), _target(change.manifest.body)
    if before and _is_promoted(change.key, before, live):
        return replace(change, nodes=replace(change.nodes, lost=()))
    if not after or after == before:
        return change
    place = change.key.namespace, after
    target = manifests.get(Key(CONTROLLER_REVISION.group, CONTROLLER_REVISION.kind, *place))
    template = revisions.template_of(target.body) if target is not None else None
    if template is None:
        return change
    new = {**old, "spec": {**old["spec"], "template": template}}
    found = rollout_impact.impact(old, new, live.nodes or (), rolls=False)
    return replace(change, nodes=NodeImpact(found.gained, found.lost, change.nodes.restarted))


def _target(body: Body) -> str:
    annotations = (body.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(names.TARGET) or "")


def _is_promoted(key: Key, name: str, live: Live) -> bool:
    own = live.revisions.get(key, ())
    return any(one.name == name and target_revisions.is_promoted(one) for one in own)
