"""The labels and annotations that an apply adds to an object, for its owner and its commit, and the
owner of a live object: ours may be deleted if it is in the inventory, without the mark of another.

The owner label alone proves nothing: controllers copy labels (the endpoints controller those of a
Service, replicators those of a Secret), and so does `kubectl get -o yaml | sed | kubectl apply`.
The annotation `gitops-ds.io/tracking-id` identifies the object that it was written to, like that of
Argo CD: https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/

They are never in the pod template, which would restart pods. The commit of a DaemonSet is the one
that gave its template: a commit that changes only other files causes no write.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import Enum
from typing import Any

import msgspec

from gitops_ds.core import names
from gitops_ds.core.objects import Body, Key, annotations_of, labels_of
from gitops_ds.core.rollouts.template_cause import TemplateCause
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import defaults
from gitops_ds.ownership import field_managers


class Hold(Enum):
    """The kind of owner of a live object."""

    OURS = "ours"
    FREE = "free"
    FOREIGN = "foreign"


class LiveOwner(msgspec.Struct, frozen=True):
    """The owner of a live object; `name` describes a foreign one."""

    hold: Hold
    name: str = ""


def holder(live: Body, owner: str) -> LiveOwner:
    """The owner: ours by the owner label; foreign by a mark of Helm, Flux, Argo CD, kapp or another
    gitops-ds; else free.
    """
    labels, annotations = labels_of(live), annotations_of(live)
    marked = labels.get(names.OWNER_LABEL)
    if marked is not None:
        return (
            LiveOwner(Hold.OURS)
            if marked == owner
            else LiveOwner(Hold.FOREIGN, f"gitops-ds of {marked}")
        )
    if release := annotations.get("meta.helm.sh/release-name"):
        return LiveOwner(Hold.FOREIGN, f"Helm release {release}")
    if tracking := annotations.get("argocd.argoproj.io/tracking-id"):
        return LiveOwner(Hold.FOREIGN, f"Argo CD application {tracking.partition(':')[0]}")
    for tool in ("kustomize", "helm"):
        if name := labels.get(f"{tool}.toolkit.fluxcd.io/name"):
            return LiveOwner(Hold.FOREIGN, f"Flux {tool} {name}")
    if app := labels.get("kapp.k14s.io/app"):
        return LiveOwner(Hold.FOREIGN, f"kapp app {app}")
    return LiveOwner(Hold.FREE)


def owner_of(live: Body) -> str:
    """The id of the gitops-ds owner in its label; empty without one."""
    return str(labels_of(live).get(names.OWNER_LABEL) or "")


def mark(owner: str, key: Key) -> str:
    """The value of the annotation on this object."""
    return f"{owner}:{key.group}/{key.kind}:{key.namespace}/{key.name}"


def mark_of(live: Body) -> str | None:
    """The annotation of a live object; None for an object from before the annotation existed."""
    value = annotations_of(live).get(names.TRACKING_ID)
    return None if value is None else str(value)


def may_delete(key: Key, live: Body, owner: str, inventory: Set[Key] | None) -> bool:
    """Whether the object is ours to delete.

    It has our label, no mark of another object, and is in the inventory. If the inventory was lost
    (None), it needs our mark and fields that we applied.
    """
    if holder(live, owner).hold is not Hold.OURS or mark_of(live) not in (
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
    return field_managers.owned_fields(live) is not None


def labelled(live: Body, owner: str) -> bool:
    """Whether the object has our label."""
    return owner_of(live) == owner


class Stamp(msgspec.Struct, frozen=True):
    """The metadata of the applied commit; `repository` has no credentials, `owner` is a label
    value, `uid` that of the object that a manifest comes from. `tracks`: the tracking ID of the
    object is written. `causes` are the commits that gave DaemonSets their templates, which are
    written in place of the applied one.
    """

    owner: str
    repository: str = ""
    commit: str = ""
    subject: str = ""
    uid: str = ""
    tracks: bool = True
    causes: Mapping[Key, TemplateCause] = {}


def stamp_of(manifest: Manifest, stamp: Stamp) -> Stamp:
    """The stamp for one manifest: a DaemonSet has the commit that gave its template, a manifest
    from a cluster object that object's version.
    """
    holder, cause = manifest.holder, stamp.causes.get(manifest.key)
    if holder is not None:
        return replace(stamp, commit=holder.commit, subject=holder.words, uid=holder.uid)
    if cause is not None:
        return replace(stamp, commit=cause.commit, subject=cause.subject)
    return stamp


def stamped(manifest: Manifest, stamp: Stamp) -> dict[str, Any]:
    """The manifest's body as it is applied: with our label and tracking ID, and on a DaemonSet the
    annotations of the contract.

    Manifests from cluster objects have them on every kind, because only they identify that object.
    """
    body = dict(defaults.without_string_data(manifest.body))
    metadata = dict(body.get("metadata") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), names.OWNER_LABEL: stamp.owner}
    annotations = dict(metadata.get("annotations") or {})
    if stamp.tracks:
        annotations[names.TRACKING_ID] = mark(stamp.owner, manifest.key)
    if manifest.key.kind == "DaemonSet" or manifest.holder is not None:
        annotations |= {
            names.PATH: manifest.origin.base.file,
            **({names.REPOSITORY: stamp.repository} if stamp.repository else {}),
            **({names.COMMIT: stamp.commit} if stamp.commit else {}),
            **(
                {names.TEMPLATE_UID: stamp.uid} if stamp.uid and manifest.holder is not None else {}
            ),
            **(
                {names.CHANGE_CAUSE: stamp.subject}
                if stamp.subject and names.CHANGE_CAUSE not in annotations
                else {}
            ),
        }
    if annotations:
        metadata["annotations"] = annotations
    return {**body, "metadata": metadata}


def stamp_of_live(stamp: Stamp, live: Body) -> Stamp:
    """The stamp with the commit and the subject of the live object.

    An object without a tracking ID, from before it existed, gets it with its next change; the ID
    alone is not a change.
    """
    annotations = annotations_of(live)
    commit, subject, uid = (
        annotations.get(name, "") for name in (names.COMMIT, names.CHANGE_CAUSE, names.TEMPLATE_UID)
    )
    return Stamp(
        stamp.owner, stamp.repository, commit, subject, uid, tracks=names.TRACKING_ID in annotations
    )
