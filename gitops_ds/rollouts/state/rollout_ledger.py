"""The digests of the records of rollouts that the service wrote, and the announcements of the
DaemonSets that it applied, in a ConfigMap of its namespace.

The digest is stored before the record is written, beside that of the present record: after a crash
in between, the record is one of the two. That of a new DaemonSet, whose UID only the answer to its
creation has, is stored after it; each reconciliation of its deployer stores it again if it is
missing. Each annotation of a revision has a key of its own, and so has each DaemonSet, so a write
is a patch of this key. Keys of objects that no longer exist are removed by the next write.

A cluster without the ConfigMap has records of a version that stored no digests: the first leader
adopts those that exist, once.

A record that the API server refuses can't state this itself, as it does for other refused writes:
its message is here, for commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set

import msgspec

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import Cluster, ClusterReader, PatchType, Selection
from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.decision import Observation
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import CONFIG_MAP, CONTROLLER_REVISION, DAEMONSET, Body, labels_of
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import daemonsets, revisions
from gitops_ds.kube.client import namespaced_create
from gitops_ds.rollouts.state import announced_daemonsets, attested_records, target_revisions
from gitops_ds.rollouts.state.announced_daemonsets import DaemonSetWrite
from gitops_ds.rollouts.state.attested_records import WRITTEN_BY_US, Digests, RecordWrite

CONFIG_MAP_NAME = "gitops-ds.rollouts"
_REFUSAL = ".refusal"  # the end of the key of a message; it begins with the UID of the revision


async def read(cluster: ClusterReader, namespace: str) -> Digests | None:
    """The stored digests, None without the ConfigMap. Raises ClusterError."""
    data = await _data(cluster, namespace)
    return None if data is None else _digests_in(data)


class StoredLedger(msgspec.Struct, frozen=True):
    """The content of the ConfigMap, for commands: the digests and announcements, and by the UID of
    a target revision why the API server refuses the record of its rollout. `owners` are those of
    all announced DaemonSets.
    """

    digests: Digests = {}
    refusals: Mapping[str, str] = {}
    owners: Set[str] = frozenset()

    def attested(self, daemonset: DaemonSet, revision: Revision) -> Revision:
        """A revision of a DaemonSet with what the service knows about it."""
        if self._decides(daemonset):
            revision = attested_records.attested(revision, self.digests)
        message = self.refusals.get(revision.uid)
        return target_revisions.unrecorded(revision, message) if message else revision

    def announces(self, daemonset: DaemonSet) -> bool:
        """Whether the service applied the DaemonSet."""
        return bool(announced_daemonsets.owners(daemonset.uid, self.digests))

    def counting(self, daemonset: DaemonSet, own_revisions: Iterable[Revision]) -> DaemonSet:
        """A DaemonSet with what its deployer announced, nothing if it did not. One of an owner that
        announced none is as it is: no service applies it.
        """
        if not self._decides(daemonset):
            return daemonset
        return announced_daemonsets.as_announced(daemonset, own_revisions, self.digests)

    def _decides(self, daemonset: DaemonSet) -> bool:
        """Whether a service applied the DaemonSet, or it has the label of an owner whose service
        announces each one that it applies.
        """
        return (
            self.announces(daemonset)
            or labels_of(daemonset.raw).get(names.OWNER_LABEL) in self.owners
        )

    def as_announced(self, seen: Observation) -> Observation:
        """The observation of a DaemonSet with what its deployer announced, nothing if it did not;
        of its revisions `attested` removes what does not count before.
        """
        found = announced_daemonsets.as_announced(seen.daemonset, seen.revisions, self.digests)
        return replace(seen, daemonset=found)


async def stored(cluster: ClusterReader, namespace: str) -> StoredLedger | None:
    """The stored ledger, None without the ConfigMap. Raises ClusterError."""
    try:
        return stored_in(await cluster.get(CONFIG_MAP, namespace, CONFIG_MAP_NAME))
    except errors.NotFound:
        return None


def stored_in(body: Body) -> StoredLedger:
    """The ledger in its ConfigMap."""
    data = _data_of(body)
    digests = _digests_in(data)
    return StoredLedger(digests, _refusals_in(data), announced_daemonsets.all_owners(digests))


async def _data(cluster: ClusterReader, namespace: str) -> Mapping[str, str] | None:
    try:
        return _data_of(await cluster.get(CONFIG_MAP, namespace, CONFIG_MAP_NAME))
    except errors.NotFound:
        return None


def _data_of(body: Body) -> Mapping[str, str]:
    return {key: str(text) for key, text in (body.get("data") or {}).items()}


def _digests_in(data: Mapping[str, str]) -> Digests:
    return {
        key: frozenset(text.split()) for key, text in data.items() if not key.endswith(_REFUSAL)
    }


def _refusals_in(data: Mapping[str, str]) -> dict[str, str]:
    return {
        key.removesuffix(_REFUSAL): text for key, text in data.items() if key.endswith(_REFUSAL)
    }


class RolloutLedger:
    """The digests in memory and in the cluster, of the leader. `whole` are the objects of which a
    list has all fields; `announced` gets the UIDs of DaemonSets whose announcements changed, and
    `existing` returns those of all revisions and DaemonSets, none before they are known.
    """

    def __init__(
        self, cluster: Cluster, namespace: str, whole: Callable[[Body], bool] | None = None
    ) -> None:
        self._cluster, self.namespace, self._whole = cluster, namespace, whole
        self._known: dict[str, frozenset[str]] | None = None
        self._shown: set[str] = set()  # UIDs of objects that existed
        self.announced: Callable[[Set[str]], None] = lambda _: None
        self.existing: Callable[[], Set[str]] = frozenset
        self._refusals: dict[str, str] = {}

    async def begin(self) -> None:
        """Reads the digests before the first decision of a leader. Raises ClusterError."""
        data = await _data(self._cluster, self.namespace)
        stored = await self._adopt() if data is None else _digests_in(data)
        self._refusals = _refusals_in(data or {})
        self._shown = {attested_records.uid_of(key) for key in stored}
        self._known = dict(stored)

    def end(self) -> None:
        """Drops the digests: another leader writes them."""
        self._known = None

    def attested(self, revision: Revision) -> Revision:
        """The revision with only those records that the service wrote; none of them count before
        `begin`.
        """
        return attested_records.attested(revision, self._known or {})

    def as_announced(self, daemonset: DaemonSet, own_revisions: Iterable[Revision]) -> DaemonSet:
        """The DaemonSet with what its deployer announced."""
        return announced_daemonsets.as_announced(daemonset, own_revisions, self._known or {})

    def owners(self, uid: str) -> Set[str]:
        """The owners of a DaemonSet; none if nothing was announced."""
        return announced_daemonsets.owners(uid, self._known or {})

    @property
    def is_begun(self) -> bool:
        """Whether this process leads, and has read the digests."""
        return self._known is not None

    async def announce(self, write: RecordWrite) -> None:
        """Stores the digest of a text before it is written. Raises ClusterError."""
        if self._known is not None:
            digests = attested_records.after(write, self._known)
            await self._store(self._known, {write.key: digests})

    async def announce_daemonsets(self, writes: Iterable[DaemonSetWrite]) -> None:
        """Stores what is stated on DaemonSets. Raises ClusterError."""
        if (known := self._known) is not None:
            announcements = {write.key: write.announcement(known) for write in writes}
            if changed := await self._store(known, announcements):
                self.announced({attested_records.uid_of(key) for key in changed})

    async def _store(
        self, known: dict[str, frozenset[str]], wanted: Mapping[str, frozenset[str]]
    ) -> Set[str]:
        """Stores these digests, and returns the keys of those that were others."""
        changed: dict[str, frozenset[str] | None] = {
            key: digests or None
            for key, digests in wanted.items()
            if digests != known.get(key, frozenset())
        }
        if not changed:
            return changed.keys()
        gone = self._gone(self.existing())
        changed |= dict.fromkeys(gone)
        refused = self._refusals.keys() & map(attested_records.uid_of, gone)
        texts = {key: _text(digests) if digests else None for key, digests in changed.items()}
        await self._save(texts | dict.fromkeys(uid + _REFUSAL for uid in refused))
        for key, digests in changed.items():
            known.pop(key, None)
            known |= {key: digests} if digests else {}
        for uid in refused:
            del self._refusals[uid]
        return changed.keys()

    async def refused(self, uid: str, message: str) -> None:
        """Stores the first message of the API server that refuses the record of a target revision,
        and removes it when the message is empty. Raises ClusterError.
        """
        if self._known is None or bool(self._refusals.get(uid)) == bool(message):
            return
        await self._save({uid + _REFUSAL: message or None})
        self._refusals[uid] = message

    def _gone(self, existing: Set[str]) -> list[str]:
        """The keys of objects that existed and do not any more. A new one may not be shown yet, so
        its first absence does not count.
        """
        known = self._known or {}
        self._shown |= existing
        return [
            key
            for key in known
            if existing
            and (uid := attested_records.uid_of(key)) in self._shown
            and uid not in existing
        ]

    async def _adopt(self) -> dict[str, frozenset[str]]:
        """The digests of the present records and annotations, stored."""
        selection = Selection(whole=self._whole)
        listed = await self._cluster.list(CONTROLLER_REVISION, selection)
        present = [
            revision
            for revision in map(revisions.revision_of, listed.items)
            if revision is not None
        ]
        adopted = dict(_digests(present))
        listed = await self._cluster.list(DAEMONSET, selection)
        for daemonset in map(daemonsets.daemonset_of, listed.items):
            space = daemonset.key.namespace
            near = (
                revision for revision in present if revision.raw["metadata"]["namespace"] == space
            )
            stated = announced_daemonsets.stated_with(daemonset.raw, near)
            is_whole = self._whole is None or self._whole(daemonset.raw)
            if is_whole and stated[names.OWNER_LABEL]:
                write = DaemonSetWrite(daemonset.uid, stated)
                adopted[write.key] = write.announcement({})
        await self._create(_texts(adopted))
        return adopted

    async def _save(self, changed: Mapping[str, str | None]) -> None:
        patch = {"data": changed}
        try:
            await self._cluster.patch(
                CONFIG_MAP, self.namespace, CONFIG_MAP_NAME, patch, type=PatchType.MERGE
            )
        except errors.NotFound:  # deleted by an administrator
            kept = {**_texts(self._known or {}), **changed}
            await self._create({key: text for key, text in kept.items() if text is not None})

    async def _create(self, data: Mapping[str, str]) -> None:
        body = {
            "apiVersion": CONFIG_MAP.api_version,
            "kind": CONFIG_MAP.kind,
            "metadata": {
                "namespace": self.namespace,
                "name": CONFIG_MAP_NAME,
                "labels": {"app.kubernetes.io/managed-by": "gitops-ds"},
            },
            "data": dict(sorted(data.items())),
        }
        await namespaced_create.create(self._cluster, CONFIG_MAP, body)


def _digests(present: Iterable[Revision]) -> Iterator[tuple[str, frozenset[str]]]:
    for revision in present:
        annotations = revisions.annotations_of(revision)
        for name in WRITTEN_BY_US.keys() & annotations.keys():
            digests = attested_records.digests_of(name, str(annotations[name]))
            yield attested_records.key_of(revision.uid, name), digests


def _texts(digests: Digests) -> dict[str, str]:
    return {key: _text(one) for key, one in digests.items()}


def _text(digests: Set[str]) -> str:
    return " ".join(sorted(digests))
