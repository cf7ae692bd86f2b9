"""The check that no other DaemonSet controller is active, before ours acts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from gitops_ds.core.cluster import Cluster
from gitops_ds.core.errors import AlreadyExists, ClusterError, Refused
from gitops_ds.core.objects import DAEMONSET, Body
from gitops_ds.daemonset import competing_controller
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.kube.client import namespaced_create

# seconds for another controller to write the status of a new DaemonSet; Kubernetes' own takes
# milliseconds
PATIENCE = 3.0
LOOK_EVERY = 0.1


def refusal(manager: str) -> Refused:
    """The error when another controller writes the status of DaemonSets."""
    return Refused(
        f"another DaemonSet controller is active: {manager or 'an unknown manager'} writes the "
        "status of DaemonSets. With powers full ours must be the only one: switch the other off "
        "(kube-controller-manager --controllers=*,-daemonset-controller), or use powers pace"
    )


async def only_one(cluster: Cluster, namespace: str, clock: Callable[[], float]) -> None:
    """Returns if no controller reconciles the probe; the probe of another replica, or one left by a
    crash, is used again.

    `clock` gives seconds since 1970. Raises Refused when another controller reconciles the probe,
    and ClusterError.
    """
    probe = await _made(cluster, namespace)
    # It was reconciled, perhaps long ago: create it again.
    if probe.get("status", {}).get("observedGeneration"):
        await cluster.delete(
            DAEMONSET, namespace, competing_controller.PROBE, uid=probe["metadata"]["uid"]
        )
        probe = await _made(cluster, namespace)
    born = timestamps.seconds(probe["metadata"]["creationTimestamp"])
    wait = PATIENCE - max(0.0, clock() - born) if born is not None else PATIENCE
    deadline = asyncio.get_running_loop().time() + wait
    while True:
        probe = await cluster.get(DAEMONSET, namespace, competing_controller.PROBE)
        if probe.get("status", {}).get("observedGeneration"):
            raise refusal(", ".join(sorted(who for who, _ in competing_controller.counting(probe))))
        if asyncio.get_running_loop().time() >= deadline:
            return
        await asyncio.sleep(LOOK_EVERY)


async def remove(cluster: Cluster, namespace: str) -> None:
    """Deletes the probe if no other replica can depend on it."""
    with contextlib.suppress(ClusterError):
        await cluster.delete(DAEMONSET, namespace, competing_controller.PROBE)


async def _made(cluster: Cluster, namespace: str) -> Body:
    """The probe, new or existing."""
    probe = competing_controller.probe(namespace)
    try:
        return await namespaced_create.create(cluster, DAEMONSET, probe)
    except AlreadyExists:
        return await cluster.get(DAEMONSET, namespace, competing_controller.PROBE)
