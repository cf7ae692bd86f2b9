"""The agents that Git requires on a node before it gets work."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gitops_ds.apimachinery import daemonsets, node_eligibility
from gitops_ds.apimachinery.node_eligibility import Placer
from gitops_ds.apimachinery.rollouts import proofs, rollout_annotations, target_revisions
from gitops_ds.model import names, startup_taints
from gitops_ds.model.daemonset import DaemonSet, Pod
from gitops_ds.model.live import Revision
from gitops_ds.model.objects import Body, Key

NO_HASHES: frozenset[str] = frozenset()


class PodTemplates(msgspec.Struct, frozen=True):
    """The templates whose pods count as the agent, by the hashes of pods; None for any. `target`
    are those of the template of a rollout in progress, of which only the pods that the rollout made
    count. `stuck` is the reason why only a person brings a template to further nodes, else empty.
    """

    accepted: frozenset[str] | None = None
    target: frozenset[str] = NO_HASHES
    stuck: str = ""


class RequiredAgent(msgspec.Struct, frozen=True):
    """A required agent: where its pods belong, and which of them count. `since` is when it was
    first seen to be missing in the cluster, in seconds since 1970, 0 for one that is there.
    """

    key: Key
    uid: str
    placer: Placer
    min_ready_seconds: int = 0
    templates: PodTemplates = PodTemplates()
    since: float = 0.0

    def counts(self, pod: Pod) -> bool:
        """Whether a pod is the agent. A pod of the target without the label of its rollout is of an
        edit of the DaemonSet, and may be on a node whose stage is not open.
        """
        if self.templates.accepted is None or pod.hash in self.templates.accepted:
            return True
        return pod.hash in self.templates.target and names.ROLLOUT in pod.labels


def is_required(daemonset: DaemonSet, in_git: bool = False) -> bool:
    """Whether a node waits for the agent: by its annotation, or because Git requires it while the
    annotation is not applied, or was removed. One that is being deleted makes no further pods.
    """
    return (
        (in_git or startup_taints.is_required(daemonset.annotations))
        and not daemonset.deleting
        and daemonset.selector is not None
    )


def read(daemonset: DaemonSet, revisions: Sequence[Revision]) -> RequiredAgent:
    """The required agent that is this DaemonSet, with the revisions of its namespace."""
    templates = _templates(daemonset, revisions)
    if daemonset.suspended:
        templates = PodTemplates(templates.accepted, templates.target, "it is suspended")
    placer = node_eligibility.read(daemonset.template)
    return RequiredAgent(
        daemonset.key, daemonset.uid, placer, daemonset.min_ready_seconds, templates
    )


def unapplied(body: Body, since: float) -> RequiredAgent:
    """The required agent of a DaemonSet in Git that the cluster does not have since a time."""
    daemonset = daemonsets.daemonset_of(body)
    templates = PodTemplates(NO_HASHES, stuck="its DaemonSet is not applied")
    placer = node_eligibility.read(daemonset.template)
    return RequiredAgent(daemonset.key, daemonset.uid, placer, templates=templates, since=since)


def _templates(daemonset: DaemonSet, revisions: Sequence[Revision]) -> PodTemplates:
    """Without a rollout policy every pod of the DaemonSet counts. With one, pods of the target
    exist only on nodes of an opened stage; after a halt they count no longer.

    While another writer has the annotation of what is proven, no pod counts.
    """
    annotations = daemonset.annotations
    if names.ROLLOUT_POLICY not in annotations and names.PROVEN not in annotations:
        return PodTemplates()
    edited = set(rollout_annotations.edited(daemonset))
    if names.PROVEN in edited:
        return PodTemplates(NO_HASHES)
    target = target_revisions.target_of(daemonset, revisions)
    if target is None or names.TARGET in edited:
        return PodTemplates(proofs.hashes_in_force(proofs.in_force(annotations), revisions))
    if not target.staged:
        return PodTemplates(target.proven)
    record = target_revisions.record_of(revisions, target)
    if record.halt is not None:
        stuck = f"its rollout is halted: stage {record.halt.stage}: {record.halt.message}"
        return PodTemplates(target.proven, stuck=stuck)
    if record.early:
        return PodTemplates(target.proven | target.hashes, target.hashes - target.proven)
    return PodTemplates(target.proven, target.hashes - target.proven)
