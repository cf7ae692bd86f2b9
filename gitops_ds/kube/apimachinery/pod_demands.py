"""What a pod template demands of its surroundings, and what of it exceeds another template.

Only a demand that grew can be the reason why pods of the one template fail where those of the other
ran: capacity and ports of a node, the nodes themselves, volumes, referenced objects, images.
https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec
import orjson

from gitops_ds.core.objects import Body
from gitops_ds.kube.apimachinery import capacity


class Demand(StrEnum):
    """A demand; the values are the words of docs/rollouts.md."""

    REQUESTS = "requests"  # with the resource after a colon: `requests:cpu`
    HOST_PORTS = "host ports"
    NODES = "node selector and affinity"
    TOLERATIONS = "tolerations"
    PEERS = "pod affinity, topology spread and labels"
    VOLUMES = "volumes"
    CLAIMS = "resource claims"
    PRIORITY = "priority"
    SCHEDULER = "scheduler"
    SANDBOX = "runtime class and host namespaces"
    REFERENCES = "ConfigMaps and Secrets of the environment"
    IMAGE = "image"
    REPOSITORY = "image repository"
    REGISTRY = "registry"
    CREDENTIALS = "pull secrets and service account"


class Growth(msgspec.Struct, frozen=True):
    """The demands by which a template exceeds another one. `requests` are the resources of which it
    requests more, `images` those of its images that the other one does not have, `kept` the rest.
    """

    demands: frozenset[Demand] = frozenset()
    requests: frozenset[str] = frozenset()
    images: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()


def growth(target: Body, proven: Body) -> Growth:
    """What `target` demands beyond `proven`; both are pod templates."""
    new, old = _Demands(target), _Demands(proven)
    requests = frozenset(
        resource
        for resource, amount in new.requests.items()
        if amount > old.requests.get(resource, 0)
    )
    larger = {Demand.REQUESTS} if requests else set[Demand]()
    larger |= {demand for demand, part in new.sets.items() if part - old.sets[demand]}
    larger |= {demand for demand, part in new.wholes.items() if part != old.wholes[demand]}
    if old.tolerations - new.tolerations:
        larger.add(Demand.TOLERATIONS)
    if _is_lower(target.get("spec") or {}, proven.get("spec") or {}):
        larger.add(Demand.PRIORITY)
    images, known = new.sets[Demand.IMAGE], old.sets[Demand.IMAGE]
    return Growth(frozenset(larger), requests, images - known, images & known)


class _Demands:
    """The demands of one template: sets of which a new member is more, and values that can't be
    compared by size.
    """

    def __init__(self, template: Body) -> None:
        spec = template.get("spec") or {}
        affinity = spec.get("affinity") or {}
        containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        images = frozenset(str(container.get("image") or "") for container in containers)
        claims = [(container.get("resources") or {}).get("claims") for container in containers]
        self.requests = capacity.requested(_requesting(spec))
        self.tolerations = _texts(spec.get("tolerations"))
        self.sets: Mapping[Demand, frozenset[str]] = {
            Demand.HOST_PORTS: frozenset(map(str, capacity.host_ports(spec))),
            Demand.VOLUMES: _texts(spec.get("volumes")),
            Demand.CLAIMS: _texts((spec.get("resourceClaims"), *claims)),
            Demand.REFERENCES: frozenset(_references(containers)),
            Demand.IMAGE: images,
            Demand.REPOSITORY: frozenset(map(repository, images)),
            Demand.REGISTRY: frozenset(map(registry, images)),
            Demand.CREDENTIALS: _texts(
                (*(spec.get("imagePullSecrets") or ()), spec.get("serviceAccountName"))
            ),
        }
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        peers = [(affinity.get(kind) or {}).get(required) for kind in _PEERS]
        node_affinity = (affinity.get("nodeAffinity") or {}).get(required)
        labels = (template.get("metadata") or {}).get("labels")
        self.wholes: Mapping[Demand, str] = {
            Demand.NODES: _text((spec.get("nodeSelector"), node_affinity)),
            Demand.PEERS: _text((*peers, spec.get("topologySpreadConstraints"), labels)),
            Demand.SCHEDULER: _text([spec.get(name) for name in _SCHEDULER]),
            Demand.SANDBOX: _text([spec.get(name) for name in _SANDBOX]),
        }


_PEERS = ("podAffinity", "podAntiAffinity")
_SCHEDULER = ("schedulerName", "schedulingGates", "os", "schedulingGroup")
_SANDBOX = (
    *("runtimeClassName", "hostNetwork", "hostPID", "hostIPC", "hostUsers", "hostname"),
    *("subdomain", "dnsPolicy", "dnsConfig", "securityContext", "shareProcessNamespace"),
)
# https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/#priorityclass
_RANKS = {"": 0, "system-cluster-critical": 1, "system-node-critical": 2}


def _is_lower(target: Body, proven: Body) -> bool:
    """Whether the priority is lower, or can't be compared: only the classes of Kubernetes have a
    known value, which exceeds that of any other class.
    """
    if target.get("preemptionPolicy") == "Never" and proven.get("preemptionPolicy") != "Never":
        return True
    new, old = (str(spec.get("priorityClassName") or "") for spec in (target, proven))
    if new == old:
        return bool(target.get("priority") != proven.get("priority"))
    rank = _RANKS.get(new, 0)
    return rank == 0 or rank < _RANKS.get(old, 0)


def _requesting(spec: Body) -> Body:
    """The spec with the requests that the API server derives from limits, and those of the pod as
    a whole.

    https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#pod-level-resource-specification
    """
    whole = spec.get("resources") or {}
    return {
        **spec,
        "initContainers": [_defaulted(container) for container in spec.get("initContainers") or ()],
        "containers": [_defaulted(container) for container in spec.get("containers") or ()],
        "overhead": {
            **(spec.get("overhead") or {}),
            **(_defaulted({"resources": whole})["resources"]["requests"]),
        },
    }


def _defaulted(container: Body) -> Body:
    resources = container.get("resources") or {}
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": requests}}


def _references(containers: list[Body]) -> Iterator[str]:
    """The ConfigMaps and Secrets of the environment of containers, with their keys."""
    for container in containers:
        for source in container.get("envFrom") or ():
            yield _text((source.get("configMapRef"), source.get("secretRef")))
        for variable in container.get("env") or ():
            source = variable.get("valueFrom") or {}
            if (found := (source.get("configMapKeyRef"), source.get("secretKeyRef"))) != (
                None,
                None,
            ):
                yield _text(found)


def registry(image: str) -> str:
    """The host of an image reference, as containerd reads it: `docker.io` without one.

    https://github.com/distribution/reference/blob/main/normalize.go (splitDockerDomain)
    """
    host, slash, _ = image.partition("/")
    return host if slash and ("." in host or ":" in host or host == "localhost") else "docker.io"


def repository(image: str) -> str:
    """An image reference without its tag and digest."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def _texts(values: Any) -> frozenset[str]:
    return frozenset(_text(value) for value in values or () if value)


def _text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
