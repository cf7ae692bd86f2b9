"""The template that a DaemonSet keeps during a staged rollout, for the apply.

The fields are those that our applies own, and those of the manifest, which may have another owner
after an edit in the cluster. The values are those of the proven template, which an edit does not
change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gitops_ds.apimachinery.rollouts import proofs
from gitops_ds.model.objects import Body
from gitops_ds.plan import field_managers, ownership
from gitops_ds.plan.field_managers import Fields

_PATH = ("spec", "template")


def of(live: Body, desired: Body, proven: Body) -> Body:
    """The proven template, with the fields that are ours or in the template `desired` of Git."""
    if proofs.identity(proven) == proofs.identity(live["spec"]["template"]):
        part = ownership.owned_part(live, _PATH)
        return part if part is not None else proven
    fields: Any = field_managers.owned_fields(live) or {}
    for step in _PATH:
        fields = fields.get(f"f:{step}") or {}
    template: Body = _part(proven, fields, desired)
    return template


def _part(value: Any, fields: Fields, desired: Any) -> Any:
    inner = {key: below for key, below in fields.items() if key != "."}
    if isinstance(value, Mapping) and (inner or isinstance(desired, Mapping)):
        in_git = desired if isinstance(desired, Mapping) else {}
        return {
            name: _part(one, inner.get(f"f:{name}", {}), in_git.get(name))
            for name, one in value.items()
            if f"f:{name}" in inner or name in in_git
        }
    if isinstance(value, list) and inner:
        return _members(value, inner, desired if isinstance(desired, list) else [])
    return value


def _members(items: list[Any], fields: Fields, desired: list[Any]) -> list[Any]:
    """The members that are owned or wanted, by the keys of the owned ones."""
    tokens = {
        text: below for key, below in fields.items() for kind, _, text in [key.partition(":")]
    }
    keys = {
        name for text in tokens if isinstance(token := json.loads(text), dict) for name in token
    }
    kept = []
    for item in items:
        if not isinstance(item, Mapping):
            kept += [item] if json.dumps(item) in tokens or item in desired else []
            continue
        token = {name: item.get(name, field_managers.FILLED_KEYS.get(name)) for name in keys}
        below = next((one for text, one in tokens.items() if json.loads(text) == token), None)
        in_git = ownership.member(desired, token)
        if below is not None or in_git is not None:
            kept.append(_part(item, below or {}, in_git))
    return kept
