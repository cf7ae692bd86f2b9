"""The reason why pods that another controller creates are refused, from its events, which are read
only while nodes wait for a pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gitops_ds import errors
from gitops_ds.controller import pod_warnings
from gitops_ds.fleet import failed_create_events
from gitops_ds.fleet.tracker import StatusTracker
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.objects import Key

EVERY = 20.0  # seconds between two reads; a pod that waits for a shorter time is being created


class PodCreateFailureWatcher:
    """Passes the reasons to `tracker`. `clock` returns seconds since 1970."""

    def __init__(
        self, cluster: Cluster, tracker: StatusTracker, clock: Callable[[], float]
    ) -> None:
        self._cluster, self._tracker, self._clock = cluster, tracker, clock

    async def run(self) -> None:
        """Runs until it is cancelled; returns without permission to list events."""
        waited, may = frozenset[Key](), False
        while True:
            await asyncio.sleep(EVERY)
            waiting = {
                agent.key: agent
                for agent in self._tracker.agents()
                if failed_create_events.waits(agent.health)
            }
            # Only agents that also waited at the previous read: a pod in creation is not a failure.
            if still := [agent for key, agent in waiting.items() if key in waited]:
                try:
                    may = may or await pod_warnings.may_list(self._cluster)
                    if not may:
                        return
                    reasons = await failed_create_events.read(self._cluster, self._clock())
                except errors.Forbidden:
                    return
                except errors.ClusterError:
                    continue
                for agent in still:
                    self._tracker.refuse(agent.key, reasons.get(agent.seen.daemonset.uid, ""))
            for key in waited - waiting.keys():
                self._tracker.refuse(key, "")
            waited = frozenset(waiting)
