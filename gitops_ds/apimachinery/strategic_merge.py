"""Strategic merge patch: mappings merge key by key, some lists by the key of their entries, other
values are replaced.

The rules:
https://github.com/kubernetes/community/blob/main/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Lists that merge, and the key field of their entries ("" = a set of plain values), from
# `x-kubernetes-patch-merge-key` and `x-kubernetes-patch-strategy` of the OpenAPI documents. The
# name of the field suffices if all kinds agree.
_MERGE_KEYS = {
    "schedulingGates": "name",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
    "secrets": "name",
    "conditions": "type",
    "ownerReferences": "uid",
    "finalizers": "",
}
# `ports` is keyed by another field in a container than in a Service. A pod's `resourceClaims` merge
# by name; a container's `resources.claims`, tolerations, args and command have no merge key: they
# are replaced.
_PORTS = {"Service": "port"}
_DIRECTIVES = ("$patch", "$retainKeys")


def apply(target: Any, patch: Any, kind: str) -> Any:
    """The target with the patch merged in; neither is changed.

    `kind` is that of the whole object (it decides by which field `ports` merge). Directives:
    `$patch: replace|delete|merge`, `$deleteFromPrimitiveList/FIELD`, `$setElementOrder/FIELD`,
    `$retainKeys`. A key whose value is null is removed.
    """
    if not isinstance(patch, Mapping):
        return patch
    directive = patch.get("$patch")
    if directive == "replace":
        return _clean({key: value for key, value in patch.items() if key != "$patch"})
    if directive == "delete":
        return {}
    merged = dict(target) if isinstance(target, Mapping) else {}
    if "$retainKeys" in patch:
        merged = {key: value for key, value in merged.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if key in _DIRECTIVES:
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            merged[field] = [entry for entry in merged.get(field) or [] if entry not in value]
        elif not key.startswith("$setElementOrder/"):
            _merge_field(merged, key, value, kind)
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            field = key.partition("/")[2]
            merged[field] = _ordered(merged.get(field) or [], order, _merge_key(field, kind))
    return merged


def _merge_field(merged: dict[str, Any], key: str, value: Any, kind: str) -> None:
    old = merged.get(key)
    merge_key = _merge_key(key, kind)
    if value is None:
        merged.pop(key, None)
    elif isinstance(value, list) and merge_key is not None and _mergeable(value, merge_key):
        merged[key] = _merge_list(old if isinstance(old, list) else [], value, merge_key, kind)
    elif isinstance(value, Mapping):
        if value.get("$patch") == "delete":
            merged.pop(key, None)
        else:
            merged[key] = apply(old, value, kind)
    else:
        merged[key] = value


def _merge_key(field: str, kind: str) -> str | None:
    if field == "ports":
        return _PORTS.get(kind, "containerPort")
    return _MERGE_KEYS.get(field)


def _mergeable(entries: list[Any], merge_key: str) -> bool:
    """A list whose entries lack the key (a field of the same name in another kind) is replaced as a
    whole.
    """
    if not merge_key:
        return True
    return all(
        isinstance(entry, Mapping) and (merge_key in entry or "$patch" in entry)
        for entry in entries
    )


def _merge_list(old: list[Any], patch: list[Any], merge_key: str, kind: str) -> list[Any]:
    if not merge_key:
        return old + [entry for entry in patch if entry not in old]
    if any(entry.get("$patch") == "replace" and merge_key not in entry for entry in patch):
        return [_clean(entry) for entry in patch if "$patch" not in entry]
    merged = list(old)
    for entry in patch:
        at = next(
            (
                i
                for i, e in enumerate(merged)
                if isinstance(e, Mapping) and e.get(merge_key) == entry.get(merge_key)
            ),
            None,
        )
        if entry.get("$patch") == "delete":
            merged = merged if at is None else merged[:at] + merged[at + 1 :]
        elif at is None:
            merged.append(apply({}, entry, kind))
        else:
            merged[at] = apply(merged[at], entry, kind)
    return merged


def _ordered(entries: list[Any], order: list[Any], merge_key: str | None) -> list[Any]:
    """The named entries in that order; other ones keep their predecessor."""
    keys = [entry.get(merge_key) if isinstance(entry, Mapping) else entry for entry in order]

    def name(entry: Any) -> Any:
        return entry.get(merge_key) if isinstance(entry, Mapping) else entry

    ordered = sorted(
        (entry for entry in entries if name(entry) in keys),
        key=lambda entry: keys.index(name(entry)),
    )
    previous: Any = None
    for index, entry in enumerate(entries):
        if name(entry) not in keys:
            at = 0 if index == 0 else next(i for i, e in enumerate(ordered) if e is previous) + 1
            ordered.insert(at, entry)
        previous = entry
    return ordered


def _clean(value: Any) -> Any:
    """The value without directives and nulls: the result of a patch without a target."""
    if isinstance(value, Mapping):
        return {
            key: _clean(item)
            for key, item in value.items()
            if item is not None and not key.startswith("$")
        }
    return [_clean(item) for item in value] if isinstance(value, list) else value
