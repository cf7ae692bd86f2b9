"""Removes gitops-ds from a cluster: its labels, annotations and field ownership on objects, and its
state.

No pod template changes, so only the pinned pods of an incomplete rollout restart; the only changed
field of a specification is the update strategy that a rollout policy replaced. The inventory of an
owner is deleted last, so that an interrupted run can be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec

from gitops_ds.controller import conflict_probe
from gitops_ds.core import errors, names, startup_taints
from gitops_ds.core.cluster import BRIEF, Cluster, ClusterReader, PatchType, Selection
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.events.notifications import CONFIG_MAP_NAME
from gitops_ds.core.objects import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DAEMONSET,
    LEASE,
    NODE,
    POD,
    Body,
    Key,
    Resource,
    annotations_of,
    key_of,
)
from gitops_ds.core.plain_text import counted
from gitops_ds.core.sources.bundle import Bundle, ClusterFacts
from gitops_ds.deploy import live_state, source_status_store, state_store
from gitops_ds.kube.apimachinery import nodes, pods, revisions
from gitops_ds.ownership import object_owner
from gitops_ds.rollouts.state import daemonset_statements, rollout_ledger, target_revisions
from gitops_ds.status import status_writer

_ATTEMPTS = 10


class Handover(msgspec.Struct, frozen=True):
    """The objects to hand back: the state of each owner, and the resource of each object; `unknown`
    kinds are no longer served.

    `elsewhere` are DaemonSets of owners whose state is in another namespace, or missing; `tainted`
    are the nodes with our startup taint, which only the service removes.
    """

    owners: Mapping[str, DeployerState]
    objects: Mapping[Key, Resource]
    unknown: tuple[Key, ...] = ()
    elsewhere: Mapping[Key, str] = msgspec.field(default_factory=dict)
    tainted: tuple[str, ...] = ()

    @property
    def taint_advice(self) -> str:
        """How the tainted nodes get work."""
        some = counted(len(self.tainted), "node")
        command = f"kubectl taint node {' '.join(self.tainted)} {startup_taints.OWN.key}-"
        return (
            f"the startup taint keeps pods from {some}, and no service removes it: remove it from "
            f"the node pools, then with {command}"
        )


async def read(cluster: ClusterReader, namespace: str, owner: str) -> Handover:
    """All owners with a state in the namespace, or a single one, found by its label if its state is
    gone.

    Raises UsageError for an unknown owner.
    """
    states = await state_store.load_all(cluster, namespace)
    if owner and owner not in states:
        if labelled := await _labelled(cluster, owner):
            return Handover({owner: DeployerState()}, labelled)
        there = ", ".join(sorted(states)) or "none"
        raise errors.UsageError(
            f"no object has the label of {owner}, and no state of it is in namespace {namespace}: "
            f"there is {there}"
        )
    owners = {owner: states[owner]} if owner else states
    inventory = sorted({key for state in owners.values() for key in state.inventory})
    resources, _ = await live_state.resources_of(
        cluster, Bundle(None, ClusterFacts(), {}), inventory
    )
    daemonsets = (await cluster.list(DAEMONSET, Selection(labels=names.OWNER_LABEL))).items
    elsewhere = {
        key_of(body): owner_id
        for body in daemonsets
        if (owner_id := object_owner.owner_of(body)) not in states
    }
    return Handover(
        owners,
        resources,
        tuple(key for key in inventory if key not in resources),
        {} if owner else elsewhere,
        () if owner else await _tainted(cluster),
    )


async def _tainted(cluster: ClusterReader) -> tuple[str, ...]:
    """The nodes with our startup taint; none if nodes may not be listed."""
    try:
        listed = map(nodes.node_of, (await cluster.list(NODE, BRIEF)).items)
    except errors.Forbidden:
        return ()
    own = startup_taints.OWN.key
    return tuple(
        sorted(node.name for node in listed if own in {taint.key for taint in node.taints})
    )


async def _labelled(cluster: ClusterReader, owner: str) -> Mapping[Key, Resource]:
    """The objects with the owner's label, of every kind that may be listed. Raises ClusterError if
    the API server is unreachable.
    """
    resources: dict[Key, Resource] = {}
    for resource in sorted({*(await cluster.resources()).values()}):
        try:
            listed = await cluster.list(resource, Selection(labels=f"{names.OWNER_LABEL}={owner}"))
        except (errors.Unauthorized, errors.ClusterUnreachable):
            raise
        except errors.ClusterError:  # a kind that cannot be listed
            continue
        resources |= {key_of(body): resource for body in listed.items}
    return resources


async def must_be_stopped(cluster: ClusterReader, namespace: str) -> None:
    """Raises Refused while a service renews its lease there: it would restore everything at
    once.
    """
    for lease in (await cluster.list(LEASE, Selection(namespace=namespace))).items:
        spec = lease.get("spec") or {}
        name = str(lease["metadata"]["name"])
        if not spec.get("holderIdentity") or not _is_ours(lease):
            continue
        await asyncio.sleep(float(spec.get("leaseDurationSeconds") or 0) + 1)
        if ((await cluster.get(LEASE, namespace, name)).get("spec") or {}) != spec:
            raise errors.Refused(
                f"the service runs ({spec['holderIdentity']} holds the lease {namespace}/{name}) "
                "and would put everything back: "
                f"stop it first, kubectl -n {namespace} scale deployment gitops-ds --replicas=0"
            )


async def hand_back(
    cluster: Cluster, namespace: str, what: Handover, say: Callable[[str], None]
) -> int:
    """Hands the objects back, reports each and returns their number. Deleted objects are
    skipped.
    """
    changed = 0
    daemonsets = {key for key in what.objects if key.is_daemonset}
    spaces = sorted({key.namespace for key in daemonsets})
    for space in spaces:  # found by their labels, which the next step removes
        await remove(cluster, space, daemonsets)
    for key, resource in what.objects.items():
        if await _released(cluster, resource, key):
            changed += 1
            say(f"handed back {key}")
    for space in spaces:
        for revision in (await cluster.list(CONTROLLER_REVISION, Selection(namespace=space))).items:
            if target_revisions.is_marked(annotations_of(revision)):
                await _released(cluster, CONTROLLER_REVISION, key_of(revision))
    for owner in what.owners:
        await _forget(cluster, namespace, owner)
        say(f"forgot {owner}")
    return changed


def _is_ours(body: Body) -> bool:
    """Whether the object was ever applied by us."""
    return any(
        entry.get("manager") == names.FIELD_MANAGER
        for entry in body["metadata"].get("managedFields") or ()
    )


async def _released(cluster: Cluster, resource: Resource, key: Key) -> bool:
    """Removes our metadata from an object at the observed version; returns whether it had any."""
    for _ in range(_ATTEMPTS):
        try:
            body = await cluster.get(resource, key.namespace, key.name)
            strategy = list(operations(body))
            # In a separate request: the API server records its author, which the next round
            # removes.
            patch = strategy or list(_operations(body["metadata"]))
            if not patch:
                return False
            version = {
                "op": "replace",
                "path": "/metadata/resourceVersion",
                "value": body["metadata"]["resourceVersion"],
            }
            await cluster.patch(
                resource, key.namespace, key.name, [*patch, version], type=PatchType.JSON
            )
        except errors.NotFound:
            return False
        except errors.Conflict:
            continue
        if not strategy:
            return True
    raise errors.WriteContention(f"{key} is written concurrently: try again")


def _operations(metadata: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Without our ownership a later `kubectl apply --server-side` meets no conflict."""
    for group in ("labels", "annotations"):
        for name in metadata.get(group) or {}:
            if name.partition("/")[0] == names.DOMAIN:
                yield {
                    "op": "remove",
                    "path": f"/metadata/{group}/{name.replace('~', '~0').replace('/', '~1')}",
                }
    fields = metadata.get("managedFields") or ()
    others = [
        entry
        for entry in fields
        if entry.get("manager") != names.FIELD_MANAGER or entry.get("subresource")
    ]
    if len(others) < len(fields):
        # An empty list would mean "as before": one empty entry is how managedFields are cleared.
        # https://kubernetes.io/docs/reference/using-api/server-side-apply/#clearing-managedfields
        yield {"op": "replace", "path": "/metadata/managedFields", "value": others or [{}]}


async def _forget(cluster: Cluster, namespace: str, owner: str) -> None:
    """Deletes the status ConfigMaps, then the state: its first ConfigMap before the others, which
    are useless without it.
    """
    statuses = Selection(namespace=namespace, labels=f"{status_writer.OF}={owner}")
    for body in (await cluster.list(CONFIG_MAP, statuses)).items:
        await _delete(cluster, CONFIG_MAP, namespace, str(body["metadata"]["name"]))
    await _delete(cluster, CONFIG_MAP, namespace, source_status_store.config_map_name(owner))
    for name in await state_store.config_maps(cluster, namespace, owner):
        await _delete(cluster, CONFIG_MAP, namespace, name)


async def clear(cluster: Cluster, namespace: str) -> None:
    """Deletes objects without an owner: the lease, the state of notifications and of the records of
    rollouts, the DaemonSet of the conflict probe.
    """
    for name in (CONFIG_MAP_NAME, rollout_ledger.CONFIG_MAP_NAME):
        await _delete(cluster, CONFIG_MAP, namespace, name)
    for lease in (await cluster.list(LEASE, Selection(namespace=namespace))).items:
        if _is_ours(lease):
            await _delete(cluster, LEASE, namespace, str(lease["metadata"]["name"]))
    await conflict_probe.remove(cluster, namespace)


async def _delete(
    cluster: Cluster, resource: Resource, namespace: str, name: str, uid: str = ""
) -> None:
    with contextlib.suppress(errors.NotFound):
        await cluster.delete(resource, namespace, name, uid=uid)


_DEFAULT = {"type": "RollingUpdate"}


def operations(body: Body) -> Iterator[dict[str, Any]]:
    """The JSON patch that gives a DaemonSet the update strategy in Git; empty without an annotation
    that contains it.
    """
    text = daemonset_statements.update_strategy(annotations_of(body))
    if body.get("kind") != DAEMONSET.kind or text is None:
        return
    yield {"op": "remove", "path": daemonset_statements.STRATEGY_POINTER}
    with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
        strategy = msgspec.json.decode(str(text), type=dict[str, Any])
        yield {"op": "replace", "path": "/spec/updateStrategy", "value": strategy or _DEFAULT}


async def remove(cluster: Cluster, namespace: str, daemonsets: Collection[Key]) -> None:
    """Deletes target revisions and waiting pods of DaemonSets in a namespace, and removes the
    metadata of their pinned pods.

    Raises ClusterError.
    """
    for body in (await cluster.list(CONTROLLER_REVISION, Selection(namespace=namespace))).items:
        revision = revisions.revision_of(body)
        owner = target_revisions.daemonset_of(revision) if revision is not None else None
        if revision is None or owner is None or target_revisions.is_promoted(revision):
            continue
        if _key(namespace, owner.name) in daemonsets:
            await _delete(cluster, CONTROLLER_REVISION, namespace, revision.name, revision.uid)
    pinned = await cluster.list(POD, Selection(namespace=namespace, labels=names.ROLLOUT))
    for body in pinned.items:
        pod = pods.pod_of(body)
        if pod.owner is None or _key(namespace, pod.owner.name) not in daemonsets:
            continue
        if not pod.bound:
            await _delete(cluster, POD, namespace, pod.name, pod.uid)
            continue
        removed = {"labels": {names.ROLLOUT: None}, "annotations": {names.RELEASED: None}}
        with contextlib.suppress(errors.NotFound):
            patch = {"metadata": {"uid": pod.uid, **removed}}
            await cluster.patch(POD, namespace, pod.name, patch)


def _key(namespace: str, name: str) -> Key:
    return Key(DAEMONSET.group, DAEMONSET.kind, namespace, name)
