"""A cluster without a connection: nodes and objects from the output of `kubectl get … -o json`, or
generated nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from gitops_ds import errors
from gitops_ds.apimachinery import capacity
from gitops_ds.deployer import live_state
from gitops_ds.model.live import Live
from gitops_ds.model.objects import Body, key_of
from gitops_ds.model.values import replace


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
    for one in values:
        name, equals, file = one.partition("=")
        of_one = bool(equals) and name in clusters
        by_cluster[name if of_one else ""] = read(file if of_one else one)
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
    nodes = [body for body in bodies if body["kind"] == "Node"]
    room = {body["metadata"]["name"]: amounts for body in nodes if (amounts := _allocatable(body))}
    return replace(live_state.assemble(objects, revision_bodies, nodes), allocatable=room)


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
