"""The fields that differ between two forms of an object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gitops_ds.model import names
from gitops_ds.model.change import FieldChange
from gitops_ds.model.objects import Body, ListMember, Path

# The key that identifies the members of a list: the first that all members have and that is unique
# among them.
MEMBER_KEYS = (
    "name",
    "mountPath",
    "containerPort",
    "devicePath",
    "topologyKey",
    "port",
    "key",
    "ip",
    "uid",
)

# Set by the server, or changed by every write: ignored in a diff.
_SERVER_METADATA = frozenset(
    (
        "managedFields",
        "resourceVersion",
        "generation",
        "uid",
        "creationTimestamp",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    )
)


def compare(old: Body, new: Body) -> tuple[FieldChange, ...]:
    """The fields that differ, in order of their path, without status and fields that only the
    server writes.
    """
    return tuple(_differences(_meant(old), _meant(new), ()))


def _meant(body: Body) -> dict[str, Any]:
    metadata = {k: v for k, v in (body.get("metadata") or {}).items() if k not in _SERVER_METADATA}
    annotations = {
        k: v
        for k, v in (metadata.get("annotations") or {}).items()
        if k != names.TEMPLATE_GENERATION
    }
    for key, value in (("annotations", annotations), ("labels", metadata.get("labels"))):
        if value:
            metadata[key] = value
        else:
            metadata.pop(key, None)
    return {
        **{k: v for k, v in body.items() if k not in ("status", "apiVersion", "kind")},
        "metadata": metadata,
    }


def _differences(old: Any, new: Any, path: Path) -> Iterator[FieldChange]:
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(old.keys() | new.keys()):
            yield from _differences(old.get(key), new.get(key), (*path, key))
    elif isinstance(old, list) and isinstance(new, list) and old and new:
        yield from _list_differences(old, new, path)
    else:
        yield FieldChange(path, old, new)


def _list_differences(old: list[Any], new: list[Any], path: Path) -> Iterator[FieldChange]:
    key = _member_key(old, new)
    if key is None:
        if len(old) != len(new) or not all(isinstance(item, Mapping) for item in old + new):
            yield FieldChange(path, old, new)
            return
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _differences(before, after, (*path, index))
        return
    before, after = ({str(item[key]): item for item in items} for items in (old, new))
    for name in sorted(before.keys() | after.keys()):
        yield from _differences(before.get(name), after.get(name), (*path, ListMember(name)))
    if list(before) != list(after) and sorted(before) == sorted(after):
        yield FieldChange((*path, ListMember("order")), list(before), list(after))


def _member_key(old: list[Any], new: list[Any]) -> str | None:
    if not all(isinstance(item, Mapping) for item in old + new):
        return None
    for key in MEMBER_KEYS:
        if all(_unique(items, key) for items in (old, new)):
            return key
    return None


def _unique(items: list[Mapping[str, Any]], key: str) -> bool:
    values = [item.get(key) for item in items]
    return None not in values and len(set(map(str, values))) == len(values)
