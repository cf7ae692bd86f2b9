"""What the process remembers of DaemonSets and is in no object; a restart loses it, which is
harmless.

The back-off between two deletions of failed pods on one node is upstream's (failedPodsBackoff of
daemon_controller.go).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.decision import FailedPodBackoff
from gitops_ds.core.objects import version_number

FIRST_DELAY, LONGEST_DELAY = 1.0, 900.0  # seconds
FORGET_AFTER = 2 * LONGEST_DELAY  # seconds without a failure, after which the delay starts again


def next_backoff(last: FailedPodBackoff | None, now: float) -> FailedPodBackoff:
    """The back-off after a further failed pod: twice the last delay, up to the longest one."""
    if last is None or now - last.since > FORGET_AFTER:
        return FailedPodBackoff(now, FIRST_DELAY)
    return FailedPodBackoff(now, min(2 * last.delay, LONGEST_DELAY))


@dataclass(slots=True)
class DaemonSetMemory:
    """The state of one DaemonSet (one UID).

    `backoffs` are those of failed pods by node, of one generation of the DaemonSet; `vanished` maps
    a node to the UID of the last pod that vanished there.
    """

    generation: int = 0
    backoffs: dict[str, FailedPodBackoff] = field(default_factory=dict)
    vanished: dict[str, str] = field(default_factory=dict)

    def lapse(self, now: float) -> None:
        """Drops old back-offs; `now` in seconds since 1970."""
        self.backoffs = {
            node: backoff
            for node, backoff in self.backoffs.items()
            if now - backoff.since <= FORGET_AFTER
        }


class DaemonSetMemories:
    """The state of all DaemonSets, by UID."""

    def __init__(self) -> None:
        self._by_uid: dict[str, DaemonSetMemory] = {}

    def of(self, daemonset: DaemonSet) -> DaemonSetMemory:
        """The state of a DaemonSet; the back-offs of an earlier generation are dropped."""
        memory = self._by_uid.setdefault(daemonset.uid, DaemonSetMemory())
        if memory.generation != daemonset.observed_generation:
            memory.generation, memory.backoffs = daemonset.observed_generation, {}
        return memory

    def note_vanished(self, daemonset: str, node: str, pod: str) -> None:
        """Records a pod (a UID) that vanished from a node, by the UID of its DaemonSet."""
        self._by_uid.setdefault(daemonset, DaemonSetMemory()).vanished[node] = pod

    @property
    def nodes(self) -> Set[str]:
        """The nodes of all states."""
        return {
            node
            for memory in self._by_uid.values()
            for node in (*memory.backoffs, *memory.vanished)
        }

    def forget(self, uid: str) -> None:
        """Drops the state of a DaemonSet."""
        self._by_uid.pop(uid, None)

    def forget_all_but(self, uids: Set[str]) -> None:
        """Drops the state of all other DaemonSets."""
        self._by_uid = {uid: memory for uid, memory in self._by_uid.items() if uid in uids}

    def forget_nodes(self, names: Iterable[str]) -> None:
        """Drops the state of nodes that are gone: in an autoscaled cluster most nodes are."""
        for name in names:
            for memory in self._by_uid.values():
                memory.backoffs.pop(name, None)
                memory.vanished.pop(name, None)


T = TypeVar("T")

LAPSES_AFTER = 300.0  # seconds


class _WriteReply(msgspec.Struct, Generic[T], frozen=True):
    value: T
    version: int
    at: float


class PendingWrites(Generic[T]):
    """Own writes of one kind of object, kept until the watch has shown them, so that decisions are
    safe with a stale cache: the replies by UID, and the version that the watch has reached.

    The reply to a write replaces the object until its watch shows that version. So a pod just
    created exists, one just deleted is terminating, and a status just written is known.

    After a restore of etcd the version of a reply may never be shown, and its object be lost. A
    list is never older than a write that precedes its request; so an earlier reply with a later
    version than the list belongs to the state before the restore, and is dropped. Any other reply
    lapses after five minutes.
    https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list
    """

    def __init__(self) -> None:
        self._passed = 0
        self._replies: dict[str, _WriteReply[T]] = {}
        # a heap: version and UID of each reply, also of dropped ones
        self._order: list[tuple[int, str]] = []
        self._earlier: dict[str, _WriteReply[T]] = {}

    def wrote(self, uid: str, value: T, version: str, now: float) -> None:
        """Keeps a reply, unless the watch has shown as much already."""
        number = version_number(version)
        reply = self._replies.get(uid)
        if number > self._passed and (reply is None or reply.version <= number):
            self._replies[uid] = _WriteReply(value, number, now)
            heapq.heappush(self._order, (number, uid))

    def advance(self, version: str) -> None:
        """Records the version that the watch has reached."""
        self._passed = max(self._passed, version_number(version))
        while self._order and self._order[0][0] <= self._passed:
            number, uid = heapq.heappop(self._order)
            reply = self._replies.get(uid)
            if reply is not None and reply.version == number:
                del self._replies[uid]

    def asks(self) -> None:
        """Records the start of a request for the cluster's version, or for a list."""
        self._earlier = dict(self._replies)

    def answered(self, version: str) -> bool:
        """Records the response to that request; returns whether replies of a lost state were
        dropped.
        """
        lost = {
            uid: reply
            for uid, reply in self._earlier.items()
            if reply.version > version_number(version)
        }
        before, self._earlier = len(self._replies), {}
        self._replies = {
            uid: reply for uid, reply in self._replies.items() if lost.get(uid) is not reply
        }
        return len(self._replies) < before

    def reset(self, version: str) -> None:
        """Handles a new list, possibly of a restored state."""
        self.answered(version)
        self._passed = 0
        self.advance(version)

    def lapse(self, now: float) -> None:
        """Drops replies that are too old, or from the future after the clock was set back."""
        self._replies = {
            uid: reply for uid, reply in self._replies.items() if 0 <= now - reply.at < LAPSES_AFTER
        }

    def get(self, uid: str) -> T | None:
        """The reply that replaces this object."""
        reply = self._replies.get(uid)
        return None if reply is None else reply.value

    def at(self, uid: str, version: str) -> T | None:
        """The reply, if it is this version of the object, and the watch has not shown it yet."""
        reply = self._replies.get(uid)
        return None if reply is None or reply.version != version_number(version) else reply.value

    def __iter__(self) -> Iterator[tuple[str, T]]:
        """All replies that replace objects, by UID."""
        return ((uid, reply.value) for uid, reply in self._replies.items())

    def overlay(self, watched: list[T], uid_of: Callable[[T], str]) -> Iterable[T]:
        """The watched objects, replaced by their replies, and the replies that no watch has shown
        yet.
        """
        if not self._replies:
            return watched
        return {**{uid_of(item): item for item in watched}, **dict(self)}.values()


WINDOW = 60.0  # seconds
OFTEN = 5  # writes of the same target in a window before reconciliations are delayed


class Repetition:
    """The number of recent writes of each target of one DaemonSet; a target is an object, or a node
    for its pod.

    It finds writes that succeed without effect: a created object vanishes, a patch is reverted. The
    API server accepts each of them, so no error delays them. An example: a DaemonSet is deleted
    while DaemonSets cannot be read; the garbage collector removes each pod that is created for it,
    and each deletion causes the next reconciliation.
    """

    def __init__(self) -> None:
        self._targets: dict[Hashable, tuple[int, float]] = {}
        self._swept = 0.0

    def note(self, targets: Iterable[Hashable], now: float) -> bool:
        """Whether a target was written too often; `now` in seconds, never decreasing."""
        if now - self._swept >= WINDOW:  # not for each decision: a rollout has thousands of targets
            self._targets = {
                target: seen for target, seen in self._targets.items() if now - seen[1] < WINDOW
            }
            self._swept = now
        often = False
        for target in targets:
            count, since = self._targets.get(target, (0, now))
            count, since = (1, now) if now - since >= WINDOW else (count + 1, since)
            self._targets[target] = (count, since)
            often = often or count > OFTEN
        return often
