"""The newest warning event of each pod that is not well: only it has the reason why a volume is not
mounted or a probe fails.

Events are listed for single pods, at most `AT_ONCE` in `EVERY` seconds, and less often the longer a
pod is not well; once more for the pods whose failure halts a rollout, because a halt keeps its
message. The API server keeps events for an hour, outside of its watch cache, so a watch of
all events of the cluster would cost more than all other watches.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gitops_ds.core import errors
from gitops_ds.core.cluster import ClusterReader, Selection
from gitops_ds.core.daemonset import Pod, PodCause
from gitops_ds.core.decision import Observation
from gitops_ds.core.objects import EVENT, Key
from gitops_ds.daemonset import node_pods
from gitops_ds.kube.apimachinery import pod_cause
from gitops_ds.rollouts.decisions import failures

EVERY = 5.0  # seconds between two rounds
AT_ONCE = 10  # pods of one round
OF_ONE = 20  # pods of one DaemonSet; a halt and its revert commit name no more nodes
FIRST, LONGEST = 10.0, 300.0  # seconds until the first read of a pod, between later ones at most
SECONDS, AT_HALT = 10.0, 2.0  # for one round, and for the read that a halt waits for


@dataclass(slots=True)
class _UnwellPod:
    """A pod that is not well: the time of its next read, and the seconds from that to the one
    after it.
    """

    key: Key
    pod: Pod
    due: float
    pause: float = FIRST
    cause: PodCause | None = None


class PodWarnings:
    """The warnings of all pods that are not well. `changed` is called for the DaemonSet of a new
    one; `clock` returns seconds since 1970.
    """

    def __init__(
        self, cluster: ClusterReader, clock: Callable[[], float], changed: Callable[[Key], None]
    ) -> None:
        self._cluster, self._clock, self._changed = cluster, clock, changed
        self._followed: dict[Key, dict[str, _UnwellPod]] = {}
        self._may: bool | None = None  # whether listing events is allowed, None if unknown

    def of(self, seen: Observation) -> Mapping[str, PodCause]:
        """The last warnings by the UID of the pod; the pods that are not well now are followed from
        now on, all others no longer.
        """
        key = seen.daemonset.key
        before = self._followed.pop(key, {})
        pods = unwell(seen)
        if not pods:
            return {}
        followed = {uid: one for uid, one in before.items() if uid in pods}
        for uid, pod in pods.items():
            if len(followed) == OF_ONE:
                break
            followed.setdefault(uid, _UnwellPod(key, pod, first_read(pod)))
        self._followed[key] = followed
        return _causes(followed)

    def known(self, key: Key) -> Mapping[str, PodCause]:
        """The last warnings of the pods of a DaemonSet that are followed, by the UID of the pod."""
        return _causes(self._followed.get(key, {}))

    def forget(self, key: Key) -> None:
        """Ends the reads for a DaemonSet."""
        self._followed.pop(key, None)

    async def newest(self, key: Key, nodes: Container[str]) -> Mapping[str, PodCause]:
        """The warnings of the followed pods of a DaemonSet, after a read of those on these nodes.
        Without permission, after an error and after `AT_HALT` seconds they are the known ones.
        """
        followed = self._followed.get(key, {})
        on_nodes = (
            followed_pod for followed_pod in followed.values() if followed_pod.pod.node in nodes
        )
        await self._read(list(itertools.islice(on_nodes, AT_ONCE)), AT_HALT)
        return _causes(followed)

    async def run(self) -> None:
        """Runs until it is cancelled; returns without permission to list events."""
        while self._may is not False:
            await asyncio.sleep(EVERY)
            now = self._clock()
            due = [
                followed_pod
                for all in self._followed.values()
                for followed_pod in all.values()
                if followed_pod.due <= now
            ]
            due = sorted(due, key=lambda one: one.due)[:AT_ONCE]
            for followed_pod in due:
                followed_pod.due, followed_pod.pause = (
                    now + followed_pod.pause,
                    min(2 * followed_pod.pause, LONGEST),
                )
            await self._read(due, SECONDS)

    async def _read(self, pods: Sequence[_UnwellPod], seconds: float) -> None:
        """Reads the warnings of pods, within a time; an error leaves the known ones."""
        if not pods or self._may is False:
            return
        try:
            async with asyncio.timeout(seconds):
                self._may = self._may or await may_list(self._cluster)
                if self._may:
                    self._store(pods, await read(self._cluster, [pod.pod for pod in pods]))
        except errors.Forbidden:
            self._may = False
        except (errors.ClusterError, TimeoutError):
            pass  # the next read of each pod is due later

    def _store(self, read: Iterable[_UnwellPod], causes: Mapping[str, PodCause]) -> None:
        changed = set[Key]()
        for warning in read:
            cause = causes.get(warning.pod.uid, warning.cause)
            if cause != warning.cause:
                warning.cause = cause
                changed.add(warning.key)
        for key in sorted(changed):
            self._changed(key)


def _causes(followed: Mapping[str, _UnwellPod]) -> Mapping[str, PodCause]:
    return {uid: one.cause for uid, one in followed.items() if one.cause is not None}


def unwell(seen: Observation) -> Mapping[str, Pod]:
    """The pods of a DaemonSet that are not well, by their UID."""
    waiting = node_pods.waiting(seen.pods)
    return {
        pod.uid: pod
        for pod in seen.pods
        if not (pod.terminating or pod.uid in waiting)
        and (not pod.ready or pod.trouble or pod.settles_at > seen.now)
    }


def first_read(pod: Pod) -> float:
    """When the warnings of a pod that is not well are read first, in seconds since 1970: a pod that
    does not fail may only be starting.
    """
    return 0.0 if pod.trouble or pod.restarts else failures.started(pod) + FIRST


async def read(cluster: ClusterReader, pods: Iterable[Pod]) -> Mapping[str, PodCause]:
    """The newest warnings of pods, by their UID. Raises ClusterError."""
    causes = {}
    for pod in pods:
        fields = f"involvedObject.uid={pod.uid},type=Warning"
        listed = await cluster.list(EVENT, Selection(pod.namespace, fields=fields))
        if (cause := pod_cause.newest_warning(listed.items)) is not None:
            causes[pod.uid] = cause
    return causes


async def may_list(cluster: ClusterReader) -> bool:
    """Whether listing events is allowed. The access review avoids a refused request in the audit
    log. Raises ClusterError.
    """
    return await cluster.may("list", EVENT)
