"""Previews of the pods of DaemonSets whose change may affect pods, from a list of each one's
pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from gitops_ds import errors
from gitops_ds.apimachinery import daemonsets, pods
from gitops_ds.daemonset import preview
from gitops_ds.model.cluster import Cluster, Selection
from gitops_ds.model.daemonset import DaemonSet
from gitops_ds.model.decision import Observation
from gitops_ds.model.live import Live
from gitops_ds.model.objects import POD, Key
from gitops_ds.model.values import replace


async def with_pods(cluster: Cluster, live: Live, keys: Iterable[Key]) -> Live:
    """Adds a preview of these DaemonSets' pods after a change: one list each.

    A DaemonSet without a pod, or with pods that may not be listed, has a preview only by its nodes;
    none if nodes are unknown.
    """
    if live.nodes is None:
        return live
    changing = [key for key in keys if key in live.objects]
    observations = await asyncio.gather(*(_seen(cluster, live, key) for key in changing))
    return replace(
        live,
        foresee={
            key: partial(preview.of_change, seen)
            for key, seen in zip(changing, observations, strict=True)
            if seen
        },
    )


async def _seen(cluster: Cluster, live: Live, key: Key) -> Observation | None:
    """The controller's view of a DaemonSet; None without a pod."""
    daemonset = daemonsets.daemonset_of(live.objects[key])
    try:
        listing = await cluster.list(
            POD, Selection(namespace=key.namespace, labels=_selector(daemonset), brief=True)
        )
    except errors.Forbidden:
        return None
    matching = sorted(map(pods.pod_of, listing.items), key=lambda pod: pod.name)
    ours = tuple(pod for pod in matching if pod.owner is None or pod.owner.uid == daemonset.uid)
    seen = Observation(0.0, daemonset, live.nodes or (), ours, live.revisions.get(key, ()))
    return seen if ours and daemonset.selector else None


def _selector(daemonset: DaemonSet) -> str:
    """The part of a selector that a list supports; the rest is compared afterwards."""
    one = [
        requirement
        for requirement in daemonset.selector or ()
        if requirement.operator == "In" and len(requirement.values) == 1
    ]
    return ",".join(f"{requirement.key}={requirement.values[0]}" for requirement in one)
