"""Validation of containers by the API server: variables, probes, hooks, mounts, privileges.

Source: validateContainerCommon in pkg/apis/core/validation/validation.go of Kubernetes. An empty
string is an absent field, and so is a 0 for which a default exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from gitops_ds.apimachinery import quantities
from gitops_ds.checks.admission import object_names
from gitops_ds.checks.engine.rule import Spec, Violation, containers, items, pod_specs, section
from gitops_ds.model.objects import Body, Path

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS: Final = ("postStart", "preStop")
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_COUNTS: Final = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_USER_AT_MOST: Final = (1 << 31) - 1


def missing(body: Body) -> Iterator[Violation]:
    """DS005: required fields of a container."""
    for way, container in containers(body):
        for field in ("name", "image"):
            if container.get(field) == "" or (field == "image" and container.get(field) is None):
                yield Violation((*way, field), f"{field} of the container is required")
        if "env" in container or "envFrom" in container:
            yield from _missing_of_variables(way, container)
        for place, handler in _handlers(way, container):
            if not any(handler.get(one) is not None for one in _HANDLERS):
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


def _missing_of_variables(way: Path, container: Spec) -> Iterator[Violation]:
    for index, one in enumerate(items(container.get("env"))):
        if one.get("name") == "":
            yield Violation((*way, "env", index, "name"), "the name of the variable is required")
        source = one.get("valueFrom")
        if source is None:
            continue
        place = (*way, "env", index, "valueFrom")
        if not any(source.get(field) is not None for field in _SOURCES):
            yield Violation(place, f"valueFrom has no source: set one of {', '.join(_SOURCES[:4])}")
        for field, keys in (
            ("configMapKeyRef", ("name", "key")),
            ("secretKeyRef", ("name", "key")),
            ("fieldRef", ("fieldPath",)),
            ("resourceFieldRef", ("resource",)),
        ):
            if (reference := source.get(field)) is not None:
                for key in keys:
                    if not reference.get(key):
                        yield Violation((*place, field), f"{field} requires a {key}")
    for index, one in enumerate(items(container.get("envFrom"))):
        place = (*way, "envFrom", index)
        named = [field for field in ("configMapRef", "secretRef") if one.get(field) is not None]
        if not named:
            yield Violation(place, "envFrom has no source: set configMapRef or secretRef")
        for field in named:
            if not one[field].get("name"):
                yield Violation((*place, field), f"{field} requires a name")


def missing_of_profile(way: Path, context: Spec, field: str) -> Iterator[Violation]:
    """DS005: the required fields of a security profile: its type, and the file of the type
    Localhost.
    """
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
    """DS006: values of a container's fields that are not allowed, alone or in combination."""
    for _, spec in pod_specs(body):
        windows = section(spec.get("os")).get("name") == "windows"
        for way, container in containers(body):
            # Most containers lack most of these fields: an absent field costs no check.
            if "env" in container or "envFrom" in container:
                yield from _variables(way, container)
                yield from _files_of_variables(way, container, spec)
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


def _variables(way: Path, container: Spec) -> Iterator[Violation]:
    for index, one in enumerate(items(container.get("env"))):
        source = one.get("valueFrom")
        if source is None:
            continue
        place = (*way, "env", index, "valueFrom")
        sources = [field for field in _SOURCES if source.get(field) is not None]
        if sources and one.get("value"):
            yield Violation(place, "a variable must have either value or valueFrom, not both")
        elif len(sources) > 1:
            yield Violation(place, f"valueFrom has {' and '.join(sources)}: only one is allowed")
        if reference := source.get("fieldRef"):
            yield from field_of_pod((*place, "fieldRef"), reference, _FIELDS_OF_VARIABLES)
        if reference := source.get("resourceFieldRef"):
            yield from resource_of_container((*place, "resourceFieldRef"), reference)
    for index, one in enumerate(items(container.get("envFrom"))):
        if one.get("configMapRef") is not None and one.get("secretRef") is not None:
            yield Violation(
                (*way, "envFrom", index),
                "envFrom has configMapRef and secretRef: only one is allowed",
            )


_FIELDS_OF_VARIABLES: Final = frozenset(
    (
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.host",  # the old name of nodeName
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    )
)
FIELDS_OF_FILES: Final = frozenset(
    (
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.labels",
        "metadata.annotations",
    )
)
_SUBSCRIPT: Final = re.compile(r"(.+?)\['(.*)'\]\Z", re.DOTALL)
_OF_CONTAINERS: Final = frozenset(
    f"{kind}.{name}"
    for kind in ("limits", "requests")
    for name in ("cpu", "memory", "ephemeral-storage")
)
_DIVISORS: Final = frozenset(
    (
        "1",
        *(
            f"1{unit}"
            for unit in ("k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
        ),
    )
)


def field_of_pod(place: Path, reference: Spec, fields: Iterable[str]) -> Iterator[Violation]:
    """Violations of a fieldRef. Source:
    https://kubernetes.io/docs/concepts/workloads/pods/downward-api/
    """
    path = str(reference.get("fieldPath") or "")
    if (reference.get("apiVersion") or "v1") != "v1":
        yield Violation(
            (*place, "apiVersion"),
            f'apiVersion of a fieldRef must be v1, not "{reference["apiVersion"]}"',
        )
    elif part := _SUBSCRIPT.match(path):
        key = part[2].lower() if part[1] == "metadata.annotations" else part[2]
        if part[1] not in ("metadata.labels", "metadata.annotations") or not object_names.qualified(
            key
        ):
            yield Violation(
                (*place, "fieldPath"),
                f"\"{path}\" is not a field: use metadata.labels['KEY'] or "
                "metadata.annotations['KEY']",
            )
    elif path and path not in fields:
        yield Violation(
            (*place, "fieldPath"),
            f'"{path}" is not available here: use one of {", ".join(sorted(fields))}',
        )


def resource_of_container(place: Path, reference: Spec) -> Iterator[Violation]:
    """Violations of a resourceFieldRef."""
    resource = str(reference.get("resource") or "")
    if (
        resource
        and resource not in _OF_CONTAINERS
        and not resource.startswith(("limits.hugepages-", "requests.hugepages-"))
    ):
        yield Violation(
            (*place, "resource"),
            f'"{resource}" is not a container resource: use limits.cpu, requests.memory and so on',
        )
    try:
        divisor = quantities.canonical(reference.get("divisor") or 0)
    except ValueError as wrong:
        yield Violation((*place, "divisor"), str(wrong))
        return
    if divisor != "0" and divisor not in (("1", "1m") if resource.endswith(".cpu") else _DIVISORS):
        known = "1 or 1m" if resource.endswith(".cpu") else "1 with a unit or without, such as 1Mi"
        yield Violation(
            (*place, "divisor"), f"the divisor of {resource} must be {known}, not {divisor}"
        )


def _handler(place: Path, handler: Spec) -> Iterator[Violation]:
    name = str(place[-1])
    sources = [one for one in _HANDLERS if handler.get(one) is not None]
    if len(sources) > 1:
        yield Violation(place, f"{name} has {' and '.join(sources)}: only one is allowed")
    for one in ("httpGet", "tcpSocket", "grpc"):
        port = section(handler.get(one)).get("port")
        if port is not None and (problem := wrong_port(port, named=one != "grpc")):
            yield Violation((*place, one, "port"), problem)
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


def _files_of_variables(way: Path, container: Spec, spec: Spec) -> Iterator[Violation]:
    """Violations of a variable from a file: the file must be in an emptyDir of the pod."""
    for index, one in enumerate(items(container.get("env"))):
        reference = (one.get("valueFrom") or {}).get("fileKeyRef")
        if reference is not None:
            name = reference.get("volumeName")
            volumes = (
                volume for volume in items(spec.get("volumes")) if volume.get("name") == name
            )
            if next((volume.get("emptyDir") for volume in volumes), None) is None:
                yield Violation(
                    (*way, "env", index, "valueFrom", "fileKeyRef", "volumeName"),
                    f'"{name}" is not an emptyDir volume of the pod',
                )
