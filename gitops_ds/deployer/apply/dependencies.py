"""Waits for the dependencies of a change: ready agents, and the end of deleted DaemonSets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from gitops_ds import errors
from gitops_ds.apimachinery import daemonsets
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.objects import DAEMONSET, Key
from gitops_ds.model.sources.bundle import Bundle

POLL_SECONDS = 1.0


class Dependencies(msgspec.Struct, frozen=True):
    """Waits, with a time limit, for agents to be ready and for DaemonSets to be gone.

    Each method returns the reasons of a failure, or an empty string.
    """

    agents: Callable[[Sequence[str]], Awaitable[str]]
    ends: Callable[[Sequence[Key]], Awaitable[str]]


def of(cluster: Cluster, bundle: Bundle, patience: float) -> Dependencies:
    """The dependencies within a bundle; `patience` is the time limit in seconds."""

    async def agents(needed: Sequence[str]) -> str:
        keys = [
            key
            for key, manifest in bundle.manifests.items()
            if manifest.agent in needed and key.kind == "DaemonSet"
        ]
        return await _wait(patience, keys, lambda key: _not_ready(cluster, key))

    async def ends(keys: Sequence[Key]) -> str:
        return await _wait(patience, keys, lambda key: _not_gone(cluster, key))

    return Dependencies(agents, ends)


async def _wait(
    patience: float, keys: Sequence[Key], reason: Callable[[Key], Awaitable[str]]
) -> str:
    """The remaining reasons at the time limit; empty as soon as no key has one."""
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        reasons = [text for key in keys if (text := await _retryable(reason, key))]
        if not reasons or asyncio.get_running_loop().time() >= deadline:
            return "; ".join(reasons)
        await asyncio.sleep(POLL_SECONDS)


async def _retryable(reason: Callable[[Key], Awaitable[str]], key: Key) -> str:
    """As `reason`; a retryable error is a reason to wait, as long as this replica leads."""
    try:
        return await reason(key)
    except errors.NotLeading:
        raise
    except errors.ClusterError as error:
        if not error.retryable:
            raise
        return f"{key}: {error}"


async def _not_gone(cluster: Cluster, key: Key) -> str:
    try:
        await cluster.get(DAEMONSET, key.namespace, key.name)
    except errors.NotFound:
        return ""
    return f"the pods of {key} are not gone yet"


async def _not_ready(cluster: Cluster, key: Key) -> str:
    try:
        status = daemonsets.rollout_status(await cluster.get(DAEMONSET, key.namespace, key.name))
    except errors.NotFound:
        return f"{key} does not exist"
    return "" if status.done else f"{key}: {status.message}"
