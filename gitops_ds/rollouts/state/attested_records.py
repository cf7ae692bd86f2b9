"""The annotations of a ControllerRevision that the service alone writes: the record of a rollout,
its approvals and its proof.

They are kept where kubectl and other tools see them, and who may write the object may write them
too, under any name of a field manager. So they count only if the service has stored their digest;
any other one is handled as a deleted one. The content of a ControllerRevision never changes, so its
UID identifies the template, and an annotation that was copied to another revision does not count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gitops_ds.core.live import Revision
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import revisions
from gitops_ds.rollouts.state import keys, target_revisions

# By annotation: the last part of the key of its digests.
WRITTEN_BY_US = {
    keys.ROLLOUT_RECORD: "record",
    keys.APPROVALS: "approvals",
    keys.PROOF: "proof",
}
_LENGTH = 32  # hexadecimal digits

Digests = Mapping[str, frozenset[str]]


class RecordWrite(msgspec.Struct, frozen=True):
    """A text that replaces `before` in an annotation of the revision with a UID."""

    uid: str
    annotation: str
    text: str
    before: str = ""

    @classmethod
    def of_approvals(cls, uid: str, text: str, before: str) -> RecordWrite:
        """The write of the approvals of a rollout."""
        return cls(uid, keys.APPROVALS, text, before)

    @property
    def patch(self) -> dict[str, Any]:
        """The merge patch of the revision."""
        return {"metadata": {"uid": self.uid, "annotations": {self.annotation: self.text}}}

    @property
    def key(self) -> str:
        """The key of its digests."""
        return key_of(self.uid, self.annotation)


def key_of(uid: str, annotation: str) -> str:
    """The key of the digests of an annotation, one of a ConfigMap's data."""
    return f"{uid}.{WRITTEN_BY_US[annotation]}"


def records_in(patch: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The annotations of this kind that a merge patch of a revision writes, each with its text."""
    for name, text in patch["metadata"]["annotations"].items():
        if name in WRITTEN_BY_US:
            yield name, text


def uid_of(key: str) -> str:
    """The UID of the object in a key."""
    return key.rpartition(".")[0]


def after(write: RecordWrite, known: Digests) -> frozenset[str]:
    """The digests of an annotation before its write: of the new text, and of the present one if it
    counts, since the write may not happen.
    """
    present = known.get(write.key, frozenset())
    digests = digests_of(write.annotation, write.text)
    return present if digests <= present else digests | (present & {digest(write.before)})


def digests_of(annotation: str, text: str) -> frozenset[str]:
    """The digests under which a text counts; of a record with a halt also that of the same record
    without it, which `gitops-ds release` writes.
    """
    found = {digest(text)}
    if annotation == keys.ROLLOUT_RECORD:
        record = target_revisions.decoded(text)
        if record.halt is not None:
            found.add(digest(target_revisions.encoded(replace(record, halt=None))))
    return frozenset(found)


def attested(revision: Revision, known: Digests) -> Revision:
    """The revision with the texts of these annotations that the service wrote; others are empty."""
    annotations = revisions.annotations_of(revision)
    forged = [
        name
        for name in WRITTEN_BY_US
        if name in annotations
        and digest(str(annotations[name])) not in known.get(key_of(revision.uid, name), ())
    ]
    return revisions.with_annotations(revision, dict.fromkeys(forged, "")) if forged else revision


def digest(text: str) -> str:
    """The digest of a text, without a space."""
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]
