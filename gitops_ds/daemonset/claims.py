"""The claims of a DaemonSet on pods and revisions: objects to adopt, objects to release, and the
objects that belong to it.

An orphan belongs to it only once the cluster shows the adoption. Until then no decision depends on
it: the adoption may be refused, once or permanently, and then a foreign pod, or our own pod as its
duplicate, would be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import msgspec

from gitops_ds.core.cluster import Selection
from gitops_ds.core.daemonset import DaemonSet, Owner, Pod
from gitops_ds.core.decision import Action, Adopt, Observation, Release
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import CONTROLLER_REVISION, POD, Key, Resource
from gitops_ds.core.sources.bundle import Requirement
from gitops_ds.kube.apimachinery import label_selector, revisions


def selection(daemonset: DaemonSet) -> Selection:
    """A list with all pods that it selects: by the part of its selector that a list supports."""
    one = (
        requirement
        for requirement in daemonset.selector or ()
        if requirement.operator == "In" and len(requirement.values) == 1
    )
    labels = ",".join(f"{requirement.key}={requirement.values[0]}" for requirement in one)
    return Selection(namespace=daemonset.key.namespace, labels=labels)


class Claim(msgspec.Struct, frozen=True):
    """The objects that the DaemonSet controls and selects, and the writes that adopt or release the
    others.
    """

    pods: tuple[Pod, ...]
    revisions: tuple[Revision, ...]
    actions: tuple[Action, ...]

    @property
    def adopts(self) -> bool:
        """Whether an orphan must be adopted first: the claim is incomplete then, and no other
        decision is allowed.
        """
        return any(isinstance(action, Adopt) for action in self.actions)


def claim(seen: Observation) -> Claim:
    """The claim by the selector of a DaemonSet that is not being deleted."""
    daemonset, selector = seen.daemonset, seen.daemonset.selector or ()
    actions: list[Action] = []
    # by identity: the pods of a revision share their labels (apimachinery/pods)
    labels = {id(pod.labels): pod.labels for pod in seen.pods}
    selected = {id(label) for label in labels.values() if label_selector.all_match(selector, label)}
    pods = tuple(
        pod
        for pod in seen.pods
        if _is_settled(daemonset, selected, pod)
        or _take(
            daemonset,
            selector,
            _ClaimCandidate(POD, pod.name, pod.uid, pod.labels, pod.owner, pod.terminating),
            actions,
        )
    )
    kept = tuple(
        revision
        for revision in seen.revisions
        if _take(daemonset, selector, _of_revision(revision), actions)
    )
    return Claim(pods, kept, tuple(actions))


def _is_settled(daemonset: DaemonSet, selected: Set[int], pod: Pod) -> bool:
    """Whether it belongs to the DaemonSet and stays so; `selected` has the identities of labels. A
    fast test, since it is true for nearly every pod in every reconciliation.
    """
    return pod.owner is not None and pod.owner.uid == daemonset.uid and id(pod.labels) in selected


class _ClaimCandidate(msgspec.Struct, frozen=True):
    resource: Resource
    name: str
    uid: str
    labels: Mapping[str, str]
    owner: Owner | None
    terminating: bool


def _of_revision(revision: Revision) -> _ClaimCandidate:
    labels, owner = revisions.labels_of(revision), revisions.owner_of(revision)
    return _ClaimCandidate(
        CONTROLLER_REVISION, revision.name, revision.uid, labels, owner, revision.deleting
    )


def _take(
    daemonset: DaemonSet,
    selector: tuple[Requirement, ...],
    it: _ClaimCandidate,
    actions: list[Action],
) -> bool:
    """Whether it already belongs to the DaemonSet; adds an adoption or a release to the claim."""
    key = Key(it.resource.group, it.resource.kind, daemonset.key.namespace, it.name)
    matches = label_selector.all_match(selector, it.labels)
    if it.owner is not None:
        if it.owner.uid != daemonset.uid:
            return False
        if not matches:
            actions.append(Release(key, it.uid, "its labels no longer match the selector"))
        return matches
    if not matches or it.terminating:
        return False
    actions.append(Adopt(key, it.uid, "it has no owner, and the selector matches it"))
    return False


def selects(daemonset: DaemonSet, namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether the selector of a DaemonSet matches labels in this namespace."""
    selector = daemonset.selector
    return (
        selector is not None
        and namespace == daemonset.key.namespace
        and label_selector.all_match(selector, labels)
    )
