"""Validation of containers by the API server: probes, hooks, mounts, privileges.

Source: validateContainerCommon in pkg/apis/core/validation/validation.go of Kubernetes. An empty
string is an absent field, and so is a 0 for which a default exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from gitops_ds.checks.admission import environment, object_names
from gitops_ds.checks.engine.rule import Spec, Violation, containers, items, pod_specs, section
from gitops_ds.core.objects import Body, Path

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS: Final = ("postStart", "preStop")
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_COUNTS: Final = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_USER_AT_MOST: Final = (1 << 31) - 1


def missing(body: Body) -> Iterator[Violation]:
    """Required fields of a container."""
    for way, container in containers(body):
        for field in ("name", "image"):
            if container.get(field) == "" or (field == "image" and container.get(field) is None):
                yield Violation((*way, field), f"{field} of the container is required")
        if "env" in container or "envFrom" in container:
            yield from environment.missing(way, container)
        for place, handler in _handlers(way, container):
            if not any(handler.get(kind) is not None for kind in _HANDLERS):
                yield Violation(
                    place, f"{place[-1]} has no handler: set one of {', '.join(_HANDLERS[:4])}"
                )
            elif (command := handler.get("exec")) is not None and not command.get("command"):
                yield Violation((*place, "exec"), "exec requires a command")
        for field, place_of in (("volumeMounts", "mountPath"), ("volumeDevices", "devicePath")):
            for index, mount in enumerate(container.get(field) or ()):
                if mount and (mount.get("name") == "" or mount.get(place_of) == ""):
                    yield Violation((*way, field, index), f"a mount requires name and {place_of}")
        if context := container.get("securityContext"):
            for field in ("seccompProfile", "appArmorProfile"):
                yield from missing_of_profile((*way, "securityContext"), context, field)


def missing_of_profile(way: Path, context: Spec, field: str) -> Iterator[Violation]:
    """The required fields of a security profile: its type, and the file of the type Localhost."""
    profile = context.get(field)
    if profile is None:
        return
    if not profile.get("type"):
        yield Violation((*way, field), f"{field} requires a type")
    file = profile.get("localhostProfile")
    if profile.get("type") == "Localhost" and (
        file is None or (field == "appArmorProfile" and not file.strip())
    ):
        yield Violation((*way, field), "type Localhost requires a localhostProfile")


def _handlers(way: Path, container: Spec) -> Iterator[tuple[Path, Spec]]:
    """The probes and hooks of a container."""
    for name in _PROBES:
        if (probe := container.get(name)) is not None:
            yield (*way, name), probe
    if lifecycle := container.get("lifecycle"):
        for name in _HOOKS:
            if (hook := lifecycle.get(name)) is not None:
                yield (*way, "lifecycle", name), hook


def values(body: Body) -> Iterator[Violation]:
    """Values of a container's fields that are not allowed, alone or in combination."""
    for _, spec in pod_specs(body):
        windows = section(spec.get("os")).get("name") == "windows"
        for way, container in containers(body):
            # Most containers lack most of these fields: an absent field costs no check.
            if "env" in container or "envFrom" in container:
                yield from environment.values(way, container)
                yield from environment.files(way, container, spec)
            for place, handler in _handlers(way, container):
                yield from _handler(place, handler)
            if way[-2] == "initContainers":
                yield from _only_in_those_that_run_on(way, container)
            if "volumeMounts" in container:
                yield from _mounts(way, container)
            if "ports" in container:
                yield from _ports(way, container)
            if "restartPolicyRules" in container or "resizePolicy" in container:
                yield from _restarts(way, container)
            if (context := container.get("securityContext")) is not None:
                place = (*way, "securityContext")
                yield from users(place, context, ("runAsUser", "runAsGroup"))
                yield from profiles(place, context)
                yield from _privileges(place, context, spec)
                if windows:
                    yield from _not_of_windows(place, context)


def _handler(place: Path, handler: Spec) -> Iterator[Violation]:
    name = str(place[-1])
    types = [kind for kind in _HANDLERS if handler.get(kind) is not None]
    if len(types) > 1:
        yield Violation(place, f"{name} has {' and '.join(types)}: only one is allowed")
    for kind in ("httpGet", "tcpSocket", "grpc"):
        port = section(handler.get(kind)).get("port")
        if port is not None and (problem := wrong_port(port, named=kind != "grpc")):
            yield Violation((*place, kind, "port"), problem)
    for index, header in enumerate(items(section(handler.get("httpGet")).get("httpHeaders"))):
        if not _HEADER.match(str(header.get("name") or "")):
            yield Violation(
                (*place, "httpGet", "httpHeaders", index, "name"),
                f'"{header.get("name")}" is not a valid header name',
            )
    if name in _PROBES:
        yield from _counts_of_probe(place, handler)


_HEADER: Final = re.compile(r"[-A-Za-z0-9]+\Z")


def _counts_of_probe(place: Path, probe: Spec) -> Iterator[Violation]:
    for field in _COUNTS:
        if (probe.get(field) or 0) < 0:
            yield Violation((*place, field), f"{field} is {probe[field]}: must not be negative")
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and place[-1] == "readinessProbe":
        yield Violation(
            (*place, "terminationGracePeriodSeconds"),
            "terminationGracePeriodSeconds is not allowed in a readinessProbe: remove it",
        )
    elif grace is not None and grace <= 0:
        yield Violation(
            (*place, "terminationGracePeriodSeconds"),
            f"terminationGracePeriodSeconds is {grace}: must be greater than 0",
        )


def wrong_port(port: Any, *, named: bool = True) -> str:
    """The fault of a port, set by number or name; empty if valid."""
    if isinstance(port, int):
        return (
            "" if 0 < port < 65536 else f"{port} is not a valid port: must be between 1 and 65535"
        )
    return (
        ""
        if named and object_names.port_name(str(port))
        else f'"{port}" is neither a port number nor a port name'
    )


def _only_in_those_that_run_on(way: Path, container: Spec) -> Iterator[Violation]:
    """Fields that only long-running containers have: probes and hooks are not allowed in an init
    container without restartPolicy Always (a sidecar).
    """
    if container.get("restartPolicy") == "Always":
        return
    for field in (*_PROBES, "lifecycle"):
        if container.get(field) is not None:
            yield Violation(
                (*way, field), f"{field} of an init container requires restartPolicy: Always"
            )
    for index, policy in enumerate(items(container.get("resizePolicy"))):
        if policy.get("restartPolicy") == "RestartContainer":
            yield Violation(
                (*way, "resizePolicy", index),
                "an init container is not restarted: set restartPolicy: NotRequired",
            )


def _restarts(way: Path, container: Spec) -> Iterator[Violation]:
    rules = items(container.get("restartPolicyRules"))
    if rules and container.get("restartPolicy") is None:
        yield Violation((*way, "restartPolicyRules"), "restartPolicyRules require a restartPolicy")
    if len(rules) > 20:
        yield Violation(
            (*way, "restartPolicyRules"), f"too many rules ({len(rules)}): at most 20 are allowed"
        )
    for index, rule in enumerate(rules):
        if rule.get("exitCodes") is None:
            yield Violation((*way, "restartPolicyRules", index), "the rule requires exitCodes")
    resources = set[str]()
    for index, policy in enumerate(items(container.get("resizePolicy"))):
        name = str(policy.get("resourceName"))
        if name not in ("cpu", "memory") or name in resources:
            yield Violation(
                (*way, "resizePolicy", index),
                f'"{name}" cannot be resized: only cpu and memory are allowed, each once',
            )
        resources.add(name)


def _ports(way: Path, container: Spec) -> Iterator[Violation]:
    for index, port in enumerate(items(container.get("ports"))):
        for field in ("containerPort", "hostPort"):
            number = port.get(field)
            if number is not None and not (
                0 < number < 65536 or (field == "hostPort" and number == 0)
            ):
                yield Violation(
                    (*way, "ports", index, field),
                    f"{number} is not a valid port: must be between 1 and 65535",
                )


_ALWAYS_FINE: Final = frozenset(("name", "mountPath", "readOnly"))


def _mounts(way: Path, container: Spec) -> Iterator[Violation]:
    privileged = section(container.get("securityContext")).get("privileged") is True
    for index, mount in enumerate(items(container.get("volumeMounts"))):
        if mount.keys() <= _ALWAYS_FINE:
            continue
        place = (*way, "volumeMounts", index)
        below = {field: str(mount.get(field) or "") for field in ("subPath", "subPathExpr")}
        for field, path in below.items():
            if path and (problem := wrong_descent(path)):
                yield Violation((*place, field), problem)
        if all(below.values()):
            yield Violation(place, "a mount must have either subPath or subPathExpr, not both")
        spread = mount.get("mountPropagation")
        if spread == "Bidirectional" and not privileged:
            yield Violation(
                (*place, "mountPropagation"),
                "mountPropagation Bidirectional requires a privileged container",
            )
        if mount.get("recursiveReadOnly") in ("Enabled", "IfPossible"):
            if not mount.get("readOnly"):
                yield Violation(
                    (*place, "recursiveReadOnly"), "recursiveReadOnly requires readOnly: true"
                )
            if spread not in (None, "None"):
                yield Violation(
                    (*place, "recursiveReadOnly"),
                    f"recursiveReadOnly and mountPropagation {spread} are mutually exclusive",
                )


def wrong_descent(path: str) -> str:
    """The fault of a path that must not leave its parent directory; empty if valid."""
    if path.startswith("/"):
        return f'"{path}" must be relative'
    return f'"{path}" must not contain ".."' if ".." in path.split("/") else ""


def users(place: Path, context: Spec, fields: Iterable[str]) -> Iterator[Violation]:
    """Violations of user and group IDs."""
    for field in fields:
        number = context.get(field)
        if number is not None and (problem := wrong_user(number)):
            yield Violation((*place, field), problem)


def wrong_user(number: int) -> str:
    """The fault of a user or group ID; empty if valid."""
    return (
        ""
        if 0 <= number <= _USER_AT_MOST
        else f"{number} is not a valid user or group ID: must be between 0 and {_USER_AT_MOST}"
    )


def profiles(place: Path, context: Spec) -> Iterator[Violation]:
    """Violations of the security profiles of a container or a pod: the type Localhost requires a
    file, and no other type allows one.
    """
    for field in ("seccompProfile", "appArmorProfile"):
        profile = section(context.get(field))
        file = profile.get("localhostProfile")
        if file is None:
            continue
        where = (*place, field, "localhostProfile")
        if profile.get("type") != "Localhost":
            yield Violation(
                where,
                f"localhostProfile requires type Localhost, not {profile.get('type')}",
            )
        elif field == "seccompProfile" and (problem := wrong_descent(file)):
            yield Violation(where, problem)
        elif field == "appArmorProfile" and (file != file.strip() or len(file.encode()) > 4095):
            yield Violation(
                where, "the profile name must not have surrounding spaces or more than 4,095 bytes"
            )


def _privileges(place: Path, context: Spec, spec: Spec) -> Iterator[Violation]:
    if context.get("allowPrivilegeEscalation") is False:
        added = section(context.get("capabilities")).get("add") or ()
        if context.get("privileged"):
            yield Violation(
                (*place, "allowPrivilegeEscalation"),
                "allowPrivilegeEscalation: false is not allowed in a privileged container",
            )
        if "CAP_SYS_ADMIN" in added:
            yield Violation(
                (*place, "allowPrivilegeEscalation"),
                "allowPrivilegeEscalation: false and the capability CAP_SYS_ADMIN are mutually "
                "exclusive",
            )
    mount = context.get("procMount")
    if mount == "Unmasked" and spec.get("hostUsers") is not False:
        yield Violation(
            (*place, "procMount"), "procMount Unmasked requires hostUsers: false in the pod"
        )


NOT_OF_WINDOWS: Final = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "runAsUser",
    "runAsGroup",
)
_NOT_OF_WINDOWS: Final = (
    *NOT_OF_WINDOWS,
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
)


def _not_of_windows(place: Path, context: Spec) -> Iterator[Violation]:
    for field in _NOT_OF_WINDOWS:
        if context.get(field) is not None:
            yield Violation((*place, field), f"{field} must not be set in a pod for Windows")
