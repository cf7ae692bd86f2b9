"""Why pods are refused where another controller makes them: its FailedCreate events, looked at only while nodes wait for a pod.

The built-in controller tells of a quota, a policy or a webhook in no status, only in such an event on the DaemonSet. It tries again
after at most 1,000 s, so an older one says nothing any more. https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping

from gitops_ds import errors
from gitops_ds.controller.fleet import Agent
from gitops_ds.controller.standing import Standings
from gitops_ds.kinds import served, timestamps
from gitops_ds.model.cluster import Cluster, Selection
from gitops_ds.model.objects import DAEMONSET, EVENT, Body, Key

EVERY = 20.0  # seconds between two looks; who waits for a shorter time is on the way
STILL = 1_200.0  # seconds for which an event speaks
_FAILED = Selection(fields="reason=FailedCreate,involvedObject.kind=DaemonSet")
_REVIEW = served.RESOURCES["authorization.k8s.io", "SelfSubjectAccessReview"]
_WAITS = frozenset({"NoPod", "Refused"})
_POD = re.compile(r'pods "[^"]*" is ')  # the name of a pod is another one each time


class Complaints:
    """Tells `standings` what it finds. `clock` gives seconds since 1970."""

    def __init__(self, cluster: Cluster, standings: Standings, clock: Callable[[], float]) -> None:
        """Nothing is asked for yet."""
        self._cluster, self._standings, self._clock = cluster, standings, clock

    async def run(self) -> None:
        """Looks until it is cancelled, or may not."""
        waited, may = frozenset[Key](), False
        while True:
            await asyncio.sleep(EVERY)
            waiting = {agent.key: agent for agent in self._standings.agents() if _waits(agent)}
            # At once twice: a pod that only comes is no question.
            if still := [agent for key, agent in waiting.items() if key in waited]:
                try:
                    may = may or await self._may()
                    if not may:
                        return
                    found = (await self._cluster.list(EVENT, _FAILED)).items
                except errors.Forbidden:
                    return
                except errors.ClusterError:
                    continue
                told = latest(found, self._clock() - STILL)
                for agent in still:
                    self._standings.refuse(agent.key, told.get(agent.seen.daemonset.uid, ""))
            for key in waited - waiting.keys():
                self._standings.refuse(key, "")
            waited = frozenset(waiting)

    async def _may(self) -> bool:
        """Whether we may list events: asked, so that no refused request of ours stands in the audit log."""
        asked = {"verb": "list", "group": EVENT.group, "resource": EVENT.plural}
        body = {"apiVersion": _REVIEW.api_version, "kind": _REVIEW.kind, "metadata": {}, "spec": {"resourceAttributes": asked}}
        return bool(((await self._cluster.create(_REVIEW, body)).get("status") or {}).get("allowed"))


def _waits(agent: Agent) -> bool:
    return any(node.reason in _WAITS for node in agent.health.nodes)


def latest(events: Iterable[Body], since: float) -> Mapping[str, str]:
    """The last word about each DaemonSet, by its uid, of those said after `since` (seconds since 1970)."""
    found: dict[str, tuple[float, str]] = {}
    for event in events:
        about = event.get("involvedObject") or {}
        moment = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""
        at = timestamps.seconds(str(moment)) or 0.0
        uid = str(about.get("uid") or "")
        if (
            event.get("reason") == "FailedCreate"
            and about.get("kind") == DAEMONSET.kind
            and at > max(since, found.get(uid, (0.0,))[0])
        ):
            found[uid] = at, _POD.sub("pods are ", str(event.get("message") or "").removeprefix("Error creating: "))
    return {uid: words for uid, (_, words) in found.items()}
