"""What a halt is decided by once more before it is recorded: the nodes whose failures cause it, and
the newest warning events of their pods.

Watches of two kinds have no order: the restarts that a reboot causes may arrive before the boot of
their node.
https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Set

from gitops_ds.controller.observer import Observer
from gitops_ds.core.cluster import ClusterReader, Selection
from gitops_ds.core.decision import Observation
from gitops_ds.core.errors import ClusterError
from gitops_ds.core.live import Node
from gitops_ds.core.objects import NODE
from gitops_ds.core.rollouts.staged_rollout import StageInputs
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery.nodes import node_of

SECONDS = 2.0  # for the nodes


async def read(
    cluster: ClusterReader, observer: Observer, seen: Observation, nodes: Set[str]
) -> tuple[Observation, StageInputs | None]:
    """The observation and its inputs after these reads. What cannot be read in time is as known;
    a node that is gone is absent.
    """
    warnings = await observer.pod_warnings.newest(seen.daemonset.key, nodes)
    known: dict[str, tuple[Node, ...]] = {node.name: (node,) for node in seen.nodes}
    with contextlib.suppress(ClusterError, TimeoutError):
        async with asyncio.timeout(SECONDS):
            for name in sorted(nodes):
                selection = Selection(fields=f"metadata.name={name}", brief=True)
                known[name] = tuple(map(node_of, (await cluster.list(NODE, selection)).items))
    seen = replace(seen, nodes=tuple(node for name in sorted(known) for node in known[name]))
    inputs = observer.rollouts.inputs(seen)
    return seen, None if inputs is None else replace(inputs, warnings=warnings)
