"""Agents that share a node: whether they fit on it, the share of it that they use, and conflicts
over ports and files.

The requests of other pods are unknown: an agent that does not fit beside the other agents never
fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import msgspec

from gitops_ds.checks.engine.contexts import ClusterContext, pod_spec
from gitops_ds.checks.engine.rule import POD, Violation, items, pod, rule, section, template
from gitops_ds.core.daemonset import RollingUpdate
from gitops_ds.core.finding import Severity, advice
from gitops_ds.core.live import Census
from gitops_ds.core.objects import Body, Key, Path
from gitops_ds.core.plain_text import counted
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.kube.apimachinery import capacity, daemonsets, node_eligibility, node_pools
from gitops_ds.kube.apimachinery.capacity import Amounts
from gitops_ds.kube.apimachinery.node_eligibility import Placement

_CONTAINERS: Final[Path] = (*POD, "containers")
_MOST_OF_A_NODE: Final = 30  # per cent of a node's CPU, memory or pods, for all agents together
_SYSTEM: Final = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


class Tenant(msgspec.Struct, frozen=True):
    """A DaemonSet on a node. `surges`: the node runs two of its pods during an update. `ours`: the
    repository contains it.
    """

    key: Key
    requests: Amounts
    priority: int
    surges: bool
    ours: bool


class Misfit(msgspec.Struct, frozen=True):
    """A DaemonSet that does not fit beside the agents of higher priority: the nodes by reason.
    `surging`: only during an update.
    """

    key: Key
    why: str
    nodes: tuple[str, ...]
    surging: bool = False

    def sentence(self, census: Census) -> str:
        """`does not fit on 6 nodes of pool small: node-a and 5 more (Insufficient memory)`."""
        when = (
            "does not fit a second time during an update (maxSurge)"
            if self.surging
            else "does not fit"
        )
        return f"{when} on {node_pools.summary(self.nodes, census)} ({self.why})"


def misfits(cluster: ClusterContext) -> tuple[Misfit, ...]:
    """The DaemonSets that do not fit on some of their nodes. Nodes without allocatable resources
    are ignored.

    The order of placement is the priority, then pods that the cluster already runs, then the name.
    """
    # a large import that most checks do not need
    from gitops_ds.core.decision import FreeCapacity

    by_cause: dict[tuple[Key, str, bool], list[str]] = {}
    for tenants, room, nodes in _houses(cluster):
        free = dict(room)
        for tenant in tenants:
            why = capacity.misfit(tenant.requests, (), FreeCapacity(free))
            surging = not why and tenant.surges
            twice = {resource: 2 * amount for resource, amount in tenant.requests.items()}
            why = why or (capacity.misfit(twice, (), FreeCapacity(free)) if surging else "")
            if why and tenant.ours:
                by_cause.setdefault((tenant.key, why, surging), []).extend(nodes)
            if not why or surging:
                free = {
                    resource: amount - tenant.requests.get(resource, 0)
                    for resource, amount in free.items()
                }
    return tuple(
        Misfit(key, why, tuple(sorted(nodes)), surging)
        for (key, why, surging), nodes in sorted(by_cause.items())
    )


@rule(advice("DS605", Severity.ERROR, "agent does not fit on its nodes", on=False))
def fits(cluster: ClusterContext) -> Iterator[Violation]:
    """An agent does not fit on one of its nodes."""
    if cluster.census is not None:
        for misfit in misfits(cluster):
            yield Violation(_CONTAINERS, misfit.sentence(cluster.census), object=misfit.key)


@rule(advice("DS607", Severity.WARNING, "agents use most of a node", on=False))
def leaves_room(cluster: ClusterContext) -> Iterator[Violation]:
    """The agents together use most of a node."""
    worst: dict[str, tuple[int, Sequence[Tenant], Sequence[str]]] = {}
    for tenants, room, nodes in _houses(cluster):
        for resource in ("cpu", "memory", "pods"):
            has, requests = (
                room.get(resource, 0),
                sum(tenant.requests.get(resource, 0) for tenant in tenants),
            )
            share = requests * 100 // has if has else 0
            if share > max(_MOST_OF_A_NODE, worst.get(resource, (0,))[0]):
                worst[resource] = (share, tenants, nodes)
    for resource, (share, tenants, nodes) in worst.items():
        most = max(
            (tenant for tenant in tenants if tenant.ours),
            key=lambda tenant: (tenant.requests.get(resource, 0), tenant.key),
            default=None,
        )
        if most is not None and cluster.census is not None:
            where = node_pools.summary(nodes, cluster.census)
            tenancy = counted(len(tenants), "agent requests", "agents together request")
            message = f"{tenancy} {share}% of the {resource} of {where}; this one requests the most"
            yield Violation(_CONTAINERS, message, object=most.key)


def _houses(cluster: ClusterContext) -> Iterator[tuple[Sequence[Tenant], Amounts, Sequence[str]]]:
    """Groups of equal nodes: their agents by priority, and their allocatable resources."""
    census = cluster.census
    if census is None or not census.room:
        return
    living: dict[str, list[Tenant]] = {name: [] for name in census.room}
    for tenant, nodes in sorted(
        _tenants(cluster, census),
        key=lambda placed: (-placed[0].priority, placed[0].ours, placed[0].key),
    ):
        for name in nodes:
            if name in living:
                living[name].append(tenant)
    alike: dict[tuple[object, ...], tuple[list[Tenant], Amounts, list[str]]] = {}
    for name, tenants in living.items():
        room = census.room[name]
        same = (*(tenant.key for tenant in tenants), *room.items())
        alike.setdefault(same, (tenants, room, []))[2].append(name)
    yield from alike.values()


def _tenants(cluster: ClusterContext, census: Census) -> Iterator[tuple[Tenant, frozenset[str]]]:
    classes = {
        key.name: manifest.body.get("value")
        for key, manifest in cluster.manifests.items()
        if key.kind == "PriorityClass"
    }

    def tenant(key: Key, body: Body, *, ours: bool) -> Tenant:
        spec = section(body.get("spec"))
        strategy, name = (
            daemonsets.strategy(spec),
            str(pod(body).get("priorityClassName") or ""),
        )
        value = _SYSTEM.get(name, classes.get(name))
        surges = isinstance(strategy, RollingUpdate) and strategy.surges
        return Tenant(
            key, _requested(pod(body)), value if isinstance(value, int) else 0, surges, ours
        )

    for manifest, nodes in cluster.placed():
        yield tenant(manifest.key, manifest.body, ours=True), nodes
    for key, body in node_pools.others(census, cluster.manifests):
        placer = node_eligibility.read(template(body))
        yield (
            tenant(key, body, ours=False),
            frozenset(node.name for node in census.nodes if placer.place(node) is Placement.RUN),
        )


def _requested(spec: Mapping[str, Any]) -> Amounts:
    try:
        return capacity.requested(spec)
    except ValueError:  # DS010 reports invalid quantities
        return {"pods": 1000}


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


@rule(advice("DS601", Severity.ERROR, "host port conflict between agents"))
def ports_apart(cluster: ClusterContext) -> Iterator[Violation]:
    """Two agents use the same port of a node."""
    if cluster.census is None:
        return
    ports = {
        manifest.key: tuple(capacity.host_ports(pod_spec(manifest)))
        for manifest, _ in cluster.placed()
    }
    with_ports = [manifest for manifest, _ in cluster.placed() if ports[manifest.key]]
    for manifest, other in combinations(with_ports, 2):
        shared = next(
            (
                port
                for port in ports[manifest.key]
                if any(capacity.clash(port, their) for their in ports[other.key])
            ),
            None,
        )
        nodes = (
            cluster.eligible[manifest.key] & cluster.eligible[other.key] if shared else frozenset()
        )
        if shared and nodes:
            where = node_pools.summary(nodes, cluster.census)
            message = (
                f"{other.key} uses the same host port {shared[2]}/{shared[0]}, and one of the two "
                f"stays Pending on {where}"
            )
            yield Violation((*POD, "containers"), message, object=manifest.key, related=other.key)


@rule(advice("DS608", Severity.WARNING, "agents write to the same host path", on=False))
def paths_apart(cluster: ClusterContext) -> Iterator[Violation]:
    """Two agents write to the same path of a node."""
    if cluster.census is None:
        return
    written: dict[str, list[tuple[Manifest, int]]] = {}
    for manifest, _ in cluster.placed():
        for path, index in _written(pod_spec(manifest)).items():
            written.setdefault(path, []).append((manifest, index))
    for path, writers in sorted(written.items()):
        for (manifest, index), (other, _) in combinations(writers, 2):
            nodes = cluster.eligible[manifest.key] & cluster.eligible[other.key]
            if nodes:
                where = node_pools.summary(nodes, cluster.census)
                message = (
                    f"{other.key} writes to the host path {path} as well, on {where}: use separate "
                    f"paths"
                )
                yield Violation(
                    (*POD, "volumes", index, "hostPath"),
                    message,
                    object=manifest.key,
                    related=other.key,
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
        shared = any(path == prefix or path.startswith(f"{prefix}/") for prefix in _SHARED)
        if (
            path
            and volume.get("name") in writable
            and host.get("type") not in _MEETING_POINTS
            and not shared
        ):
            paths[path] = index
    return paths
