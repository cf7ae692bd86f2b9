"""Conflicts of two agents on a node: ports and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Final

from gitops_ds.apimachinery import capacity, node_pools
from gitops_ds.checks.engine.cluster_context import ClusterContext, pod_spec
from gitops_ds.checks.engine.rule import POD, Violation, items, section
from gitops_ds.model.sources.bundle import Manifest

# Shared paths: devices, file systems of the kernel, sockets and locks for several agents.
_SHARED: Final = (
    "/dev",
    "/proc",
    "/sys",
    "/run",
    "/var/run",
    "/var/lib/kubelet",
    "/lib/modules",
    "/usr/lib/modules",
)
_MEETING_POINTS: Final = frozenset(("Socket", "CharDevice", "BlockDevice"))


def ports_apart(fleet: ClusterContext) -> Iterator[Violation]:
    """DS601: two agents use the same port of a node."""
    if fleet.census is None:
        return
    ports = {
        manifest.key: tuple(capacity.host_ports(pod_spec(manifest)))
        for manifest, _ in fleet.placed()
    }
    with_ports = [manifest for manifest, _ in fleet.placed() if ports[manifest.key]]
    for one, other in combinations(with_ports, 2):
        shared = next(
            (
                port
                for port in ports[one.key]
                if any(capacity.clash(port, their) for their in ports[other.key])
            ),
            None,
        )
        nodes = fleet.eligible[one.key] & fleet.eligible[other.key] if shared else frozenset()
        if shared and nodes:
            where = node_pools.summary(nodes, fleet.census)
            message = (
                f"{other.key} uses the same host port {shared[2]}/{shared[0]}, and one of the two "
                f"stays Pending on {where}"
            )
            yield Violation((*POD, "containers"), message, object=one.key, related=other.key)


def paths_apart(fleet: ClusterContext) -> Iterator[Violation]:
    """DS608: two agents write to the same path of a node."""
    if fleet.census is None:
        return
    written: dict[str, list[tuple[Manifest, int]]] = {}
    for manifest, _ in fleet.placed():
        for path, index in _written(pod_spec(manifest)).items():
            written.setdefault(path, []).append((manifest, index))
    for path, writers in sorted(written.items()):
        for (one, index), (other, _) in combinations(writers, 2):
            nodes = fleet.eligible[one.key] & fleet.eligible[other.key]
            if nodes:
                where = node_pools.summary(nodes, fleet.census)
                message = (
                    f"{other.key} writes to the host path {path} as well, on {where}: use separate "
                    f"paths"
                )
                yield Violation(
                    (*POD, "volumes", index, "hostPath"), message, object=one.key, related=other.key
                )


def _written(spec: Mapping[str, object]) -> dict[str, int]:
    """The host paths that a container can write to, with the index of each volume."""
    containers = (*items(spec.get("containers")), *items(spec.get("initContainers")))
    mounts = [mount for container in containers for mount in items(container.get("volumeMounts"))]
    writable = {mount.get("name") for mount in mounts if not mount.get("readOnly")}
    paths = {}
    for index, volume in enumerate(items(spec.get("volumes"))):
        host = section(volume.get("hostPath"))
        path = str(host.get("path") or "").rstrip("/")
        shared = any(path == one or path.startswith(f"{one}/") for one in _SHARED)
        if (
            path
            and volume.get("name") in writable
            and host.get("type") not in _MEETING_POINTS
            and not shared
        ):
            paths[path] = index
    return paths
