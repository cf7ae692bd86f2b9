"""Fields that people added to a pod template in the cluster, and that Git does not set.

Server-side apply keeps the fields of other managers, so the next template would have them too. As
Flux's kustomize-controller does with the fields of kubectl, an apply takes them over and so removes
them: https://fluxcd.io/flux/components/kustomize/kustomizations/#controlling-the-apply-behavior-of-resources
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gitops_ds.core.objects import Body, Path, annotations_of
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.ownership import field_managers, ignore_differences, ownership
from gitops_ds.ownership.field_managers import Fields
from gitops_ds.ownership.ignore_differences import IgnoreRule
from gitops_ds.ownership.options import AddedFields, PlanContext
from gitops_ds.rollouts.state import daemonset_statements

_TEMPLATE = ("spec", "template")
# `kubectl rollout restart` sets it; https://kubernetes.io/docs/reference/labels-annotations-taints/
_RESTARTED = "f:kubectl.kubernetes.io/restartedAt"


def of(manifest: Manifest, live: Body, context: PlanContext) -> Fields:
    """The added fields of a live DaemonSet that an apply of the manifest takes back; empty without
    any. Those that another manager owns as well stay, and so do ignored ones.
    """
    if not _is_covered(manifest, context.options.added_fields):
        return {}
    rules = ignore_differences.rules_of(manifest, context.options.ignore)
    people, others = _owned(live, rules)
    added = _without_restart(ownership.difference(people, others))
    template = (live.get("spec") or {}).get("template") or {}
    for path in _ignored(live, rules) if added else ():
        added = _without(added, template, path)
    return {"f:spec": {"f:template": added}} if added else {}


def _is_covered(manifest: Manifest, choice: AddedFields) -> bool:
    if not manifest.key.is_daemonset:
        return False
    annotations = annotations_of(manifest.body)
    return choice is AddedFields.ALL or daemonset_statements.has_policy(annotations)


def _owned(live: Body, rules: Sequence[IgnoreRule]) -> tuple[Fields, Fields]:
    """The fields of the template that people own, and those of all other managers."""
    ignored = {manager for rule in rules if not rule.paths for manager in rule.managers}
    people: Fields = {}
    others: Fields = {}
    for author, fields in field_managers.entries(live):
        below = (fields.get("f:spec") or {}).get("f:template") or {}
        is_added = field_managers.is_person(author.manager) and author.manager not in ignored
        if is_added and not author.subresource:
            people = ownership.union(people, below)
        else:
            others = ownership.union(others, below)
    return people, others


def _without_restart(added: Fields) -> Fields:
    metadata = added.get("f:metadata") or {}
    annotations = metadata.get("f:annotations") or {}
    if _RESTARTED not in annotations:
        return added
    restarted: Fields = {"f:metadata": {".": {}, "f:annotations": {".": {}, _RESTARTED: {}}}}
    return ownership.difference(added, restarted)


def _ignored(live: Body, rules: Sequence[IgnoreRule]) -> Iterator[Path]:
    """The paths below the template that a rule names for the managers that own them."""
    for rule in rules:
        for pointer in rule.paths:
            for path in ignore_differences.resolve(live, pointer):
                owners = {author.manager for author in field_managers.owners(live, path)}
                if path[:2] == _TEMPLATE and (not rule.managers or owners & {*rule.managers}):
                    yield path[2:]


def _without(fields: Fields, body: Any, path: Path) -> Fields:
    """The fields without those at a path of the body and below it."""
    if not path:
        return {}
    step = path[0]
    below = body[step]
    key = field_managers.member_key(fields, below) if isinstance(body, list) else f"f:{step}"
    if key is None or key not in fields:
        return fields
    left = _without(fields[key], below, path[1:])
    rest = {name: one for name, one in fields.items() if name != key}
    if left.keys() - {"."}:
        return {**rest, key: left}
    return rest if rest.keys() - {"."} else {}
