"""The epochs of a cache: in an epoch every kind belongs to one history of the cluster.

An epoch ends when a watch may continue in another history: etcd was restored from a backup. Then a
watch gets 410 Expired, since a restore marks the earlier versions as compacted (`etcdutl snapshot
restore --bump-revision --mark-compacted`), or a version goes back. An ordinary compaction and a
restart of the API server look the same, and so do a watch that was silent for minutes and an outage
of the API server: a restored cluster may have higher versions than before. Each watch finds out at
another time, so until every kind is listed again the objects of one kind may be those of before,
and the others those of after: a DaemonSet of before beside pods of after has pods that seem to be
of an abandoned template.
https://kubernetes.io/docs/tasks/administer-cluster/configure-upgrade-etcd/#restoring-an-etcd-cluster

Versions are compared within a kind only: a kind may have an etcd of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from gitops_ds.core.objects import Resource, version_number


class Epochs:
    """The epoch of each kind, by its last list. `number` counts the epochs."""

    def __init__(self, kinds: Sequence[Resource]) -> None:
        self._kinds = kinds
        self.number = 0
        self._requests: dict[Resource, int] = {}
        self._listed: dict[Resource, int] = {}
        self._followed: dict[Resource, int] = {}

    @property
    def unlisted(self) -> tuple[Resource, ...]:
        """The kinds that were not listed since the epoch began; empty if all objects are of one
        history.
        """
        return tuple(kind for kind in self._kinds if self._listed.get(kind, -1) < self.number)

    def asks(self, resource: Resource) -> None:
        """A request for a list, or for the cluster's version, begins."""
        self._requests[resource] = self.number

    def lists(self, resource: Resource, version: str) -> None:
        """A list was received. One that is older than what was known of its kind begins an epoch,
        and belongs to it.
        """
        requested = self._requests.get(resource, self.number)
        is_new = self._goes_back(resource, version)
        self._listed[resource] = self.number if is_new else requested
        self._followed[resource] = version_number(version)

    def follows(self, resource: Resource, version: str) -> None:
        """The version of an event. One that goes back begins an epoch."""
        self._goes_back(resource, version)
        self._followed[resource] = version_number(version)

    def answered(self, resource: Resource, version: str) -> None:
        """The cluster's version, which is not older than what was known. The watch reaches it
        later.
        """
        self._goes_back(resource, version)

    def _goes_back(self, resource: Resource, version: str) -> bool:
        """Whether a version is older than what was known of its kind, which begins an epoch."""
        number = version_number(version)
        is_older = 0 < number < self._followed.get(resource, 0)
        if is_older:
            self.begin()
        return is_older

    def lost(self, resource: Resource) -> None:
        """The history of a watch is gone (410 Expired), or unknown after its silence or an outage,
        which begins an epoch.
        """
        if resource in self._listed:
            self.begin()

    def begin(self) -> None:
        """Begins an epoch: every kind must be listed again. The versions of before say nothing
        about those of after.
        """
        self.number += 1
        self._followed = {}
