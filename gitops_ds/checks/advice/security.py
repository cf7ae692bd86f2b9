"""The rights of a container: privileges, users, capabilities, the token of the service account; and
the Pod Security Standards, in the order and with the terms of their documentation.

Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gitops_ds.checks.engine.rule import Violation, containers, items, pod_specs, rule, section
from gitops_ds.core.finding import Fix, Mend, Severity, advice
from gitops_ds.core.objects import Body, Path

_POWERFUL: Final = frozenset({"ALL", "SYS_ADMIN", "NET_ADMIN"})
# Agents of these classes require access to the node; for others privileges are an error.
OF_NODES: Final = dict.fromkeys(("cni", "csi", "monitoring", "security", "gpu"), Severity.WARNING)


@rule(advice("DS501", Severity.ERROR, "container is privileged", classes=OF_NODES))
def privileged(body: Body) -> Iterator[Violation]:
    """A container is privileged."""
    for way, container in containers(body):
        context = container.get("securityContext")
        if context and context.get("privileged"):
            path = (*way, "securityContext", "privileged")
            message = (
                f'"{container.get("name")}" is privileged: a compromised container controls every '
                f"node; grant only the required capabilities"
            )
            yield Violation(path, message, Fix("remove it", (Mend(path),)))


@rule(advice("DS508", Severity.WARNING, "privilege escalation is allowed", on=False))
def no_escalation(body: Body) -> Iterator[Violation]:
    """Privilege escalation is allowed."""
    for way, container, own, _ in _contexts(body):
        # The API server rejects false with these two capabilities, which include an escalation.
        above = own.get("privileged") or "SYS_ADMIN" in items(
            section(own.get("capabilities")).get("add")
        )
        if not above and own.get("allowPrivilegeEscalation") is not False:
            path = (*way, "securityContext", "allowPrivilegeEscalation")
            message = (
                f'a program in "{container.get("name")}" may gain more privileges than the '
                f"container: set false"
            )
            yield Violation(path, message, Fix("forbid it", (Mend(path, False),)))


@rule(advice("DS509", Severity.INFO, "container may run as root", on=False))
def no_root(body: Body) -> Iterator[Violation]:
    """The user of the container is not set."""
    for way, container, own, pod in _contexts(body):
        windows = section(own.get("windowsOptions")) or section(pod.get("windowsOptions"))
        is_set = any(
            context.get(field) is not None
            for context in (own, pod)
            for field in ("runAsNonRoot", "runAsUser")
        )
        if not is_set and not windows:
            path = (*way, "securityContext", "runAsNonRoot")
            message = (
                f'the user of "{container.get("name")}" depends on the image, and is often root: '
                f"set runAsNonRoot or runAsUser"
            )
            yield Violation(path, message, Fix("set runAsNonRoot: true", (Mend(path, True),)))


@rule(advice("DS510", Severity.INFO, "root file system is writable", on=False))
def read_only_root(body: Body) -> Iterator[Violation]:
    """The root file system is writable."""
    for way, container, own, _ in _contexts(body):
        if not own.get("readOnlyRootFilesystem"):
            path = (*way, "securityContext", "readOnlyRootFilesystem")
            message = (
                f'"{container.get("name")}" can write to its own file system: set true, and mount '
                f"volumes for the paths that it writes"
            )
            yield Violation(path, message, Fix("make it read-only", (Mend(path, True),)))


@rule(advice("DS511", Severity.WARNING, "dangerous capability is added", on=False))
def few_capabilities(body: Body) -> Iterator[Violation]:
    """A capability is added that amounts to root on the node."""
    for way, _, own, _ in _contexts(body):
        for index, name in enumerate(items(section(own.get("capabilities")).get("add"))):
            if str(name).removeprefix("CAP_") in _POWERFUL:
                path = (*way, "securityContext", "capabilities", "add", index)
                yield Violation(
                    path,
                    f"the capability {name} is close to root on the node: add only the required "
                    f"ones",
                    Fix("remove it", (Mend(path),)),
                )


@rule(advice("DS511", Severity.INFO, "capabilities are not dropped", on=False))
def dropped_capabilities(body: Body) -> Iterator[Violation]:
    """The default capabilities are not dropped."""
    for way, container, own, _ in _contexts(body):
        if not own.get("privileged") and "ALL" not in items(
            section(own.get("capabilities")).get("drop")
        ):
            path = (*way, "securityContext", "capabilities", "drop")
            message = (
                f'"{container.get("name")}" keeps the default capabilities: drop ALL, and add the '
                f"required ones"
            )
            yield Violation(path, message, Fix("drop all capabilities", (Mend(path, ["ALL"]),)))


@rule(advice("DS512", Severity.INFO, "seccomp profile is not set", on=False))
def seccomp(body: Body) -> Iterator[Violation]:
    """No seccomp profile filters the system calls."""
    for path, _ in pod_specs(body):
        bare = [
            container
            for _, container, own, pod in _contexts(body)
            if not (_profiled(own) or _profiled(pod) or own.get("privileged"))
        ]
        if bare:
            way = (*path, "securityContext", "seccompProfile")
            message = (
                f'"{bare[0].get("name")}" has no seccomp profile: every system call is allowed; '
                f"RuntimeDefault suits most containers"
            )
            yield Violation(
                way,
                message,
                Fix("use the profile of the runtime", (Mend((*way, "type"), "RuntimeDefault"),)),
            )


def _profiled(context: Mapping[str, Any]) -> bool:
    return bool(context.get("seccompProfile"))


@rule(advice("DS513", Severity.INFO, "service account token is mounted", on=False))
def no_token(body: Body) -> Iterator[Violation]:
    """The pod gets a token of the default service account."""
    for path, spec in pod_specs(body):
        account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
        if account == "default" and spec.get("automountServiceAccountToken") is not False:
            way = (*path, "automountServiceAccountToken")
            message = (
                "every pod mounts a token of the namespace's default service account: use a "
                "dedicated service account, or set false"
            )
            yield Violation(way, message, Fix("do not mount a token", (Mend(way, False),)))


def _contexts(
    body: Body,
) -> Iterator[tuple[Path, Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]]:
    """Each container with its security context and that of its pod."""
    for _, spec in pod_specs(body):
        pod = section(spec.get("securityContext"))
        for way, container in containers(body):
            yield way, container, section(container.get("securityContext")), pod


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
        f"the sysctl {sysctl.get('name')}"
        for sysctl in items(pod.get("sysctls"))
        if sysctl.get("name") not in _SYSCTLS
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
