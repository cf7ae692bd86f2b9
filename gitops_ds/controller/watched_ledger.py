"""The ledger of the service that leads, followed by a watch: for commands that watch, and for the
page of a replica that does not lead.

It only reads. Without permission to read the ConfigMap, and in a cluster without it, nothing is
known to be announced, and the annotations count as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Set

from gitops_ds.core import errors
from gitops_ds.core.cluster import ClusterReader, EventType, Listing, Selection, WatchEvent
from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import CONFIG_MAP, Body
from gitops_ds.kube.client import informer
from gitops_ds.kube.client.informer import Failing, InformerEvent
from gitops_ds.rollouts.state import attested_records, rollout_ledger
from gitops_ds.rollouts.state.rollout_ledger import CONFIG_MAP_NAME, StoredLedger

# `cluster` refuses the reader, or has no such API: not an error of the moment.
_UNREADABLE = (errors.Forbidden, errors.Invalid, errors.BadRequest, errors.NotFound)


class WatchedLedger:
    """The stored ledger, current while `run` runs. `changed` gets the UIDs of the objects about
    which another content is known.
    """

    def __init__(
        self, cluster: ClusterReader, namespace: str, changed: Callable[[Set[str]], None]
    ) -> None:
        self._cluster, self._namespace, self._changed = cluster, namespace, changed
        self._stored: StoredLedger | None = None
        self.is_read = asyncio.Event()  # set also if it can't be read

    def attested(self, daemonset: DaemonSet, revision: Revision) -> Revision:
        """A revision of a DaemonSet with what the service knows about it."""
        stored = self._stored
        return revision if stored is None else stored.attested(daemonset, revision)

    def as_announced(self, daemonset: DaemonSet, own_revisions: Iterable[Revision]) -> DaemonSet:
        """The DaemonSet with what its deployer announced."""
        stored = self._stored
        return daemonset if stored is None else stored.counting(daemonset, own_revisions)

    def is_applied(self, daemonset: DaemonSet) -> bool:
        """Whether the service applied the DaemonSet, as far as known."""
        return self._stored is None or self._stored.announces(daemonset)

    async def run(self, chance: Callable[[], float]) -> None:
        """Watches until it is cancelled."""
        which = Selection(namespace=self._namespace, fields=f"metadata.name={CONFIG_MAP_NAME}")
        await informer.run(self._cluster, CONFIG_MAP, which, self._handle, random=chance)

    def _handle(self, event: InformerEvent) -> None:
        match event:
            case Listing(items=items):
                self._set(next(iter(items), None))
            case WatchEvent(type=EventType.DELETED):
                self._set(None)
            case WatchEvent(type=EventType.ADDED | EventType.MODIFIED, object=body):
                self._set(body)
            case Failing(error=error) if isinstance(error, _UNREADABLE):
                self.is_read.set()
            case _:  # bookmarks and versions do not change it; other errors are retried
                pass

    def _set(self, body: Body | None) -> None:
        before, self._stored = self._stored, rollout_ledger.stored_in(body) if body else None
        self.is_read.set()
        if changed := _uids(_content(before).items() ^ _content(self._stored).items()):
            self._changed(changed)


def _content(stored: StoredLedger | None) -> Mapping[str, frozenset[str]]:
    if stored is None:
        return {}
    refusals = {f"{uid}.": frozenset((text,)) for uid, text in stored.refusals.items()}
    return {**stored.digests, **refusals}


def _uids(items: Iterable[tuple[str, frozenset[str]]]) -> Set[str]:
    return {attested_records.uid_of(key) for key, _ in items}
