"""The kinds of patches of the API server. They return a new value and never change the old one.

JSON Patch (RFC 6902), JSON Merge Patch (RFC 7396), and strategic merge patch: mappings merge key by
key, some lists by the key of their entries, other values are replaced. The rules of the latter:
https://github.com/kubernetes/community/blob/main/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class PatchFailed(ValueError):
    """An operation failed; `index` is its position in the patch (from 0), `str()` the reason."""

    def __init__(self, message: str, index: int = 0) -> None:
        super().__init__(message)
        self.index = index


def apply_json_patch(target: Any, operations: Any) -> Any:
    """The target after all operations (a list of mappings), in order.

    Raises PatchFailed for the first one that fails: a missing path, a `test` that fails, a
    malformed operation. https://www.rfc-editor.org/rfc/rfc6902
    """
    if not isinstance(operations, list):
        raise PatchFailed("a patch must be a list of operations")
    for index, operation in enumerate(operations):
        try:
            target = _one(target, operation)
        except PatchFailed as failed:
            raise PatchFailed(str(failed), index) from None
    return target


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """The target with the patch merged in: mappings key by key, null deletes, anything else
    replaces.

    https://www.rfc-editor.org/rfc/rfc7396
    """
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = apply_merge_patch(merged.get(key), value)
    return merged


def steps(pointer: str) -> tuple[str, ...]:
    """The reference tokens of a JSON Pointer (RFC 6901). Raises PatchFailed for an invalid one."""
    if pointer and not pointer.startswith("/"):
        raise PatchFailed(f"the path {pointer!r} does not begin with a slash")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])


def _one(target: Any, operation: Any) -> Any:
    if not isinstance(operation, Mapping):
        raise PatchFailed("an operation must be a mapping with `op` and `path`")
    # Equality, not `match`: scalars of callers may only compare equal to strings.
    verb, path = _text(operation, "op"), steps(_text(operation, "path"))
    if verb == "remove":
        return _edit(target, path, "remove", None)
    if verb in ("add", "replace", "test") and "value" not in operation:
        raise PatchFailed(f"{verb} requires a value")
    if verb == "test":
        if _get(target, path) != operation["value"]:
            raise PatchFailed(f"the value at {_show(path)} differs from the test")
        return target
    if verb in ("add", "replace"):
        return _edit(target, path, verb, operation["value"])
    if verb in ("move", "copy"):
        source = steps(_text(operation, "from"))
        value = _get(target, source)
        if verb == "move":
            if path[: len(source)] == source and path != source:
                raise PatchFailed(f"{_show(source)} can't be moved into itself")
            target = _edit(target, source, "remove", None)
        return _edit(target, path, "add", value)
    raise PatchFailed(f"{verb} is not an operation: use add, remove, replace, move, copy or test")


def _text(operation: Mapping[str, Any], key: str) -> str:
    value = operation.get(key)
    value = getattr(value, "value", value)
    if not isinstance(value, str):
        raise PatchFailed(f"an operation requires `{key}`, a string")
    return value


def _get(target: Any, path: tuple[str, ...]) -> Any:
    for count, step in enumerate(path, 1):
        if isinstance(target, Mapping) and step in target:
            target = target[step]
        elif isinstance(target, list):
            target = target[_index(target, step, path[:count])]
        else:
            raise _missing(path[:count])
    return target


def _edit(target: Any, path: tuple[str, ...], verb: str, value: Any, done: int = 0) -> Any:
    """The target with the value added, replaced or removed at the path; only the parents are
    copied.
    """
    if done == len(path):
        if verb == "remove":
            raise PatchFailed("the whole document can't be removed")
        return value
    step, last = path[done], done == len(path) - 1
    here = path[: done + 1]
    if isinstance(target, Mapping):
        changed = dict(target)
        if step not in target and not (last and verb == "add"):
            raise _missing(here)
        if last and verb == "remove":
            del changed[step]
        else:
            changed[step] = value if last else _edit(target[step], path, verb, value, done + 1)
        return changed
    if not isinstance(target, list):
        raise _missing(here)
    entries = list(target)
    if last and verb == "add":
        entries.insert(len(entries) if step == "-" else _index(entries, step, here, over=1), value)
        return entries
    index = _index(entries, step, here)
    if last and verb == "remove":
        del entries[index]
    else:
        entries[index] = value if last else _edit(entries[index], path, verb, value, done + 1)
    return entries


def _index(entries: list[Any], step: str, path: tuple[str, ...], over: int = 0) -> int:
    # RFC 6901 section 4: digits without a leading zero.
    if not (step.isascii() and step.isdigit()) or (step != "0" and step.startswith("0")):
        raise PatchFailed(f"{_show(path)}: a list requires an index here")
    if int(step) >= len(entries) + over:
        raise PatchFailed(f"{_show(path)}: the list has only {len(entries)} entries")
    return int(step)


def _missing(path: tuple[str, ...]) -> PatchFailed:
    return PatchFailed(f"{_show(path)} does not exist")


def _show(path: tuple[str, ...]) -> str:
    return "/" + "/".join(step.replace("~", "~0").replace("/", "~1") for step in path)


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


def apply_strategic_merge(target: Any, patch: Any, kind: str) -> Any:
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
            merged[key] = apply_strategic_merge(old, value, kind)
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
            merged.append(apply_strategic_merge({}, entry, kind))
        else:
            merged[at] = apply_strategic_merge(merged[at], entry, kind)
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
