"""Waits for rollouts, as `kubectl rollout status` does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gitops_ds import errors
from gitops_ds.app import clusters
from gitops_ds.kinds import rollout_status
from gitops_ds.model.bundle import ClusterFacts
from gitops_ds.model.change import Operation, Plan
from gitops_ds.model.objects import DAEMONSET

POLL_SECONDS = 1.0


async def for_rollouts(
    connection: clusters.Connection, facts: ClusterFacts, plan: Plan, seconds: float, say: Callable[[str], None]
) -> int:
    """0 when every DaemonSet of the plan is rolled out; raises TimedOut with what is missing."""
    keys = [change.key for change in plan.changes if change.key.kind == "DaemonSet" and change.operation is not Operation.DELETE]
    loop = asyncio.get_running_loop()
    deadline, told = loop.time() + seconds, dict.fromkeys(keys, "")
    async with clusters.opened(connection, facts) as cluster:
        while keys:
            for key in list(keys):
                try:
                    seen = rollout_status.judge(await cluster.get(DAEMONSET, key.namespace, key.name))
                except errors.ClusterError as error:
                    if not error.retryable:
                        raise
                    seen = rollout_status.RolloutStatus(False, f"{error}; tried again")
                if seen.message != told[key]:
                    say(f"{key}: {seen.message}")
                    told[key] = seen.message
                if seen.done:
                    keys.remove(key)
            if keys and loop.time() >= deadline:
                missing = "; ".join(f"{key}: {told[key]}" for key in keys)
                raise errors.TimedOut(f"not rolled out after {seconds:g} seconds: {missing}")
            if keys:
                await asyncio.sleep(POLL_SECONDS)
    return 0
