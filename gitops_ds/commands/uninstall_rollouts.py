"""Removes staged rollouts from a cluster, the part of `uninstall` besides labels, annotations and
field ownership.

A DaemonSet gets the update strategy that Git has. Its pods at rest are those of its template, so
none restarts; in mid-rollout the DaemonSet controller replaces the pinned pods by pods of the
proven template.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from gitops_ds import errors
from gitops_ds.apimachinery import pods, revisions
from gitops_ds.apimachinery.rollouts import target_revisions
from gitops_ds.model import names
from gitops_ds.model.cluster import Cluster, Selection
from gitops_ds.model.objects import CONTROLLER_REVISION, DAEMONSET, POD, Body, Key, Resource

_DEFAULT = {"type": "RollingUpdate"}


def operations(body: Body) -> Iterator[dict[str, Any]]:
    """The JSON patch that gives a DaemonSet the update strategy in Git; empty without an annotation
    that contains it.
    """
    text = (body["metadata"].get("annotations") or {}).get(names.UPDATE_STRATEGY)
    if body.get("kind") != DAEMONSET.kind or text is None:
        return
    name = names.UPDATE_STRATEGY.replace("/", "~1")
    yield {"op": "remove", "path": f"/metadata/annotations/{name}"}
    with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
        strategy = msgspec.json.decode(str(text), type=dict[str, Any])
        yield {"op": "replace", "path": "/spec/updateStrategy", "value": strategy or _DEFAULT}


async def remove(cluster: Cluster, namespace: str, daemonsets: Collection[Key]) -> None:
    """Deletes target revisions and gated pods of DaemonSets in a namespace, and removes the
    metadata of their pinned pods.

    Raises ClusterError.
    """
    for body in (await cluster.list(CONTROLLER_REVISION, Selection(namespace=namespace))).items:
        revision = revisions.revision_of(body)
        owner = target_revisions.daemonset_of(revision) if revision is not None else None
        if revision is None or owner is None or target_revisions.is_promoted(revision):
            continue
        if _key(namespace, owner.name) in daemonsets:
            await _delete(cluster, CONTROLLER_REVISION, body)
    pinned = await cluster.list(POD, Selection(namespace=namespace, labels=names.ROLLOUT))
    for body in pinned.items:
        pod = pods.pod_of(body)
        if pod.owner is None or _key(namespace, pod.owner.name) not in daemonsets:
            continue
        if pod.gated:
            await _delete(cluster, POD, body)
            continue
        removed = {"labels": {names.ROLLOUT: None}, "annotations": {names.RELEASED: None}}
        with contextlib.suppress(errors.NotFound):
            patch = {"metadata": {"uid": pod.uid, **removed}}
            await cluster.patch(POD, namespace, pod.name, patch)


def _key(namespace: str, name: str) -> Key:
    return Key(DAEMONSET.group, DAEMONSET.kind, namespace, name)


async def _delete(cluster: Cluster, resource: Resource, body: Body) -> None:
    metadata = body["metadata"]
    with contextlib.suppress(errors.NotFound):
        await cluster.delete(
            resource, str(metadata["namespace"]), str(metadata["name"]), uid=str(metadata["uid"])
        )
