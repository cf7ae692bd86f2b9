"""Advice about access to the host: its network, its ports, its processes, its files.

Sources: https://kubernetes.io/docs/concepts/security/pod-security-standards/ and
https://kubernetes.io/docs/concepts/storage/volumes/#hostpath
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from gitops_ds.checks.advice import security
from gitops_ds.checks.engine.rule import (
    POD,
    Violation,
    containers,
    items,
    of_daemonsets,
    pod_specs,
    rule,
    section,
)
from gitops_ds.core.finding import Fix, Mend, Severity, advice
from gitops_ds.core.objects import Body, Path
from gitops_ds.kube.apimachinery import capacity

# Access to these paths gives control over the node, or access to the data of all its pods.
_SENSITIVE: Final = ("/etc", "/proc", "/sys", "/dev", "/root", "/boot", "/var/lib/kubelet")
_WHOLE: Final = frozenset({"/", "/var", "/var/lib", "/var/run", "/run", "/usr", "/home"})
_RUNTIME: Final = (
    "docker.sock",
    "containerd.sock",
    "crio.sock",
    "cri-dockerd.sock",
    "dockershim.sock",
)
_RUNTIME_FOLDERS: Final = frozenset(
    {
        f"{run}/{name}"
        for run in ("/run", "/var/run")
        for name in ("docker", "containerd", "crio", "k3s/containerd", "dockershim")
    }
)
# Files that only identify the node, and the directories of the kubelet for plugins.
_HARMLESS: Final = re.compile(
    r"/etc/(?:machine-id|localtime|timezone|hostname|[a-z]+-release|ssl/certs|pki/ca-trust)"
    r"|/dev/(?:log|null|shm)|/var/lib/kubelet/(?:plugins_registry|plugins/.+|device-plugins|pod-resources)"
)
_FILES: Final = frozenset(
    {"/etc/machine-id", "/etc/localtime", "/etc/timezone", "/etc/os-release", "/etc/hostname"}
)
_NOT_WRITTEN: Final = frozenset({"Socket", "CharDevice", "BlockDevice"})
# Agents of these classes work on the network of the host.
_HOST_NETWORK: Final = dict.fromkeys(("cni", "dns"), Severity.INFO)


@rule(advice("DS502", Severity.WARNING, "hostNetwork is set", classes=_HOST_NETWORK))
def host_network(body: Body) -> Iterator[Violation]:
    """The pod uses the network of the host."""
    yield from _shared(
        body, "hostNetwork", "the agent has access to the traffic of the node and shares its ports"
    )


@rule(
    advice(
        "DS503",
        Severity.WARNING,
        "dnsPolicy ignores the cluster DNS on the host network",
        classes=_HOST_NETWORK,
    )
)
def cluster_names(body: Body) -> Iterator[Violation]:
    """On the host network, names of the cluster require another dnsPolicy."""
    for path, spec in pod_specs(body):
        if spec.get("hostNetwork") and spec.get("dnsPolicy") in (None, "", "ClusterFirst"):
            way = (*path, "dnsPolicy")
            message = (
                "with hostNetwork the pod cannot resolve names of Services: set dnsPolicy: "
                "ClusterFirstWithHostNet, or Default if it resolves none"
            )
            place = way if spec.get("dnsPolicy") else (*path, "hostNetwork")
            yield Violation(
                place,
                message,
                Fix("use the cluster DNS", (Mend(way, "ClusterFirstWithHostNet"),)),
            )


@rule(advice("DS504", Severity.WARNING, "hostPID is set"))
def host_processes(body: Body) -> Iterator[Violation]:
    """hostPID is set."""
    yield from _shared(
        body,
        "hostPID",
        "the agent can see and signal every process of the node, and read its environment",
    )


@rule(advice("DS504", Severity.ERROR, "hostIPC is set"))
def host_ipc(body: Body) -> Iterator[Violation]:
    """hostIPC is set."""
    yield from _shared(
        body, "hostIPC", "the agent can read the shared memory of every process of the node"
    )


def _shared(body: Body, field: str, why: str) -> Iterator[Violation]:
    for path, spec in pod_specs(body):
        if spec.get(field):
            way = (*path, field)
            yield Violation(way, f"{field}: {why}", Fix(f"remove {field}", (Mend(way),)))


@rule(
    advice(
        "DS505",
        Severity.ERROR,
        "sensitive host path is mounted",
        classes={**security.OF_NODES, "logging": Severity.WARNING},
    )
)
def sensitive_paths(body: Body) -> Iterator[Violation]:
    """A mounted host path gives access to the node or to other pods."""
    for way, path, _ in _host_paths(body):
        what = _reason(path)
        if what:
            written = list(_written(body, way[:-2])) if what != _SOCKET else ()
            message = f"{path} of the host is {what}; mount only the required part"
            yield (
                Violation(way, message, _read_only(written)) if written else Violation(way, message)
            )


_SOCKET: Final = "the socket of the container runtime: write access is root access to the node"


@lru_cache(1024)  # the agents of a fleet mount the same few paths
def _reason(path: str) -> str:
    """The reason why a path is sensitive; empty for other paths."""
    plain = posixpath.normpath(path.replace("//", "/"))
    if _HARMLESS.fullmatch(plain):
        return ""
    if plain.endswith(_RUNTIME) or plain in _RUNTIME_FOLDERS:
        return _SOCKET
    if plain in _WHOLE:
        return "the root of everything below, with the credentials of the node and its pods"
    for folder in _SENSITIVE:
        if plain == folder or plain.startswith(folder + "/"):
            return (
                f"below {folder}, which gives control of the node"
                if plain != folder
                else "a way to control the node"
            )
    return ""


@rule(advice("DS506", Severity.WARNING, "host path is writable"))
def writable_paths(body: Body) -> Iterator[Violation]:
    """A writable host path. Mounts that propagate to the host are ignored, since they must
    be writable.
    """
    for way, path, volume in _host_paths(body):
        if section(volume.get("hostPath")).get("type") not in _NOT_WRITTEN and not path.endswith(
            ".sock"
        ):
            written = list(_written(body, way[:-2]))
            if written:
                who = " and ".join(f'"{name}"' for _, name in written)
                message = (
                    f"{who} can write to the host path {path}: set readOnly: true if it is only "
                    f"read"
                )
                yield Violation(written[0][0], message, _read_only(written))


def _read_only(mounts: Iterable[tuple[Path, str]]) -> Fix:
    return Fix("mount it read-only", tuple(Mend((*mount, "readOnly"), True) for mount, _ in mounts))


@rule(advice("DS507", Severity.INFO, "hostPath has no type"))
def typed_paths(body: Body) -> Iterator[Violation]:
    """A hostPath without a type."""
    for way, path, volume in _host_paths(body):
        if not section(volume.get("hostPath")).get("type"):
            message = (
                f"hostPath {path} has no type: if it does not exist, the runtime may create a "
                f"directory or fail; set its type"
            )
            kind = (*way[:-1], "type")
            yield Violation(kind, message, Fix("set its type", (Mend(kind, _kind(path)),)))


def _kind(path: str) -> str:
    if path.endswith(".sock"):
        return "Socket"
    return "File" if path in _FILES else "Directory"


def _host_paths(body: Body) -> Iterator[tuple[Path, str, Mapping[str, Any]]]:
    for path, spec in pod_specs(body):
        volumes = spec.get("volumes")
        if volumes:
            for index, volume in enumerate(items(volumes)):
                host = volume.get("hostPath")
                if host:
                    yield (
                        (*path, "volumes", index, "hostPath", "path"),
                        str(host.get("path") or ""),
                        volume,
                    )


def _written(body: Body, way: Path) -> Iterator[tuple[Path, str]]:
    """The writable mounts of the volume at `way`, and the container of each."""
    for path, spec in pod_specs(body):
        name = spec["volumes"][way[len(path) + 1]].get("name")
        for place, container in containers(body):
            for index, mount in enumerate(items(container.get("volumeMounts"))):
                if (
                    mount.get("name") == name
                    and not mount.get("readOnly")
                    and mount.get("mountPropagation") != "Bidirectional"
                ):
                    yield (*place, "volumeMounts", index), str(container.get("name"))


# https://kubernetes.io/docs/reference/networking/ports-and-protocols/, and other common
# services of nodes.
_SERVICES: Final = {
    22: "sshd",
    2379: "etcd",
    2380: "etcd",
    6443: "kube-apiserver",
    9100: "node-exporter",
    10248: "kubelet",
    10249: "kube-proxy",
    10250: "kubelet",
    10255: "kubelet",
    10256: "kube-proxy",
    10257: "kube-controller-manager",
    10259: "kube-scheduler",
}


@rule(advice("DS609", Severity.WARNING, "host port belongs to a service of the node", on=False))
@of_daemonsets
def free_of_services(
    body: Body, spec: Mapping[str, Any], pod: Mapping[str, Any]
) -> Iterator[Violation]:
    """A host port of a service of the node. The agent itself can be that service."""
    own = " ".join(
        str(container.get("image") or "").replace("_", "-")
        for container in items(pod.get("containers"))
    )
    for protocol, _, port in capacity.host_ports(pod):
        service = _SERVICES.get(port)
        if service and service not in own and protocol == "TCP":
            message = (
                f"port {port}/{protocol} of the node belongs to {service}: the container cannot "
                f"listen on nodes that run it; use another port"
            )
            yield Violation((*POD, "containers"), message)
