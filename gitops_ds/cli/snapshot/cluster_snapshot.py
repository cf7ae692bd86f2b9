"""A cluster for a check or a plan, read once: nodes, DaemonSets and their revisions, and the
objects that these refer to. It is read from the API server, from a file with the output of
`kubectl get … -o json`, or generated.

`published` makes it a snapshot for others: a CI then needs no credentials, and its results are
reproducible.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from gitops_ds.core import errors
from gitops_ds.core.cluster import ClusterReader
from gitops_ds.core.live import Live
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, NODE, Body, Resource, key_of
from gitops_ds.core.redaction import objects
from gitops_ds.core.sources.bundle import ClusterFacts
from gitops_ds.core.values import replace
from gitops_ds.deploy import live_state
from gitops_ds.kube.apimachinery import builtin_resources, capacity
from gitops_ds.kube.apimachinery.nodes import node_of
from gitops_ds.kube.client import connect

_NEEDED = (NODE, DAEMONSET, CONTROLLER_REVISION)
_HELPFUL = tuple(
    builtin_resources.RESOURCES[kind]
    for kind in (("", "Namespace"), ("", "ServiceAccount"), ("scheduling.k8s.io", "PriorityClass"))
)
# fields that no check reads: managedFields, the annotation of `kubectl apply`, references to
# credentials.
_LEFT_OUT = ("managedFields", "selfLink")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def read(file: str) -> Live:
    """The live objects of a cluster snapshot. Raises UsageError with the name of the file."""
    try:
        document = orjson.loads(Path(file).read_bytes())
    except OSError as error:
        raise errors.UsageError(f"--snapshot {file}: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise errors.UsageError(
            f"--snapshot {file}: {error}; write it with `kubectl get "
            "nodes,ds,controllerrevisions -A -o json`"
        ) from None
    bodies = list(_bodies(document))
    if not bodies:
        raise errors.UsageError(
            f"--snapshot {file} holds no objects; write it with `kubectl get "
            "nodes,ds,controllerrevisions -A -o json`"
        )
    for body in bodies:
        if not _is_whole(body):
            raise errors.UsageError(
                f"--snapshot {file}: {body['kind']} {body['metadata'].get('name')} is not as "
                "kubectl prints it"
            )
    return assemble(bodies)


def read_each(values: Iterable[str], clusters: Collection[str]) -> dict[str, Live]:
    """The live objects by cluster: `CLUSTER=FILE` is for one cluster, `FILE` for every cluster,
    under the empty name.
    """
    by_cluster = {}
    for value in values:
        name, equals, file = value.partition("=")
        of_one = bool(equals) and name in clusters
        by_cluster[name if of_one else ""] = read(file if of_one else value)
    return by_cluster


def _is_whole(body: Body) -> bool:
    metadata = body["metadata"]
    maps = [
        metadata.get("labels"),
        metadata.get("annotations"),
        body.get("spec"),
        body.get("status"),
    ]
    return isinstance(metadata.get("name"), str) and all(
        part is None or isinstance(part, dict) for part in maps
    )


def assemble(bodies: list[Body]) -> Live:
    """Live objects from bodies of all kinds."""
    apart = ("Node", "ControllerRevision")
    objects = {key_of(body): body for body in bodies if body["kind"] not in apart}
    revision_bodies = [body for body in bodies if body["kind"] == "ControllerRevision"]
    node_list = [body for body in bodies if body["kind"] == "Node"]
    room = {
        body["metadata"]["name"]: amounts for body in node_list if (amounts := _allocatable(body))
    }
    live = live_state.assemble(objects, revision_bodies, map(node_of, node_list))
    return replace(live, allocatable=room)


def _allocatable(node: Body) -> dict[str, int]:
    try:
        return capacity.allocatable(node)
    except (
        ValueError,
        AttributeError,
    ):  # an invalid quantity is unknown
        return {}


def simulated(count: int) -> Live:
    """A cluster with only `count` ready Linux nodes."""
    return assemble([_node(f"node-{number:03d}") for number in range(count)])


def _node(name: str) -> dict[str, Any]:
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": status,
    }


def _bodies(document: Any) -> Iterator[Body]:
    if isinstance(document, list):
        for item in document:
            yield from _bodies(item)
    elif isinstance(document, dict) and isinstance(document.get("items"), list):
        yield from _bodies(document["items"])
    elif (
        isinstance(document, dict)
        and document.get("kind")
        and isinstance(document.get("metadata"), dict)
    ):
        yield document


async def survey(cluster: ClusterReader) -> list[Body]:
    """The objects from the API server. Optional kinds are omitted if the account may not list them.

    Raises ClusterError if nodes, DaemonSets or ControllerRevisions can't be listed.
    """
    surveys = await asyncio.gather(
        *(_listed(cluster, resource) for resource in _NEEDED),
        *(_if_allowed(cluster, resource) for resource in _HELPFUL),
    )
    return [body for bodies in surveys for body in bodies]


async def clusters(
    connection: connect.Connection, by_name: Mapping[str, ClusterFacts]
) -> tuple[dict[str, Live], dict[str, errors.GitopsError]]:
    """The objects of each cluster, and the error for clusters that can't be read."""
    seen: dict[str, Live] = {}
    unread: dict[str, errors.GitopsError] = {}
    for name, facts in by_name.items():
        try:
            async with connect.reading(connection, facts) as cluster:
                seen[name] = assemble(await survey(cluster))
        except (errors.ClusterError, errors.UsageError) as error:
            unread[name] = error
    return seen, unread


async def _listed(cluster: ClusterReader, resource: Resource) -> list[Body]:
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    return [{**kind, **body} for body in (await cluster.list(resource)).items]


async def _if_allowed(cluster: ClusterReader, resource: Resource) -> list[Body]:
    try:
        return await _listed(cluster, resource)
    except errors.Forbidden:
        return []


def published(bodies: Iterable[Body], *, hash_names: bool = False) -> dict[str, Any]:
    """A cluster snapshot: the fields that checks read, sorted, without values whose names indicate
    that they are secret.

    `hash_names`: each node name, wherever it is a value, is replaced by a hash that depends on the
    node's UID.
    """
    slim = sorted(
        map(_slim, bodies),
        key=lambda body: (
            body["kind"],
            body["metadata"].get("namespace", ""),
            body["metadata"]["name"],
        ),
    )
    items: list[Any] = [objects.value(body) for body in slim]
    if hash_names:
        aliases = {
            body["metadata"]["name"]: _alias(body) for body in slim if body["kind"] == NODE.kind
        }
        items = [_renamed(body, aliases) for body in items]
    for body in items:
        if body["kind"] == NODE.kind:
            body["metadata"].pop("uid", None)
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _slim(body: Body) -> dict[str, Any]:
    metadata = {key: value for key, value in body["metadata"].items() if key not in _LEFT_OUT}
    if _LAST_APPLIED in (metadata.get("annotations") or {}):
        metadata["annotations"] = {
            key: value for key, value in metadata["annotations"].items() if key != _LAST_APPLIED
        }
    if body["kind"] == NODE.kind:
        return {"apiVersion": "v1", "kind": NODE.kind, **_of_node(body, metadata)}
    if body["kind"] == "ServiceAccount":
        return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    return {**body, "metadata": metadata}


def _of_node(body: Body, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Labels, taints, capacity for pods and readiness; without addresses, images and
    annotations.
    """
    spec, status = body.get("spec") or {}, body.get("status") or {}
    ready = [
        {"type": "Ready", "status": condition.get("status")}
        for condition in status.get("conditions") or ()
        if condition.get("type") == "Ready"
    ]
    return {
        "metadata": {key: metadata[key] for key in ("name", "uid", "labels") if key in metadata},
        "spec": {key: spec[key] for key in ("taints", "unschedulable") if key in spec},
        "status": {"allocatable": status.get("allocatable") or {}, "conditions": ready},
    }


def _alias(node: Body) -> str:
    identity = f"{node['metadata'].get('uid', '')}\n{node['metadata']['name']}"
    return f"node-{hashlib.sha256(identity.encode()).hexdigest()[:10]}"


def _renamed(value: Any, aliases: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _renamed(below, aliases) for key, below in value.items()}
    if isinstance(value, list):
        return [_renamed(below, aliases) for below in value]
    return aliases.get(value, value) if isinstance(value, str) else value
