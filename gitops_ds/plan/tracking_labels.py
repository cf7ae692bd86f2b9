"""The labels and annotations that are added to an object: its owner and its commit.

They are never in the pod template, which would restart pods. The commit changes only with the
object: a commit that changes only other files causes no write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gitops_ds.apimachinery import defaults
from gitops_ds.model import names
from gitops_ds.model.objects import Body
from gitops_ds.model.sources.bundle import Manifest
from gitops_ds.model.values import replace
from gitops_ds.plan import object_owner


class Stamp(msgspec.Struct, frozen=True):
    """The metadata of the applied commit; `repository` has no credentials, `owner` is a label
    value, `uid` that of the object that a manifest comes from. `tracks`: the tracking ID of the
    object is written.
    """

    owner: str
    repository: str = ""
    commit: str = ""
    subject: str = ""
    uid: str = ""
    tracks: bool = True


def of(manifest: Manifest, stamp: Stamp) -> Stamp:
    """The stamp for one manifest: a manifest from a cluster object has that object's version."""
    holder = manifest.holder
    return (
        stamp
        if holder is None
        else replace(stamp, commit=holder.commit, subject=holder.words, uid=holder.uid)
    )


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
        annotations[names.TRACKING_ID] = object_owner.mark(stamp.owner, manifest.key)
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


def as_live(stamp: Stamp, live: Body) -> Stamp:
    """The stamp with the commit and the subject of the live object.

    An object without a tracking ID, from before it existed, gets it with its next change; the ID
    alone is not a change.
    """
    annotations: Mapping[str, str] = (live.get("metadata") or {}).get("annotations") or {}
    commit, subject, uid = (
        annotations.get(name, "") for name in (names.COMMIT, names.CHANGE_CAUSE, names.TEMPLATE_UID)
    )
    return Stamp(
        stamp.owner, stamp.repository, commit, subject, uid, tracks=names.TRACKING_ID in annotations
    )
