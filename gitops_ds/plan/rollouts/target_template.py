"""The change of the template of a staged rollout, as a part of the change that sets the target.
Pure.

The DaemonSet keeps the proven template until the end, so its own change has no field of the new
one, and affects no node before. A guard at the end would run after every node was updated. So lost
nodes count at the start of the rollout, and not when the template follows.
"""

from __future__ import annotations

from collections.abc import Mapping

from gitops_ds.apimachinery import revisions
from gitops_ds.apimachinery.rollouts import target_revisions
from gitops_ds.model import names
from gitops_ds.model.change import Change, FieldChange, Operation
from gitops_ds.model.live import Live
from gitops_ds.model.objects import CONTROLLER_REVISION, Body, Key
from gitops_ds.model.sources.bundle import Manifest
from gitops_ds.model.values import replace
from gitops_ds.plan import diff
from gitops_ds.plan.rollouts import rollout_impact


def of(change: Change, manifests: Mapping[Key, Manifest], live: Live) -> Change:
    """The change with the fields and the nodes of a target that it newly sets, or without losses
    after the promotion of a target.
    """
    old = live.objects.get(change.key)
    is_update = change.operation is Operation.UPDATE and change.key.is_daemonset
    if not is_update or old is None or change.manifest is None:
        return change
    before, after = _target(old), _target(change.manifest.body)
    place = change.key.namespace, after
    target = manifests.get(Key(CONTROLLER_REVISION.group, CONTROLLER_REVISION.kind, *place))
    if target is not None and after != before:
        template = revisions.template_of(target.body)
    else:
        template = None
    if template is not None:
        change = replace(change, fields=(*change.fields, *_fields(old, template)))
    if before and _is_promoted(change.key, before, live):
        return replace(change, nodes=replace(change.nodes, lost=()))
    if template is None:
        return change
    new = {**old, "spec": {**old["spec"], "template": template}}
    impact = rollout_impact.impact(old, new, live.nodes or (), rolls=False)
    return replace(change, nodes=replace(change.nodes, gained=impact.gained, lost=impact.lost))


def _fields(old: Body, template: Body) -> tuple[FieldChange, ...]:
    before = {"spec": {"template": old["spec"]["template"]}}
    return diff.compare(before, {"spec": {"template": template}})


def _target(body: Body) -> str:
    annotations = (body.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(names.TARGET) or "")


def _is_promoted(key: Key, name: str, live: Live) -> bool:
    own = live.revisions.get(key, ())
    return any(one.name == name and target_revisions.is_promoted(one) for one in own)
