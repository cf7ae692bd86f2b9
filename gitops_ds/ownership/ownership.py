"""The fields that our applies own, and whether an apply would change the cluster.

The source is `metadata.managedFields`, which the API server maintains for every writer.
https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from gitops_ds.core import names
from gitops_ds.core.objects import Body, Path, labels_of
from gitops_ds.kube.apimachinery import defaults, quantities
from gitops_ds.ownership import diff
from gitops_ds.ownership.field_managers import (
    FILLED_KEYS,
    NO_FIELDS,
    Fields,
    is_person,
    owned_fields,
)
from gitops_ds.ownership.object_owner import Hold, holder, owner_of
from gitops_ds.rollouts.state import daemonset_statements

# Field managers of kubectl commands that write a file by Update. Their fields are migrated to us,
# or a field removed from Git would remain permanently. Without kubectl-rollout and kubectl-edit,
# whose fields are not in a file.
_CLIENT_SIDE = frozenset(
    ("kubectl-client-side-apply", "before-first-apply", "kubectl-create", "kubectl-replace")
)

# Field managers of tools that apply manifests.
_TOOLS = frozenset(
    (
        "argocd-application-controller",
        "argocd-controller",
        "helm",
        "helm-controller",
        "kapp",
        "kapp-server-side-apply",
        "kustomize-controller",
    )
)
_NOT_MIGRATED = frozenset(f"f:{name}" for name in daemonset_statements.READ_BY_ROLLOUTS)
# On objects of Argo CD, which tracks them by this label before 3.0; many charts set it too.
_INSTANCE = "app.kubernetes.io/instance"


def _migratable(live: Body) -> list[Mapping[str, Any]]:
    """The entries of managedFields whose fields are migrated to us.

    The first apply takes over the object with the fields of `kubectl apply --server-side`, and with
    those of the tool that marked it. Later these are fields of another writer.
    """
    labels = labels_of(live)
    is_new = not owner_of(live)
    is_marked = is_new and (holder(live, "").hold is Hold.FOREIGN or _INSTANCE in labels)

    def is_migratable(entry: Mapping[str, Any]) -> bool:
        manager, operation = entry.get("manager"), entry.get("operation")
        if entry.get("subresource") or not _split(entry)[0]:
            return False
        if manager in _CLIENT_SIDE and operation == "Update":
            return True
        if manager == "kubectl" and operation == "Apply":
            return is_new
        return is_marked and manager in _TOOLS

    return [
        entry
        for entry in (live.get("metadata") or {}).get("managedFields") or ()
        if is_migratable(entry)
    ]


def needs_migration(live: Body) -> bool:
    """Whether `kubectl apply` without --server-side, kubectl create, or the tool from which the
    object is taken over, still owns fields of it.
    """
    return bool(_migratable(live))


def migrated(live: Body, added: Fields = NO_FIELDS) -> list[Mapping[str, Any]]:
    """The managedFields in which the fields of client-side applies, of the tool from which the
    object is taken over, and the `added` ones of people, are ours, as one Apply entry.

    As client-go's csaupgrade: https://pkg.go.dev/k8s.io/client-go/util/csaupgrade
    """
    live = _handed_over(live, added) if added else live
    handed = _migratable(live)
    rest = [
        {**entry, "fieldsV1": _split(entry)[1]} if entry in handed else entry
        for entry in (live.get("metadata") or {}).get("managedFields") or ()
        if not (entry in handed and not _split(entry)[1])
        and not (
            entry.get("manager") == names.FIELD_MANAGER
            and entry.get("operation") == "Apply"
            and not entry.get("subresource")
        )
    ]
    ours = {
        "manager": names.FIELD_MANAGER,
        "operation": "Apply",
        "apiVersion": str(live.get("apiVersion", "")),
        "fieldsType": "FieldsV1",
        "fieldsV1": union(_ours_after_migration(live), added),
    }
    return [ours, *rest]


def _handed_over(live: Body, added: Fields) -> Body:
    """The object without these fields in the entries of people."""
    metadata = live["metadata"]
    entries = [
        {**entry, "fieldsV1": difference(entry.get("fieldsV1") or {}, added)}
        if is_person(str(entry.get("manager"))) and not entry.get("subresource")
        else entry
        for entry in metadata.get("managedFields") or ()
    ]
    left = [entry for entry in entries if entry.get("fieldsV1")]
    return {**live, "metadata": {**metadata, "managedFields": left}}


def _ours_after_migration(live: Body) -> Fields:
    ours = owned_fields(live) or {}
    for entry in _migratable(live):
        ours = union(ours, _split(entry)[0])
    return ours


def _split(entry: Mapping[str, Any]) -> tuple[Fields, Fields]:
    """The fields of an entry that are migrated, and those that are not: until the next apply they
    must not look like the deployer's own.
    """
    fields: Fields = entry.get("fieldsV1") or {}
    metadata: Fields = fields.get("f:metadata") or {}
    annotations: Fields = metadata.get("f:annotations") or {}
    left = {name: annotations[name] for name in annotations if name in _NOT_MIGRATED}
    if not left:
        return fields, {}
    handed = {name: one for name, one in annotations.items() if name not in left and name != "."}
    kept = {name: one for name, one in metadata.items() if name != "f:annotations"}
    kept |= {"f:annotations": handed} if handed else {}
    others = {name: one for name, one in fields.items() if name != "f:metadata"}
    others |= {"f:metadata": kept} if kept else {}
    return others, {"f:metadata": {"f:annotations": left}}


def union(one: Fields, other: Fields) -> dict[str, Any]:
    """The fields of either set."""
    both = dict(one)
    for key, fields in other.items():
        both[key] = union(both[key], fields) if key in both else fields
    return both


def difference(fields: Fields, others: Fields) -> dict[str, Any]:
    """The fields that are not in the other set."""
    left = {}
    for key, below in fields.items():
        if key not in others:
            left[key] = below
        elif rest := difference(below, others[key]):
            left[key] = rest
    return left


# Written by the server, regardless of the manifest: no set of owned fields has them.
_SERVER_METADATA = frozenset(
    (
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "selfLink",
        "managedFields",
    )
)

# The stored form of a value, None for a value that is not stored. It is only computed for values
# that differ from the live ones, which most objects lack.
Stored = Callable[[], Any]


def would_change_nothing(live: Body, body: Body) -> bool:
    """Whether an apply of `body` would change nothing: we own exactly its fields, each with its
    resulting value.

    False in case of doubt; a dry run decides then.
    """
    fields = owned_fields(live)
    if fields is None:
        return False
    desired = {
        key: value for key, value in body.items() if key not in ("apiVersion", "kind", "status")
    }
    metadata = {
        key: value
        for key, value in (body.get("metadata") or {}).items()
        if key not in _SERVER_METADATA
    }
    desired["metadata"] = metadata
    if not metadata:
        del desired["metadata"]
    stored = cache(lambda: defaults.defaulted(body))
    return _same(fields, desired, stored, live, ()) and not diff.order_differs(live, body)


def owned_part(live: Body, path: Path) -> Any:
    """The fields below a path that we own (after a migration), with their live values; None without
    any.

    Another apply of them changes neither values nor owners.
    """
    fields = _at(_ours_after_migration(live), [f"f:{step}" for step in path])
    return None if fields is None else _owned(_at(live, path), fields)


def _at(value: Any, path: Sequence[Any]) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _owned(value: Any, fields: Fields) -> Any:
    inner = {key: below for key, below in fields.items() if key != "."}
    if not inner:
        return value
    if isinstance(value, Mapping):
        return {
            name: _owned(value[name], below)
            for key, below in inner.items()
            if (name := key.removeprefix("f:")) in value
        }
    if not isinstance(value, list):
        return value
    kept = []
    for item in value:
        for key, below in inner.items():
            kind, _, text = key.partition(":")
            token = json.loads(text)
            if (kind == "v" and item == token) or (
                kind == "k" and member([item], token) is not None
            ):
                kept.append(_owned(item, below))
    return kept


def _same(fields: Fields, desired: Any, stored: Stored, live: Any, path: Path) -> bool:
    """Whether `live` has the wanted values of the owned fields; `stored` is the stored form of
    them.
    """
    inner = {key: below for key, below in fields.items() if key != "."}
    if not inner:
        return _equal(desired, live, path) or _equal(stored(), live, path)
    if isinstance(desired, Mapping) and (
        isinstance(live, Mapping) or (live is None and stored() is None)
    ):
        return _same_mapping(inner, desired, stored, live or {}, path)
    if isinstance(desired, list) and isinstance(live, list):
        return len(inner) == len(desired) and all(
            _same_member(key, below, (desired, stored, live), path) for key, below in inner.items()
        )
    return False


def _same_mapping(
    inner: Fields,
    desired: Mapping[str, Any],
    stored: Stored,
    live: Mapping[str, Any],
    path: Path,
) -> bool:
    for key, value in desired.items():
        # For an API server a null is owned, and an empty list with keys is not; both match an
        # absent value.
        is_nothing = value is None or (value == [] and live.get(key) in (None, []))
        if not is_nothing and f"f:{key}" not in inner:
            return False
    for name, below in inner.items():
        key = name[2:]
        if not name.startswith("f:") or key not in desired:
            return False
        if not _same(below, desired[key], _value_of(stored, key), live.get(key), (*path, key)):
            return False
    return True


def _value_of(stored: Stored, key: str) -> Stored:
    def value() -> Any:
        whole = stored()
        return whole.get(key) if isinstance(whole, Mapping) else None

    return value


def _same_member(
    key: str, fields: Fields, lists: tuple[list[Any], Stored, list[Any]], path: Path
) -> bool:
    kind, _, text = key.partition(":")
    token = json.loads(text)
    desired, stored, live = lists
    if kind == "v":
        return token in desired and token in live
    mine, theirs = member(desired, token), member(live, token)

    def filled() -> Any:
        items = stored()
        return member(items, token) if isinstance(items, list) else None

    return (
        mine is not None
        and theirs is not None
        and _same(fields, mine, filled, theirs, (*path, text))
    )


def member(items: list[Any], keys: Mapping[str, Any]) -> Any:
    """The member of a list with these keys, None without one."""
    for item in items:
        if isinstance(item, Mapping) and all(
            item.get(k, FILLED_KEYS.get(k)) == v for k, v in keys.items()
        ):
            return item
    return None


_AMOUNTS = frozenset(
    (
        "limits",
        "requests",
        "sizeLimit",
        "capacity",
        "hard",
        "storage",
        "divisor",
        "overhead",
        "podFixed",
    )
)


def _equal(desired: Any, live: Any, path: Path) -> bool:
    if desired == live and type(desired) is type(live):
        return True
    if isinstance(desired, int | float | str) and isinstance(live, str) and _AMOUNTS & set(path):
        try:
            return quantities.parse(desired) == quantities.parse(live)
        except ValueError:
            return False
    return False


def without_abandoned(
    live: Body, desired: Body, base: Body, added: Fields = NO_FIELDS
) -> dict[str, Any]:
    """`base` without the fields that we own on `live` (after a migration, with the `added` ones)
    and that are no longer wanted.
    """
    left: dict[str, Any] = _prune(base, union(_ours_after_migration(live), added), desired)
    return left


def _prune(value: Any, fields: Fields, desired: Any) -> Any:
    if isinstance(value, Mapping):
        kept = dict(value)
        for key, below in fields.items():
            name = key[2:]
            if not key.startswith("f:") or name not in kept:
                continue
            if isinstance(desired, Mapping) and desired.get(name) is not None:
                kept[name] = _prune(kept[name], below, desired[name])
            elif below.keys() - {"."}:
                kept[name] = _prune(kept[name], below, None)
                if not kept[name]:
                    del kept[name]
            elif not (isinstance(desired, Mapping) and name in desired):
                del kept[name]
        return kept
    if isinstance(value, list):
        return _prune_list(value, fields, desired if isinstance(desired, list) else [])
    return value


def _prune_list(items: list[Any], fields: Fields, desired: list[Any]) -> list[Any]:
    kept = list(items)
    for key, below in fields.items():
        kind, _, text = key.partition(":")
        if kind not in ("k", "v"):
            continue
        token = json.loads(text)
        if kind == "v":
            kept = [item for item in kept if item != token or token in desired]
        elif (old := member(kept, token)) is not None:
            mine = member(desired, token)
            at = kept.index(old)
            is_removed = mine is None and "." in below
            kept[at : at + 1] = [] if is_removed else [_prune(old, below, mine)]
    return kept
