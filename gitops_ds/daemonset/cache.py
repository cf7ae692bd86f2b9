"""The objects of the four watches, indexed for the observation of one DaemonSet.

Its input are events, its output keys of DaemonSets to reconcile; it makes no decisions. Pods and
nodes are kept parsed, with only the fields that decisions need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from gitops_ds.core.cluster import EventType
from gitops_ds.core.daemonset import DaemonSet, Owner, Pod
from gitops_ds.core.decision import Decision, Observation
from gitops_ds.core.live import Node, Revision
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, NODE, POD, Body, Key, Resource
from gitops_ds.core.values import replace
from gitops_ds.daemonset import claims, indexes
from gitops_ds.daemonset.memory import LAPSES_AFTER, DaemonSetMemories, PendingWrites
from gitops_ds.kube.apimachinery import (
    daemonsets,
    foreign_bodies,
    nodes,
    pods,
    revisions,
)
from gitops_ds.kube.apimachinery.node_eligibility import Placement, Placers
from gitops_ds.rollouts.state import daemonset_statements, target_revisions

WATCHED = (NODE, DAEMONSET, CONTROLLER_REVISION, POD)


class Cache:
    """The objects of one cluster. One writer (the watches and the executor), read by `observe`.

    `by_node` is an index of pods by node, if it is set before the first list. `attested` returns a
    revision of a DaemonSet with the annotations that count.
    """

    def __init__(self) -> None:
        self.by_node: indexes.PodsByNode | None = None
        self.gated = indexes.GatedPods()
        self.attested: Callable[[DaemonSet, Revision], Revision] = lambda _, revision: revision
        self._daemonsets: dict[Key, DaemonSet] = {}
        self._nodes: dict[str, Node] = {}
        self._sorted_nodes: tuple[Node, ...] | None = None
        self._pods: indexes.Owned[Pod] = indexes.Owned(lambda pod: pod.uid, indexes.scope_of_pod)
        self._busy = indexes.BusyNodes()
        self._revision_uids: dict[tuple[str, str], str] = {}  # by namespace and name
        # by UID of a DaemonSet: the name of its template's revision
        self._wanted: dict[str, tuple[Body, int | None, str]] = {}
        self._revisions: indexes.Owned[Revision] = indexes.Owned(
            lambda revision: revision.uid, indexes.scope_of_revision
        )
        self._written_pods: PendingWrites[Pod] = PendingWrites()
        self._written_revisions: PendingWrites[Revision] = PendingWrites()
        self._written_daemonsets: PendingWrites[DaemonSet] = PendingWrites()
        self._placers = Placers()
        self._memories = DaemonSetMemories()
        self._listed: set[Resource] = set()
        self._moved: set[Key] = set()

    @property
    def synced(self) -> bool:
        """Whether all four kinds were listed once."""
        return len(self._listed) == len(WATCHED)

    @property
    def keys(self) -> tuple[Key, ...]:
        """The known DaemonSets, sorted."""
        return tuple(sorted(self._daemonsets))

    def is_reduced(self, key: Key) -> bool:
        """Whether the DaemonSet is known, with the fields of an object of others only."""
        return key in self._daemonsets and foreign_bodies.is_reduced(self._daemonsets[key].raw)

    def take_moved(self) -> set[Key]:
        """The DaemonSets whose observation changed since the last call, for any cause.

        These are more than the ones that need a reconciliation: own writes count, and changes of
        nodes that affect no placement.
        """
        moved, self._moved = self._moved, set()
        return moved

    def asks(self, resource: Resource) -> None:
        """A request for a list of this kind, or for the cluster's version, begins."""
        if (written := self._written_of(resource)) is not None:
            written.asks()

    def answered(self, resource: Resource, version: str) -> set[Key]:
        """The version at which the watch continues; returns the DaemonSets that may be affected."""
        written = self._written_of(resource)
        if written is None or not written.answered(version):
            return set()
        self._moved |= set(self._daemonsets)
        return set(self._daemonsets)

    def replace(self, resource: Resource, items: Iterable[Body], version: str) -> set[Key]:
        """Replaces all known objects of a kind by a list; objects that are not in it are gone. All
        DaemonSets need a reconciliation.
        """
        self._listed.add(resource)
        touched, moved = set(self._daemonsets), True
        if resource == DAEMONSET:
            fresh = [daemonsets.daemonset_of(body) for body in items]
            self._daemonsets = {daemonset.key: daemonset for daemonset in fresh}
            self._written_daemonsets.reset(version)
            self._memories.forget_all_but({daemonset.uid for daemonset in fresh})
            self._placers, self._wanted = Placers(), {}  # of the templates of earlier objects
        elif resource == NODE:
            by_name = {node.name: node for node in map(nodes.node_of, items)}
            if self.by_node is not None:
                self.by_node.touch(by_name.keys() | self._nodes.keys())
            if moved := by_name != self._nodes:
                self._nodes, self._sorted_nodes = by_name, None
                self._memories.forget_nodes(self._memories.nodes - by_name.keys())
        elif resource == POD:
            for pod in self._pods.replace(map(pods.pod_of, items)):
                self._vanish(pod)
            self._busy.replace(self._pods)
            self.gated.replace(self._pods)
            if self.by_node is not None:
                self.by_node.replace(self._pods)
            self._written_pods.reset(version)
        elif resource == CONTROLLER_REVISION:
            parsed = [r for r in map(revisions.revision_of, items) if r is not None]
            self._revisions.replace(parsed)
            self._revision_uids = {(indexes.scope_of_revision(r)[1], r.name): r.uid for r in parsed}
            self._written_revisions.reset(version)
        touched |= set(self._daemonsets)
        if moved:
            self._moved |= touched
        return touched

    def apply(self, resource: Resource, type: EventType, body: Body, version: str) -> set[Key]:
        """Handles one event; returns the DaemonSets that may be affected."""
        if type is EventType.BOOKMARK:
            self._advance(resource, version)
            return set()
        gone = type is EventType.DELETED
        keys: set[Key] = set()
        if resource == POD:
            uid = str((body.get("metadata") or {}).get("uid") or "")
            own = self._written_pods.at(uid, version)
            keys = self._pod(own or pods.pod_of(body), gone)
        elif resource == NODE:
            keys = self._node(nodes.node_of(body), gone)
        elif resource == DAEMONSET:
            keys = self._daemonset(daemonsets.daemonset_of(body), gone)
        elif (revision := revisions.revision_of(body)) is not None:
            keys = self._revision(revision, gone)
        self._advance(resource, version)
        self._moved |= keys
        return keys

    def wrote(self, resource: Resource, body: Body, now: float) -> None:
        """Keeps the reply to an own write until its watch has shown it."""
        metadata = body.get("metadata") or {}
        uid, version = str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or "")
        if not uid:
            return
        if resource == POD:
            pod = pods.pod_of(body)
            self._written_pods.wrote(uid, pod, version, now)
            self.gated.changed(pod)
            self._moved |= self._owners(pod.owner, pod.namespace)
        elif resource == CONTROLLER_REVISION:
            revision = revisions.revision_of(body)
            if revision is not None:
                self._written_revisions.wrote(uid, revision, version, now)
                self._moved |= self._owners(
                    revisions.owner_of(revision), indexes.scope_of_revision(revision)[1]
                )
        elif resource == DAEMONSET:
            daemonset = daemonsets.daemonset_of(body)
            self._written_daemonsets.wrote(uid, daemonset, version, now)
            self._moved.add(daemonset.key)

    def remember(self, daemonset: DaemonSet, decision: Decision) -> None:
        """Keeps the back-offs of a decision; those of an earlier generation of the DaemonSet are
        dropped.
        """
        if decision.backoffs:
            self._memories.of(daemonset).backoffs.update(decision.backoffs)

    def observe(self, key: Key, now: float) -> Observation | None:
        """The observation of one DaemonSet; None if it does not exist, or not all kinds were listed
        yet.
        """
        daemonset = self._daemonsets.get(key)
        if daemonset is None or not self.synced:
            return None
        for written in (self._written_pods, self._written_revisions, self._written_daemonsets):
            written.lapse(now)
        daemonset = self._written_daemonsets.get(daemonset.uid) or daemonset
        memory = self._memories.of(daemonset)
        memory.lapse(now)
        if self._sorted_nodes is None:
            self._sorted_nodes = tuple(self._nodes[name] for name in sorted(self._nodes))
        return Observation(
            now=now,
            daemonset=daemonset,
            nodes=self._sorted_nodes,
            pods=tuple(sorted(self._candidate_pods(daemonset), key=lambda pod: pod.name)),
            revisions=tuple(sorted(self.revisions_of(daemonset), key=lambda r: (r.number, r.name))),
            backoffs=dict(memory.backoffs),
            vanished=dict(memory.vanished),
            namesake=self._namesake(daemonset),
            unshown=self._unshown(daemonset, now),
        )

    def pods_of(self, daemonset: DaemonSet) -> Sequence[Pod] | None:
        """Its own pods and the orphans that it selects; None before all kinds were listed."""
        return self._candidate_pods(daemonset) if self.synced else None

    def daemonset(self, key: Key) -> DaemonSet | None:
        """The DaemonSet after the own writes; None if it is unknown."""
        known = self._daemonsets.get(key)
        return known and (self._written_daemonsets.get(known.uid) or known)

    @property
    def daemonsets(self) -> Iterable[DaemonSet]:
        """The known DaemonSets."""
        return self._daemonsets.values()

    @property
    def uids(self) -> Set[str]:
        """The UIDs of all DaemonSets and revisions; none before all kinds were listed."""
        if not self.synced:
            return frozenset()
        return {known.uid for known in self.daemonsets} | set(self._revision_uids.values())

    def with_uids(self, uids: Set[str]) -> set[Key]:
        """The DaemonSets with these UIDs, or with revisions that have them."""
        revisions_of = self._revisions.candidates
        return {
            key
            for key, daemonset in self._daemonsets.items()
            if daemonset.uid in uids
            or any(revision.uid in uids for revision in revisions_of(daemonset.uid, key.namespace))
        }

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""
        return self._nodes

    def find(self, key: Key) -> tuple[DaemonSet | None, Sequence[Revision]]:
        """A DaemonSet with its revisions; None if it does not exist."""
        daemonset = self._daemonsets.get(key)
        return daemonset, () if daemonset is None else self.revisions_of(daemonset)

    @property
    def busy_nodes(self) -> frozenset[str]:
        """The nodes with pods other than those of DaemonSets and static pods."""
        return self._busy.names

    def arrived(self, since: Mapping[str, float]) -> Mapping[str, str]:
        """By node, the first pod that was bound to it since a time and has not ended. It visits
        every pod.
        """
        return indexes.first_bound(self._pods, since)

    def _unshown(self, daemonset: DaemonSet, now: float) -> int:
        """The number of recently created pods that the watch has not shown yet."""
        return sum(
            1
            for uid, pod in self._written_pods
            if indexes.scope_of_pod(pod)[0] == daemonset.uid
            and self._pods.get(uid) is None
            and now - pod.created < LAPSES_AFTER
        )

    def _namesake(self, daemonset: DaemonSet) -> Revision | None:
        """A revision that is not the DaemonSet's, with the name of this template's revision."""
        template, count, name = self._wanted.get(daemonset.uid, (None, None, ""))
        if template != daemonset.template or count != daemonset.collision_count:
            name = revisions.name_for(daemonset)
            self._wanted[daemonset.uid] = daemonset.template, daemonset.collision_count, name
        written = {revision.name: revision for _, revision in self._written_revisions}
        uid = self._revision_uids.get((daemonset.key.namespace, name), "")
        namesake = written.get(name) or self._revisions.get(uid)
        return None if namesake is None or self._counts(daemonset, namesake) else namesake

    def _counts(self, daemonset: DaemonSet, revision: Revision) -> bool:
        """Whether the DaemonSet owns the revision, or selects it as an orphan."""
        owner, namespace = indexes.scope_of_revision(revision)
        return owner == daemonset.uid or (
            not owner and claims.selects(daemonset, namespace, revisions.labels_of(revision))
        )

    def _candidate_pods(self, daemonset: DaemonSet) -> list[Pod]:
        """Its own pods and the orphans that it selects, after the own writes."""
        candidates = self._written_pods.overlay(
            self._pods.candidates(daemonset.uid, daemonset.key.namespace), lambda pod: pod.uid
        )
        return [
            pod
            for pod in candidates
            if (
                claims.selects(daemonset, pod.namespace, pod.labels)
                if pod.owner is None
                else pod.owner.uid == daemonset.uid
            )
        ]

    def revisions_of(self, daemonset: DaemonSet) -> list[Revision]:
        """The revisions of a DaemonSet: its own ones, and orphans that it selects."""
        candidates = self._revisions.candidates(daemonset.uid, daemonset.key.namespace)
        overlaid = self._written_revisions.overlay(candidates, lambda revision: revision.uid)
        return [
            self.attested(daemonset, revision)
            for revision in overlaid
            if self._counts(daemonset, revision)
        ]

    def _advance(self, resource: Resource, version: str) -> None:
        if (written := self._written_of(resource)) is not None:
            written.advance(version)

    def _written_of(self, resource: Resource) -> PendingWrites[Any] | None:
        if resource == POD:
            return self._written_pods
        if resource == CONTROLLER_REVISION:
            return self._written_revisions
        return self._written_daemonsets if resource == DAEMONSET else None

    def _daemonset(self, daemonset: DaemonSet, gone: bool) -> set[Key]:
        before = self._daemonsets.get(daemonset.key)
        if before is not None and (gone or before.uid != daemonset.uid):
            self._memories.forget(before.uid)
            self._placers.forget(before.uid)
            self._wanted.pop(before.uid, None)
        if gone:
            if before is None or before.uid == daemonset.uid:
                self._daemonsets.pop(daemonset.key, None)
            return {daemonset.key}
        self._daemonsets[daemonset.key] = daemonset
        return (
            set()
            if self._written_daemonsets.at(daemonset.uid, daemonset.version)
            else {daemonset.key}
        )

    def _node(self, node: Node, gone: bool) -> set[Key]:
        """Heartbeats have no effect; labels and taints affect the DaemonSets whose placement they
        change.
        """
        before = self._nodes.get(node.name)
        if gone:
            self._nodes.pop(node.name, None)
            self._memories.forget_nodes((node.name,))
        elif before == node:
            return set()
        else:
            self._nodes[node.name] = node
        if self.by_node is not None:
            self.by_node.touch((node.name,))
        self._sorted_nodes = None
        after = None if gone else node
        every = self._daemonsets.values()
        places = [(it, self._place(it, before), self._place(it, after)) for it in every]
        kept = {Placement.RUN, Placement.KEEP}
        self._moved |= {it.key for it, was, is_now in places if {was, is_now} & kept}
        parks = daemonset_statements.may_have_parked_nodes
        return {
            it.key
            for it, was, is_now in places
            if was is not is_now or (is_now is Placement.RUN and parks(it))
        }

    def _place(self, daemonset: DaemonSet, node: Node | None) -> Placement | None:
        return None if node is None else self._placers.of(daemonset).place(node)

    def _pod(self, pod: Pod, gone: bool) -> set[Key]:
        """An event of a pod affects its owner, and of an orphan all DaemonSets that select it; a
        change of fields that are not kept has no effect.
        """
        before = self._pods.drop(pod.uid) if gone else self._pods.put(pod)
        self._busy.changed(before, None if gone else pod)
        self.gated.changed(pod, gone=gone)
        if self.by_node is not None:
            self.by_node.changed(before, None if gone else pod)
        if gone:
            self._vanish(before or pod)
            # its adoption, which was refused, may have blocked the reconciliation
            orphaned = pod.owner is None
            return (
                self._selecting(pod.namespace, pod.labels)
                if orphaned
                else self._owners(pod.owner, pod.namespace)
            )
        if before is not None and replace(before, version=pod.version) == pod:
            return set()
        keys = self._owners(pod.owner, pod.namespace)
        if before is not None and before.owner != pod.owner:
            keys |= self._owners(before.owner, pod.namespace)
        if pod.owner is None and (
            before is None or before.labels != pod.labels or before.owner is not None
        ):
            keys |= self._selecting(pod.namespace, pod.labels)
        return keys

    def _revision(self, revision: Revision, gone: bool) -> set[Key]:
        """A new revision with an owner needs no reconciliation: the owner made it, or a user edits
        its history.
        """
        before = self._revisions.drop(revision.uid) if gone else self._revisions.put(revision)
        owner, namespace = revisions.owner_of(revision), indexes.scope_of_revision(revision)[1]
        keys = self._owners(revisions.owner_of(before) if before else None, namespace)
        if not gone:
            self._revision_uids[namespace, revision.name] = revision.uid
        else:
            if self._revision_uids.get((namespace, revision.name)) == revision.uid:
                del self._revision_uids[namespace, revision.name]
            keys |= {
                key
                for key in self._daemonsets
                if key.namespace == namespace and revision.name.startswith(f"{key.name}-")
            }
        if (target := target_revisions.daemonset_of(revision)) is not None:
            keys |= self._owners(target, namespace)
        elif owner is not None and (gone or before is not None):
            keys |= self._owners(owner, namespace)
        if owner is None:
            keys |= self._selecting(namespace, revisions.labels_of(revision))
        self._moved |= self._owners(owner, namespace)
        return keys

    def _selecting(self, namespace: str, labels: Mapping[str, str]) -> set[Key]:
        return {
            daemonset.key
            for daemonset in self._daemonsets.values()
            if claims.selects(daemonset, namespace, labels)
        }

    def _owners(self, owner: Owner | None, namespace: str) -> set[Key]:
        """The DaemonSet of a controller reference, if it exists and has that UID."""
        if owner is None or owner.kind != DAEMONSET.kind:
            return set()
        key = Key(DAEMONSET.group, DAEMONSET.kind, namespace, owner.name)
        daemonset = self._daemonsets.get(key)
        return {key} if daemonset is not None and daemonset.uid == owner.uid else set()

    def _vanish(self, pod: Pod) -> None:
        is_owned = pod.node in self._nodes and self._owners(pod.owner, pod.namespace)
        if is_owned and pod.owner is not None:
            self._memories.note_vanished(pod.owner.uid, pod.node, pod.uid)
