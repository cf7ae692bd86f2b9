"""The annotations that the service alone writes: of a ControllerRevision the record of a rollout,
its approvals and its proof, of a DaemonSet those that its rollout reads.

They are kept where kubectl and other tools see them, and who may write the object may write them
too, under any name of a field manager. So they count only if the service has stored their digest;
any other one of a revision is handled as a deleted one, of a DaemonSet as an edit. The content of a
ControllerRevision never changes, so its UID identifies the template, and an annotation that was
copied to another revision does not count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from gitops_ds.apimachinery import revisions
from gitops_ds.apimachinery.rollouts import proofs, target_revisions
from gitops_ds.model import names
from gitops_ds.model.daemonset import DaemonSet
from gitops_ds.model.live import Revision
from gitops_ds.model.values import replace

# By annotation: the last part of the key of its digests.
WRITTEN_BY_US = {
    names.ROLLOUT_RECORD: "record",
    names.APPROVALS: "approvals",
    names.PROOF: "proof",
}
_OF_DAEMONSET = "rollout"
_LENGTH = 32  # hexadecimal digits

Digests = Mapping[str, frozenset[str]]


class DaemonSetWrite(msgspec.Struct, frozen=True):
    """The annotations of the DaemonSet with a UID by its deployer, with the template of the target.
    Until they are written, those of `before` count further.
    """

    uid: str
    annotations: Mapping[str, str]
    before: Mapping[str, str] = {}

    @property
    def key(self) -> str:
        """The key of their digests."""
        return key_of_daemonset(self.uid)

    def digests(self, known: Digests) -> frozenset[str]:
        """The digests from now on."""
        present = known.get(self.key, frozenset()) & {*of_daemonset(self.before).values()}
        return present.union(of_daemonset(self.annotations).values())


class RecordWrite(msgspec.Struct, frozen=True):
    """A text that replaces `before` in an annotation of the revision with a UID."""

    uid: str
    annotation: str
    text: str
    before: str = ""

    @property
    def key(self) -> str:
        """The key of its digests."""
        return key_of(self.uid, self.annotation)


def key_of(uid: str, annotation: str) -> str:
    """The key of the digests of an annotation, one of a ConfigMap's data."""
    return f"{uid}.{WRITTEN_BY_US[annotation]}"


def key_of_daemonset(uid: str) -> str:
    """The key of the digests of a DaemonSet's annotations."""
    return f"{uid}.{_OF_DAEMONSET}"


def of_daemonset(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """The digest of each annotation that a rollout reads, also of an absent one; none without a
    rollout policy.
    """
    if not annotations.get(names.ROLLOUT_POLICY):
        return {}
    return {
        name: _digest(f"{name}={annotations.get(name) or ''}") for name in names.READ_BY_ROLLOUTS
    }


def with_target(annotations: Mapping[str, str], template: str) -> Mapping[str, str]:
    """The annotations of a DaemonSet with the identity of the template of its target revision: who
    may write ControllerRevisions may replace it by one of the same name.
    """
    target = annotations.get(names.TARGET)
    return {**annotations, names.TARGET: f"{target} {template}"} if target else annotations


def with_target_of(
    annotations: Mapping[str, str], own_revisions: Iterable[Revision]
) -> Mapping[str, str]:
    """As `with_target`, with the target among the revisions of the DaemonSet."""
    target = annotations.get(names.TARGET)
    named = (one for one in own_revisions if target and one.name == target)
    return with_target(annotations, next((proofs.identity(one.template) for one in named), ""))


def unannounced(
    daemonset: DaemonSet, own_revisions: Iterable[Revision], known: Digests
) -> tuple[str, ...]:
    """The annotations of a DaemonSet with a rollout policy that the deployer did not announce; the
    target also if the revision has another template.
    """
    announced = known.get(key_of_daemonset(daemonset.uid), frozenset())
    digests = of_daemonset(with_target_of(daemonset.annotations, own_revisions))
    return tuple(name for name, digest in digests.items() if digest not in announced)


def uid_of(key: str) -> str:
    """The UID of the object in a key."""
    return key.rpartition(".")[0]


def after(write: RecordWrite, known: Digests) -> frozenset[str]:
    """The digests of an annotation before its write: of the new text, and of the present one if it
    counts, since the write may not happen.
    """
    present = known.get(write.key, frozenset())
    digests = digests_of(write.annotation, write.text)
    return present if digests <= present else digests | (present & {_digest(write.before)})


def digests_of(annotation: str, text: str) -> frozenset[str]:
    """The digests under which a text counts; of a record with a halt also that of the same record
    without it, which `gitops-ds release` writes.
    """
    found = {_digest(text)}
    if annotation == names.ROLLOUT_RECORD:
        record = target_revisions.decoded(text)
        if record.halt is not None:
            found.add(_digest(target_revisions.encoded(replace(record, halt=None))))
    return frozenset(found)


def attested(revision: Revision, known: Digests) -> Revision:
    """The revision with the texts of these annotations that the service wrote; others are empty."""
    annotations = revisions.annotations_of(revision)
    forged = [
        name
        for name in WRITTEN_BY_US
        if name in annotations
        and _digest(str(annotations[name])) not in known.get(key_of(revision.uid, name), ())
    ]
    return revisions.with_annotations(revision, dict.fromkeys(forged, "")) if forged else revision


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]
