"""Why pods are refused where another controller makes them: its events, looked at only while nodes
wait for a pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gitops_ds import errors
from gitops_ds.apimachinery import builtin_resources
from gitops_ds.fleet import failed_create_events
from gitops_ds.fleet.tracker import StatusTracker
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.objects import EVENT, Key

EVERY = 20.0  # seconds between two looks; who waits for a shorter time is on the way
_REVIEW = builtin_resources.RESOURCES["authorization.k8s.io", "SelfSubjectAccessReview"]


class PodCreateFailureWatcher:
    """Tells `tracker` what it finds. `clock` gives seconds since 1970."""

    def __init__(
        self, cluster: Cluster, tracker: StatusTracker, clock: Callable[[], float]
    ) -> None:
        """Nothing is asked for yet."""
        self._cluster, self._tracker, self._clock = cluster, tracker, clock

    async def run(self) -> None:
        """Looks until it is cancelled, or may not."""
        waited, may = frozenset[Key](), False
        while True:
            await asyncio.sleep(EVERY)
            waiting = {
                agent.key: agent
                for agent in self._tracker.agents()
                if failed_create_events.waits(agent.health)
            }
            # At once twice: a pod that only comes is no question.
            if still := [agent for key, agent in waiting.items() if key in waited]:
                try:
                    may = may or await self._may()
                    if not may:
                        return
                    told = await failed_create_events.read(self._cluster, self._clock())
                except errors.Forbidden:
                    return
                except errors.ClusterError:
                    continue
                for agent in still:
                    self._tracker.refuse(agent.key, told.get(agent.seen.daemonset.uid, ""))
            for key in waited - waiting.keys():
                self._tracker.refuse(key, "")
            waited = frozenset(waiting)

    async def _may(self) -> bool:
        """Whether we may list events: asked, so that no refused request of ours stands in the audit
        log.
        """
        asked = {"verb": "list", "group": EVENT.group, "resource": EVENT.plural}
        body = {
            "apiVersion": _REVIEW.api_version,
            "kind": _REVIEW.kind,
            "metadata": {},
            "spec": {"resourceAttributes": asked},
        }
        return bool(
            ((await self._cluster.create(_REVIEW, body)).get("status") or {}).get("allowed")
        )
