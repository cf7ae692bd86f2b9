"""The field managers that own the value at a path of an object.

https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gitops_ds.core import names
from gitops_ds.core.change import Author
from gitops_ds.core.objects import Body, ListMember, Path
from gitops_ds.ownership.diff import MEMBER_KEYS
from gitops_ds.rollouts.state import rollout_annotations

# A set of fields in managedFields: `f:name` a key, `k:{...}` a list's member by its keys, `v:...`
# one by its value, `.` itself.
Fields = Mapping[str, Any]
NO_FIELDS: Fields = {}

# Keys of list members that the API server defaults before it looks up the member.
FILLED_KEYS = {"protocol": "TCP"}

# Field managers of users at a terminal, whose fields may be taken over. "OpenAPI-Generator", the
# default of the generated clients, is not included: controllers in Python and Java use it.
PEOPLE = ("kubectl", "before-first-apply", "Mozilla", "unknown")


def entries(live: Body) -> Iterator[tuple[Author, Fields]]:
    """The managers of an object with their sets of fields, including ours."""
    for entry in (live.get("metadata") or {}).get("managedFields") or ():
        attributes = (
            str(entry.get(name) or "") for name in ("manager", "operation", "subresource", "time")
        )
        yield Author(*attributes), entry.get("fieldsV1") or {}


def is_ours(author: Author) -> bool:
    """Whether these are the fields of our own applies."""
    return (
        author.manager == names.FIELD_MANAGER
        and author.operation == "Apply"
        and not author.subresource
    )


def is_person(manager: str) -> bool:
    """Whether the field manager is a person's tool rather than a controller."""
    return manager.startswith(PEOPLE)


def owned_fields(live: Body) -> Fields | None:
    """The fields that our applies own; None if we never applied the object."""
    return next((fields for author, fields in entries(live) if is_ours(author)), None)


def is_applied(live: Body) -> bool:
    """Whether we applied a live object; True for one whose owners are unknown."""
    return owned_fields(live) is not None or next(entries(live), None) is None


def is_from_git(live: Body, annotation: str) -> bool:
    """Whether the annotation of a live object is one that we applied."""
    return f"f:{annotation}" in rollout_annotations.owned_annotations(owned_fields(live) or {})


def owners(live: Body, path: Path) -> tuple[Author, ...]:
    """The owners of the value at the path of a live object, or of a value below it.

    If it has no owner, it is part of a value that is owned as a whole (the arguments of a
    container); then the owners of that value.
    """
    depths = {
        author: depth for author, fields in entries(live) if (depth := _depth(fields, live, path))
    }
    deepest = max(depths.values(), default=0)
    return tuple(author for author, depth in depths.items() if depth == deepest)


def _depth(fields: Fields, body: Any, path: Path) -> int:
    """The number of owned steps of the path: all, those to a value owned as a whole, or 0."""
    at: Fields | None = fields
    for depth, step in enumerate(path):
        if not at:
            return depth
        if isinstance(body, list):
            index = step if isinstance(step, int) else index_of(body, str(step))
            body = body[index] if index is not None and index < len(body) else None
            at = _of_member(at, body)
        else:
            body = body.get(step) if isinstance(body, Mapping) else None
            at = at.get(f"f:{step}")
        if at is None:
            return 0
    return len(path)


def _of_member(fields: Fields, member: Any) -> Fields | None:
    key = member_key(fields, member)
    return None if key is None else dict(fields[key])


def member_key(fields: Fields, member: Any) -> str | None:
    """The key of a list's member in a set of fields; None if the set has none of it."""
    for key in fields:
        kind, _, text = key.partition(":")
        if kind == "v" and json.loads(text) == member:
            return key
        if kind == "k" and isinstance(member, Mapping):
            token = json.loads(text)
            if all(
                member.get(name, FILLED_KEYS.get(name)) == value for name, value in token.items()
            ):
                return key
    return None


def index_of(items: list[Any], name: str) -> int | None:
    """The index of the member with that name."""
    for key in MEMBER_KEYS:
        for index, item in enumerate(items):
            if isinstance(item, Mapping) and str(item.get(key)) == name:
                return index
    return None


def is_order(path: Path) -> bool:
    """Whether a path represents the order of a list."""
    return bool(path) and isinstance(path[-1], ListMember) and path[-1] == "order"
