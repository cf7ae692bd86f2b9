"""The template of a new target revision as fields of its DaemonSet in a plan: the DaemonSet itself
keeps the proven template, and the reader asks what the nodes get.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gitops_ds.apimachinery import revisions
from gitops_ds.model import names
from gitops_ds.model.change import Change, FieldChange
from gitops_ds.model.live import Live
from gitops_ds.model.objects import CONTROLLER_REVISION, Body
from gitops_ds.plan import diff

_TARGET = ("metadata", "annotations", names.TARGET)


def shown(changes: Sequence[Change], live: Live) -> Iterator[Change]:
    """The changes; each DaemonSet that gets another target with the fields of its template."""
    targets = {
        (change.key.namespace, change.key.name): revisions.template_of(change.manifest.body)
        for change in changes
        if change.manifest is not None and change.key.kind == CONTROLLER_REVISION.kind
    }
    for change in changes:
        name = next((field.new for field in change.fields if field.path == _TARGET), None)
        template = targets.get((change.key.namespace, str(name)))
        old = live.objects.get(change.key)
        if template is None or old is None:
            yield change
        else:
            yield replace(change, fields=(*change.fields, *_fields(old, template)))


def _fields(old: Body, template: Body) -> tuple[FieldChange, ...]:
    before: dict[str, Any] = old["spec"]["template"]
    return diff.compare({"spec": {"template": before}}, {"spec": {"template": template}})
