"""The state of DaemonSets that is in no object; a restart loses it, which is harmless.

The back-off between two deletions of failed pods on one node is upstream's (failedPodsBackoff of
daemon_controller.go).
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from gitops_ds.model.daemonset import DaemonSet
from gitops_ds.model.decision import FailedPodBackoff

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
