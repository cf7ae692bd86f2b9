"""JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7396). They return a new value and never change
the old one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class PatchFailed(ValueError):
    """An operation failed; `index` is its position in the patch (from 0), `str()` the reason."""

    def __init__(self, message: str, index: int = 0) -> None:
        super().__init__(message)
        self.index = index


def apply(target: Any, operations: Any) -> Any:
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


def merge(target: Any, patch: Any) -> Any:
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
            merged[key] = merge(merged.get(key), value)
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
