"""The Pod Security Standards, in the order and with the terms of their documentation.

Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gitops_ds.checks.engine.rule import items, section

ENFORCE: Final = "pod-security.kubernetes.io/enforce"

_DEFAULT_CAPABILITIES: Final = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)
_SELINUX_TYPES: Final = frozenset(
    ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
)
_SYSCTLS: Final = frozenset(
    (
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
    )
)
_VOLUMES: Final = frozenset(
    (
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    )
)


def against(level: str, spec: Mapping[str, Any]) -> list[str]:
    """The short reasons for which a level does not admit the pod; empty for a level that admits it,
    and for an unknown level.
    """
    fields: dict[str, None] = {}
    if level in ("baseline", "restricted"):
        fields |= dict.fromkeys(_baseline(spec))
    if level == "restricted":
        fields |= dict.fromkeys(_restricted(spec))
    return list(fields)


def _baseline(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from (field for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field))
    if any(volume.get("hostPath") for volume in items(spec.get("volumes"))):
        yield "hostPath volumes"
    pod = section(spec.get("securityContext"))
    yield from _of_context(pod)
    yield from (
        f"the sysctl {one.get('name')}"
        for one in items(pod.get("sysctls"))
        if one.get("name") not in _SYSCTLS
    )
    for container in _containers(spec):
        own = section(container.get("securityContext"))
        yield from _of_context(own)
        if own.get("privileged"):
            yield "privileged"
        if own.get("procMount") not in (None, "", "Default"):
            yield f"procMount {own['procMount']}"
        yield from (
            f"the capability {name}" for name in _added(own) if name not in _DEFAULT_CAPABILITIES
        )
        if any(port.get("hostPort") for port in items(container.get("ports"))):
            yield "hostPort"


def _of_context(context: Mapping[str, Any]) -> Iterator[str]:
    if section(context.get("windowsOptions")).get("hostProcess"):
        yield "hostProcess"
    for field in ("appArmorProfile", "seccompProfile"):
        if section(context.get(field)).get("type") == "Unconfined":
            yield f"{field} Unconfined"
    options = section(context.get("seLinuxOptions"))
    if (
        options.get("user")
        or options.get("role")
        or (options.get("type") or "") not in _SELINUX_TYPES
    ):
        yield "seLinuxOptions"


def _restricted(spec: Mapping[str, Any]) -> Iterator[str]:
    for volume in items(spec.get("volumes")):
        yield from (
            f"{kind} volumes"
            for kind, value in volume.items()
            if kind != "name" and value is not None and kind not in _VOLUMES
        )
    pod = section(spec.get("securityContext"))
    windows = section(spec.get("os")).get("name") == "windows"
    for container in _containers(spec):
        own = section(container.get("securityContext"))
        if not (
            own.get("runAsNonRoot")
            if own.get("runAsNonRoot") is not None
            else pod.get("runAsNonRoot")
        ):
            yield "runAsNonRoot is not set"
        if own.get("runAsUser") == 0 or pod.get("runAsUser") == 0:
            yield "runAsUser 0"
        if windows:  # other fields have no effect there
            continue
        if own.get("allowPrivilegeEscalation") is not False:
            yield "allowPrivilegeEscalation is not false"
        if not section(own.get("seccompProfile") or pod.get("seccompProfile")).get("type"):
            yield "seccompProfile is not set"
        if "ALL" not in items(section(own.get("capabilities")).get("drop")):
            yield "capabilities that are not dropped"
        yield from (f"the capability {name}" for name in _added(own) if name != "NET_BIND_SERVICE")


def _added(context: Mapping[str, Any]) -> list[str]:
    return list(map(str, items(section(context.get("capabilities")).get("add"))))


def _containers(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*items(spec.get("initContainers")), *items(spec.get("containers"))]
