"""The capacity that a pod requires on its node, and whether it fits beside other pods: resources,
number of pods, host ports.

Amounts are in thousandths of their unit, so that `100m` of CPU is an integer; requests are rounded
up, the capacity of a node down.
https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#how-pods-with-resource-requests-are-scheduled
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gitops_ds.core.objects import Body
from gitops_ds.kube.apimachinery import quantities

if TYPE_CHECKING:  # a large import, of which a check needs nothing else
    from gitops_ds.core.decision import FreeCapacity

Port = tuple[str, str, int]  # protocol, host IP, port
Amounts = Mapping[str, int]

_EVERYWHERE = "0.0.0.0"  # noqa: S104  a host port on all addresses
# a node may have these although its status lacks them
_ALWAYS_THERE = frozenset(("cpu", "memory", "ephemeral-storage", "pods"))


def requested(spec: Body) -> dict[str, int]:
    """The resource requests of a pod: containers and sidecars together, or an init container with
    the sidecars before it if that is more.

    The overhead of its runtime class, and the pod itself (`pods`), are added.
    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    total = _sum(map(_asked, spec.get("containers") or ()))
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, _asked(container)))
            most = _most(most, sidecars)
        else:
            most = _most(most, _sum((sidecars, _asked(container))))
    overhead = _amounts(spec.get("overhead") or {}, math.ceil)
    return _sum((_most(_sum((total, sidecars)), most), overhead, {"pods": 1000}))


def allocatable(node: Body) -> dict[str, int]:
    """The capacity of a node for pods; empty if unknown."""
    return _amounts((node.get("status") or {}).get("allocatable") or {}, math.floor)


def host_ports(spec: Body) -> Iterator[Port]:
    """The host ports of the pod, including those of sidecars, without those of other init
    containers.
    """
    sidecars = [
        container
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    ]
    for container in (*(spec.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (
                port.get("containerPort") if spec.get("hostNetwork") else None
            )
            if number:
                yield port.get("protocol") or "TCP", port.get("hostIP") or _EVERYWHERE, number


def misfit(requests: Amounts, ports: Iterable[Port], room: FreeCapacity) -> str:
    """Why a pod does not fit on a node, in the scheduler's terms; empty if it fits."""
    if any(clash(mine, theirs) for mine in ports for theirs in room.ports):
        return "node(s) didn't have free ports for the requested pod ports"
    for resource, amount in sorted(requests.items()):
        if resource in room.free:
            if amount > room.free[resource]:
                return "Too many pods" if resource == "pods" else f"Insufficient {resource}"
        elif amount and room.free and resource not in _ALWAYS_THERE:
            return f"Insufficient {resource}"
    return ""


def clash(one: Port, other: Port) -> bool:
    """Whether two host ports of a node conflict."""
    return (
        one[0] == other[0]
        and one[2] == other[2]
        and (one[1] == other[1] or _EVERYWHERE in (one[1], other[1]))
    )


def _asked(container: Body) -> dict[str, int]:
    return _amounts((container.get("resources") or {}).get("requests") or {}, math.ceil)


def _amounts(amounts: Mapping[str, Any], rounded: Any) -> dict[str, int]:
    return {
        resource: rounded(quantities.parse(amount or 0) * 1000)
        for resource, amount in amounts.items()
    }


def _sum(parts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for resource, amount in part.items():
            total[resource] = total.get(resource, 0) + amount
    return total


def _most(one: Amounts, other: Amounts) -> dict[str, int]:
    return {
        resource: max(one.get(resource, 0), other.get(resource, 0)) for resource in {**one, **other}
    }
