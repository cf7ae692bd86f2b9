"""Creates an object of the service in a namespace that may not exist yet."""

from __future__ import annotations

import contextlib

from gitops_ds.core import errors
from gitops_ds.core.cluster import Cluster
from gitops_ds.core.objects import NAMESPACE, Body, Resource


async def create(cluster: Cluster, resource: Resource, body: Body) -> Body:
    """The created object; its namespace is created first if it is missing. Raises ClusterError."""
    try:
        return await cluster.create(resource, body)
    except errors.NotFound:
        name = body["metadata"]["namespace"]
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        with contextlib.suppress(errors.AlreadyExists):
            await cluster.create(NAMESPACE, space)
        return await cluster.create(resource, body)
