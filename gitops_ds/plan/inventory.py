"""The live objects that may be deleted as ours: those of the inventory without the mark of another
object.

The owner label alone proves nothing: controllers copy labels (the endpoints controller those of a
Service, replicators those of a Secret), and so does `kubectl get -o yaml | sed | kubectl apply`.
The annotation `gitops-ds.io/tracking-id` identifies the object that it was written to, like that of
Argo CD: https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/
"""

from __future__ import annotations

from collections.abc import Set

from gitops_ds.model import names
from gitops_ds.model.objects import Body, Key
from gitops_ds.plan import ownership
from gitops_ds.plan.ownership import Hold


def mark(owner: str, key: Key) -> str:
    """The value of the annotation on this object."""
    return f"{owner}:{key.group}/{key.kind}:{key.namespace}/{key.name}"


def mark_of(live: Body) -> str | None:
    """The annotation of a live object; None for an object from before the annotation existed."""
    value = ((live.get("metadata") or {}).get("annotations") or {}).get(names.TRACKING_ID)
    return None if value is None else str(value)


def may_delete(key: Key, live: Body, owner: str, inventory: Set[Key] | None) -> bool:
    """Whether the object is ours to delete.

    It has our label, no mark of another object, and is in the inventory. If the inventory was lost
    (None), it needs our mark and fields that we applied.
    """
    if ownership.holder(live, owner).hold is not Hold.OURS or mark_of(live) not in (
        None,
        mark(owner, key),
    ):
        return False
    return (
        key in inventory
        if inventory is not None
        else mark_of(live) is not None and applied_by_us(live)
    )


def applied_by_us(live: Body) -> bool:
    """Whether the object has an Apply entry of our field manager, which a copy lacks."""
    return ownership.owned_fields(live) is not None


def labelled(live: Body, owner: str) -> bool:
    """Whether the object has our label."""
    return ownership.owner_of(live) == owner
