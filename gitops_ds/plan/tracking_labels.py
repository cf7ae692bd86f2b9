"""What we write onto an object besides its manifest: who owns it, and which commit it comes from.

Never inside the pod template: that would restart pods. The commit moves only with the object: a
commit that touches other files writes nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gitops_ds.model import names
from gitops_ds.model.objects import Body
from gitops_ds.model.sources.bundle import Manifest
from gitops_ds.model.values import replace
from gitops_ds.plan import inventory


class Stamp(msgspec.Struct, frozen=True):
    """What is known of the commit that is applied; `repository` is free of credentials, `owner` a
    label value, `uid` that of the object that a manifest was taken from. `tracks`: the mark that is
    bound to the object is written.
    """

    owner: str
    repository: str = ""
    commit: str = ""
    subject: str = ""
    uid: str = ""
    tracks: bool = True


def of(manifest: Manifest, stamp: Stamp) -> Stamp:
    """The stamp for one manifest: what was taken from an object of the cluster carries that
    object's version.
    """
    holder = manifest.holder
    return (
        stamp
        if holder is None
        else replace(stamp, commit=holder.commit, subject=holder.words, uid=holder.uid)
    )


def stamped(manifest: Manifest, stamp: Stamp) -> dict[str, Any]:
    """The manifest's body with our label and our mark, and on a DaemonSet the annotations of the
    contract.

    What was taken from an object of the cluster has them on every kind: which object it was is
    known from there alone.
    """
    body = dict(manifest.body)
    metadata = dict(body.get("metadata") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), names.OWNER_LABEL: stamp.owner}
    annotations = dict(metadata.get("annotations") or {})
    if stamp.tracks:
        annotations[names.TRACKING_ID] = inventory.mark(stamp.owner, manifest.key)
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
    """The stamp with the commit and the subject that the live object carries.

    An object without a mark, from before the mark was written, gets it with its next change and not
    on its own account.
    """
    annotations: Mapping[str, str] = (live.get("metadata") or {}).get("annotations") or {}
    commit, subject, uid = (
        annotations.get(name, "") for name in (names.COMMIT, names.CHANGE_CAUSE, names.TEMPLATE_UID)
    )
    return Stamp(
        stamp.owner, stamp.repository, commit, subject, uid, tracks=names.TRACKING_ID in annotations
    )
