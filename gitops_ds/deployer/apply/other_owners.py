"""The other owners of live objects: their description in messages, and the end of those without
objects.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Set

from gitops_ds import errors
from gitops_ds.deployer import source_status_store, state_store
from gitops_ds.deployer.target import DeployTarget
from gitops_ds.git import address
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.deployer_state import DeployerState
from gitops_ds.model.objects import CONFIG_MAP, Body, Key, short
from gitops_ds.plan import object_owner


def of(bodies: Iterable[Body], own: str) -> frozenset[str]:
    """The ids of other owners of objects."""
    return frozenset(map(object_owner.owner_of, bodies)) - {"", own}


async def described(target: DeployTarget, ids: Set[str]) -> Mapping[str, str]:
    """A description of each owner, by its state."""
    return {id: await _described(target, id) for id in sorted(ids)}


async def _described(target: DeployTarget, id: str) -> str:
    try:
        state = await state_store.load(target.cluster, target.namespace, id)
    except errors.ClusterError:
        state = DeployerState()
    if not state.version:
        return f"gitops-ds of {id}, whose state is not in namespace {target.namespace}"
    path = f", path {state.path}" if state.path else ""
    cluster = f", cluster {state.cluster}" if state.cluster else ""
    words = f"gitops-ds of {state.repository}{path}{cluster} (owner {id})"
    if address.same_place(state.repository, target.repository):
        return f"{words}, which is this repository"
    last = state.last_attempted
    if last is None or target.contains is None:
        return words
    try:
        same = await target.contains(last)
    except errors.SourceError:
        return words
    return (
        f"{words}, which has the same history at another address"
        if same
        else f"{words}, another repository: its commit {short(last)} is not in this history"
    )


async def forget_unused(
    target: DeployTarget, ids: Set[str], inventory: Set[Key], now: float
) -> None:
    """Deletes the states and the statuses of owners whose objects are all ours now, unless a
    service follows them.
    """
    for id in sorted(ids):
        with contextlib.suppress(errors.ClusterError):  # the next apply tries again
            await _forget_unused(target, id, inventory, now)


async def _forget_unused(target: DeployTarget, id: str, inventory: Set[Key], now: float) -> None:
    cluster, namespace = target.cluster, target.namespace
    state = await state_store.load(cluster, namespace, id)
    status = (await source_status_store.load_all(cluster, namespace, now)).get(id)
    if not state.version or state.inventory - inventory or (status and status.active):
        return
    names = await state_store.config_maps(cluster, namespace, id)
    for name in (source_status_store.config_map_name(id), *names):
        await _delete(cluster, namespace, name)


async def _delete(cluster: Cluster, namespace: str, name: str) -> None:
    with contextlib.suppress(errors.NotFound):
        await cluster.delete(CONFIG_MAP, namespace, name)
