"""Waits for rollouts, as `kubectl rollout status` does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from gitops_ds import errors
from gitops_ds.apimachinery import rollout_status
from gitops_ds.client import connect
from gitops_ds.model.bundle import ClusterFacts
from gitops_ds.model.change import Operation, Plan
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.objects import DAEMONSET, Key

POLL_SECONDS = 1.0


async def for_rollouts(
    connection: connect.Connection,
    facts: ClusterFacts,
    plan: Plan,
    seconds: float,
    say: Callable[[str], None],
) -> int:
    """0 when every DaemonSet of the plan is rolled out; raises TimedOut with what is missing."""
    keys = [
        change.key
        for change in plan.changes
        if change.key.kind == "DaemonSet" and change.operation is not Operation.DELETE
    ]
    async with connect.opened(connection, facts) as cluster:
        await rolled_out(cluster, keys, seconds, say)
    return 0


async def rolled_out(
    cluster: Cluster, keys: Sequence[Key], seconds: float, say: Callable[[str], None]
) -> None:
    """Returns when each DaemonSet is rolled out at its present generation. Errors that pass by
    themselves are said and tried again.

    Raises TimedOut with what is missing, and ClusterError for what only a person can mend.
    """
    loop = asyncio.get_running_loop()
    left, deadline, told = list(keys), loop.time() + seconds, dict.fromkeys(keys, "")
    while left:
        for key in list(left):
            seen = await _seen(cluster, key)
            if seen.message != told[key]:
                say(f"{key}: {seen.message}")
                told[key] = seen.message
            if seen.done:
                left.remove(key)
        if left and loop.time() >= deadline:
            missing = "; ".join(f"{key}: {told[key]}" for key in left)
            raise errors.TimedOut(f"not rolled out after {seconds:g} seconds: {missing}")
        if left:
            await asyncio.sleep(POLL_SECONDS)


async def _seen(cluster: Cluster, key: Key) -> rollout_status.RolloutStatus:
    try:
        return rollout_status.judge(await cluster.get(DAEMONSET, key.namespace, key.name))
    except errors.ClusterError as error:
        if not error.retryable:
            raise
        return rollout_status.RolloutStatus(False, f"{error}; tried again")
