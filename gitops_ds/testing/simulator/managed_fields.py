"""The owners of fields: managedFields after a server-side apply and after every other write.

https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.objects import Body
from gitops_ds.testing.simulator import field_sets
from gitops_ds.testing.simulator.field_sets import FieldSet, Schema
from gitops_ds.testing.simulator.type_schema import Struct

# Fields written by the server have no owner.
_SYSTEM = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "creationTimestamp",
                "deletionGracePeriodSeconds",
                "deletionTimestamp",
                "generateName",
                "generation",
                "managedFields",
                "name",
                "namespace",
                "resourceVersion",
                "selfLink",
                "uid",
            )
        ),
    }
)
_BEFORE = "before-first-apply"


class Manager(msgspec.Struct, frozen=True, order=True):
    """The identity of an entry of managedFields."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""


class ManagerEntry(msgspec.Struct, frozen=True):
    """The fields of a manager, and the time of their last change."""

    fields: FieldSet
    time: str


Managers = Mapping[Manager, ManagerEntry]


class Write(msgspec.Struct, frozen=True):
    """The manager, the operation and the time of a write; `type` is the kind's struct, `ignored`
    its fields that the operation can't change.
    """

    manager: Manager
    time: str
    type: Struct
    ignored: frozenset[str] = frozenset()


def read(body: Body) -> dict[Manager, ManagerEntry]:
    """The managers of an object."""
    entries = {}
    for entry in (body.get("metadata") or {}).get("managedFields") or ():
        manager = Manager(
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        entries[manager] = ManagerEntry(
            field_sets.decode(entry.get("fieldsV1") or {}), entry.get("time", "")
        )
    return entries


def show(managers: Managers) -> list[dict[str, Any]]:
    """The managedFields of an object in the API server's order: appliers first, then by time."""
    order = sorted(
        managers.items(),
        key=lambda m: (m[0].operation, m[1].time, m[0].name, m[0].api_version, m[0].subresource),
    )
    shown = []
    for manager, entry in order:
        made = {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": manager.api_version,
            "time": entry.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": field_sets.encode(entry.fields),
        }
        if manager.subresource:
            made["subresource"] = manager.subresource
        shown.append(made)
    return shown


def after_update(schema: Schema, write: Write, old: Body | None, new: Body) -> list[dict[str, Any]]:
    """The managedFields of `new`, which replaces `old` by a create, replace or patch.

    The writer owns the fields that it added or changed; removed fields have no owner. managedFields
    in the write itself are used (ownership can be transferred); a single empty entry resets all.
    """
    entries = new["metadata"].get("managedFields")
    if entries and not any(entries):
        return []
    managers = read(new if entries else old or {})
    difference = schema.compare(write.type, _plain(old or {}, write), _plain(new, write))
    taken = (difference.added | difference.modified) - _SYSTEM
    after = _without(managers, write, taken | difference.removed)
    mine = after.get(write.manager, ManagerEntry(field_sets.NONE, write.time))
    _put(after, write, (mine.fields - difference.removed) | taken, changed=bool(taken))
    return show(after)


def after_apply(
    schema: Schema, write: Write, live: Body, config: Body, force: bool
) -> dict[str, Any]:
    """`live` with `config` applied by the writer, and its new managedFields.

    Fields that the writer owned, no longer sets, and that have no other owner, are removed. Raises
    Conflict, with one cause per field, if another manager owns a field with another value and
    `force` is not set; KeyMissing for a list item without its key.
    """
    managers = read(live)
    before = _plain(live)
    stated = _plain(config, write)
    if live and not managers:
        first = Manager(_BEFORE, "Update", write.manager.api_version)
        managers[first] = ManagerEntry(
            schema.compare(write.type, {}, before).added - _SYSTEM, write.time
        )
    last = managers[write.manager].fields if write.manager in managers else field_sets.NONE
    mine = schema.of(write.type, stated) - _SYSTEM
    merged: dict[str, Any] = schema.merge(write.type, before, stated)
    others = (entry.fields for manager, entry in managers.items() if manager != write.manager)
    held = schema.with_parents(write.type, mine.union(*others))
    gone = schema.with_parents(write.type, last) - held - _SYSTEM
    if gone:
        merged = schema.without(write.type, merged, gone) or {}
    difference = schema.compare(write.type, before, merged)
    taken = difference.added | difference.modified
    if not force:
        _refuse(managers, write.manager, taken)
    after = _without(managers, write, taken | difference.removed)
    _put(after, write, mine, changed=bool(taken | difference.removed))
    merged["metadata"] = {**merged.get("metadata", {}), "managedFields": show(after)}
    return merged


def _plain(body: Body, write: Write | None = None) -> dict[str, Any]:
    """The object without managedFields, which have no owner, and without fields that the write
    can't change.
    """
    metadata = {k: v for k, v in (body.get("metadata") or {}).items() if k != "managedFields"}
    reached = {k: v for k, v in body.items() if write is None or k not in write.ignored}
    return {**reached, "metadata": metadata}


def _without(managers: Managers, write: Write, lost: FieldSet) -> dict[Manager, ManagerEntry]:
    after = {}
    for manager, entry in managers.items():
        if manager == write.manager:
            after[manager] = entry
        elif kept := entry.fields - lost:
            after[manager] = entry if kept == entry.fields else ManagerEntry(kept, write.time)
    return after


def _put(
    managers: dict[Manager, ManagerEntry], write: Write, owned: FieldSet, changed: bool
) -> None:
    """Adds the writer's entry; its time is that of its last write with a change (apimachinery,
    managedfieldsupdater.go).
    """
    entry = managers.pop(write.manager, None)
    if owned:
        managers[write.manager] = (
            entry
            if entry and entry.fields == owned and not changed
            else ManagerEntry(owned, write.time)
        )


def _refuse(managers: Managers, writer: Manager, taken: FieldSet) -> None:
    clashes: dict[str, list[str]] = {}
    for manager, entry in sorted(managers.items()):
        if manager != writer and (clash := entry.fields & taken):
            clashes.setdefault(_name(manager, writer), []).extend(
                sorted(field_sets.show(path) for path in clash)
            )
    if not clashes:
        return
    causes = tuple(
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": field}
        for who, paths in clashes.items()
        for field in paths
    )
    raise errors.Conflict(_message(clashes), 409, "Conflict", causes)


def _message(clashes: Mapping[str, Sequence[str]]) -> str:
    number = sum(len(paths) for paths in clashes.values())
    if number == 1:
        ((who, (path,)),) = clashes.items()
        return f"Apply failed with 1 conflict: conflict with {who}: {path}"
    lines = []
    for who, paths in clashes.items():
        lines.append(f"conflicts with {who}:")
        lines += [f"- {path}" for path in paths]
    return f"Apply failed with {number} conflicts: " + "\n".join(lines)


def _name(manager: Manager, writer: Manager) -> str:
    text = f'"{manager.name}"'
    if manager.subresource:
        text += f' with subresource "{manager.subresource}"'
    if manager.operation == "Update" or manager.api_version != writer.api_version:
        text += f" using {manager.api_version}"
    return text
