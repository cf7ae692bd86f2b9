"""Validation of the fields of a pod by the API server: network, host namespaces, users, topology
spread.

Source: ValidatePodSpec in pkg/apis/core/validation/validation.go of Kubernetes.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gitops_ds.checks.admission import containers as admission_containers
from gitops_ds.checks.admission import label_selectors, object_names
from gitops_ds.checks.engine.rule import (
    Spec,
    Violation,
    at,
    containers,
    items,
    pod_path,
    pod_specs,
    section,
)
from gitops_ds.core.objects import Body, Path

# Fields that most pods lack: an absent field costs no check.
_SELDOM_MISSING: Final = frozenset(
    ("dnsPolicy", "dnsConfig", "topologySpreadConstraints", "os", "securityContext")
)
_SELDOM_WRONG: Final = frozenset(
    (
        *(
            "shareProcessNamespace",
            "hostUsers",
            "hostnameOverride",
            "dnsConfig",
            "hostAliases",
            "securityContext",
        ),
        *("topologySpreadConstraints", "os", "ephemeralContainers"),
    )
)


def missing(body: Body) -> Iterator[Violation]:
    """Required fields of a pod."""
    template = pod_path(body)
    if template is not None and not pod_specs(body) and isinstance(at(body, template), Mapping):
        yield Violation(template, "spec of the template is required")
    for path, spec in pod_specs(body):
        if spec.get("containers") == []:
            yield Violation((*path, "containers"), "the pod has no container")
        if _SELDOM_MISSING.isdisjoint(spec):
            continue
        if spec.get("dnsPolicy") == "None" and not section(spec.get("dnsConfig")).get(
            "nameservers"
        ):
            yield Violation(
                (*path, "dnsConfig"), "dnsPolicy None requires dnsConfig with nameservers"
            )
        if (config := spec.get("dnsConfig")) is not None:
            for index, option in enumerate(items(config.get("options"))):
                if not option.get("name"):
                    yield Violation(
                        (*path, "dnsConfig", "options", index), "the name of the option is required"
                    )
        for index, constraint in enumerate(items(spec.get("topologySpreadConstraints"))):
            for field in ("topologyKey", "whenUnsatisfiable"):
                if constraint.get(field) == "":
                    yield Violation(
                        (*path, "topologySpreadConstraints", index, field),
                        f"{field} is required and must not be empty",
                    )
        if section(spec.get("os")).get("name") == "":
            yield Violation((*path, "os", "name"), "os requires a name: linux or windows")
        if (context := spec.get("securityContext")) is not None:
            yield from _missing_of_security((*path, "securityContext"), context)


def _missing_of_security(way: Path, context: Spec) -> Iterator[Violation]:
    for field in ("seccompProfile", "appArmorProfile"):
        yield from admission_containers.missing_of_profile(way, context, field)
    for index, sysctl in enumerate(items(context.get("sysctls"))):
        if sysctl.get("name") == "":
            yield Violation((*way, "sysctls", index, "name"), "the name of the sysctl is required")


def values(body: Body) -> Iterator[Violation]:
    """Values of a pod's fields that are not allowed, alone or in combination."""
    for path, spec in pod_specs(body):
        metadata = (*path[:-1], "metadata")
        if annotations := section(at(body, metadata)).get("annotations"):
            yield from _annotations((*metadata, "annotations"), annotations, spec, body)
        yield from _windows(path, spec, body)
        if _SELDOM_WRONG.isdisjoint(spec):
            continue
        yield from _host(path, spec)
        if (config := spec.get("dnsConfig")) is not None:
            yield from _dns((*path, "dnsConfig"), config)
        for index, alias in enumerate(items(spec.get("hostAliases"))):
            if not is_address(str(alias.get("ip") or "")):
                yield Violation(
                    (*path, "hostAliases", index, "ip"),
                    f'"{alias.get("ip")}" is not a valid IP address',
                )
        if (context := spec.get("securityContext")) is not None:
            yield from _security((*path, "securityContext"), context)
            yield from _sysctls(
                (*path, "securityContext", "sysctls"), items(context.get("sysctls")), spec
            )
        yield from _spreading(
            (*path, "topologySpreadConstraints"), items(spec.get("topologySpreadConstraints"))
        )
        if (system := section(spec.get("os")).get("name")) is not None:
            yield from _of_system(path, spec, system, body)
        if spec.get("ephemeralContainers") and path:
            yield Violation(
                (*path, "ephemeralContainers"),
                "ephemeralContainers must not be set in a template: they are added to running pods",
            )


def _host(path: Path, spec: Spec) -> Iterator[Violation]:
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        yield Violation(
            (*path, "shareProcessNamespace"),
            "shareProcessNamespace and hostPID are mutually exclusive",
        )
    if spec.get("hostUsers") is False:
        for field in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(field):
                yield Violation(
                    (*path, field), f"hostUsers: false and {field} are mutually exclusive"
                )
    if (name := spec.get("hostnameOverride")) is not None:
        for field in ("setHostnameAsFQDN", "hostNetwork"):
            if spec.get(field):
                yield Violation(
                    (*path, "hostnameOverride"),
                    f"hostnameOverride and {field} are mutually exclusive",
                )
        if len(name) > 64 or not object_names.subdomain(name):
            yield Violation((*path, "hostnameOverride"), f'"{name}" is not a valid host name')


_APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP: Final = (
    "seccomp.security.alpha.kubernetes.io/pod",
    "container.seccomp.security.alpha.kubernetes.io/",
)
_OLD_WORDS: Final = {"RuntimeDefault": "runtime/default", "Unconfined": "unconfined"}


def _apparmor_of(name: str, spec: Spec, body: Body) -> str | None:
    """The effective AppArmor profile of a container, as an annotation value."""
    own = next(
        (
            section(container.get("securityContext"))
            for _, container in containers(body)
            if container.get("name") == name
        ),
        {},
    )
    profile = own.get("appArmorProfile") or section(spec.get("securityContext")).get(
        "appArmorProfile"
    )
    if profile is None or section(spec.get("os")).get("name") == "windows":
        return None
    return _OLD_WORDS.get(str(profile.get("type")), f"localhost/{profile.get('localhostProfile')}")


_COST: Final = re.compile(r"(?:0|-?[1-9][0-9]{0,9})\Z")


def _annotations(way: Path, annotations: Spec, spec: Spec, body: Body) -> Iterator[Violation]:
    """Violations of the annotations of a pod that the API server interprets. Most are predecessors
    of fields.
    """
    for key, value in annotations.items():
        text, place = str(value or ""), (*way, key)
        if key.startswith(_APPARMOR):
            if key.removeprefix(_APPARMOR) not in {
                container.get("name") for _, container in containers(body)
            }:
                yield Violation(place, f'the pod has no container "{key.removeprefix(_APPARMOR)}"')
            if text not in ("", "runtime/default", "unconfined") and not text.startswith(
                "localhost/"
            ):
                yield Violation(place, f'"{text}" is not a valid AppArmor profile')
            elif (field := _apparmor_of(key.removeprefix(_APPARMOR), spec, body)) not in (
                None,
                text,
            ):
                yield Violation(
                    place,
                    f"the annotation ({text}) contradicts appArmorProfile ({field}): remove the "
                    f"annotation",
                )
        elif key == _SECCOMP[0] or key.startswith(_SECCOMP[1]):
            local = text.startswith("localhost/") and not admission_containers.wrong_descent(
                text.removeprefix("localhost/")
            )
            if text not in ("runtime/default", "docker/default", "unconfined") and not local:
                yield Violation(place, f'"{text}" is not a valid seccomp profile')
        elif key == "controller.kubernetes.io/pod-deletion-cost":
            if not _COST.match(text) or not -(1 << 31) <= int(text) < 1 << 31:
                yield Violation(place, f'"{text}" is not a 32-bit integer')
        elif key == "kubernetes.io/config.mirror" and not spec.get("nodeName"):
            yield Violation(place, "only static pods of a node may have this annotation: remove it")


def _dns(way: Path, config: Spec) -> Iterator[Violation]:
    servers = config.get("nameservers") or ()
    if len(servers) > 3:
        yield Violation((*way, "nameservers"), f"{len(servers)} nameservers: at most 3 are allowed")
    for index, server in enumerate(servers):
        if not is_address(server or ""):
            yield Violation((*way, "nameservers", index), f'"{server}" is not a valid IP address')
    searches = [search or "" for search in config.get("searches") or ()]
    if len(searches) > 32 or len(" ".join(searches).encode()) > 2048:
        yield Violation(
            (*way, "searches"),
            "searches must have at most 32 domains and 2,048 characters in total",
        )
    for index, search in enumerate(searches):
        name = search.removesuffix(".")
        if search != "." and (len(name) > 253 or not _SEARCH.match(name)):
            yield Violation((*way, "searches", index), f'"{search}" is not a valid domain')


_SEARCH: Final = re.compile(
    r"_?[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?(?:\._?[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?)*\Z"
)


def is_address(text: str) -> bool:
    """Whether a string is an IP address of the strict form of newer versions of Kubernetes: without
    leading zeros and without IPv4-mapped IPv6.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text and getattr(address, "ipv4_mapped", None) is None


_SYSCTL: Final = re.compile(
    r"(?:[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?\Z"
)


def _security(way: Path, context: Spec) -> Iterator[Violation]:
    yield from admission_containers.users(way, context, ("runAsUser", "runAsGroup", "fsGroup"))
    yield from admission_containers.profiles(way, context)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        if problem := admission_containers.wrong_user(group):
            yield Violation((*way, "supplementalGroups", index), problem)


_OF_IPC: Final = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")


def _sysctls(way: Path, sysctls: Sequence[Spec], spec: Spec) -> Iterator[Violation]:
    seen = set[str]()
    for index, sysctl in enumerate(sysctls):
        name, place = str(sysctl.get("name") or ""), (*way, index, "name")
        if name and (len(name) > 253 or not _SYSCTL.match(name)):
            yield Violation(place, f'"{name}" is not a valid sysctl name')
        elif name in seen:
            yield Violation(place, f'the sysctl "{name}" is duplicated')
        seen.add(name)
        dotted = name.replace("/", ".")
        if dotted.startswith("net.") and spec.get("hostNetwork"):
            yield Violation(
                place, f"{name} is a sysctl of the node with hostNetwork: remove one of them"
            )
        if dotted.startswith(_OF_IPC) and spec.get("hostIPC"):
            yield Violation(
                place, f"{name} is a sysctl of the node with hostIPC: remove one of them"
            )


def _spreading(way: Path, constraints: Sequence[Spec]) -> Iterator[Violation]:
    seen = set[tuple[Any, Any]]()
    for index, constraint in enumerate(constraints):
        place = (*way, index)
        if (constraint.get("maxSkew") or 0) <= 0:
            yield Violation(
                (*place, "maxSkew"),
                f"maxSkew is {constraint.get('maxSkew')}: must be greater than 0",
            )
        domains = constraint.get("minDomains")
        if domains is not None and (
            domains <= 0 or constraint.get("whenUnsatisfiable") != "DoNotSchedule"
        ):
            yield Violation(
                (*place, "minDomains"),
                "minDomains must be greater than 0 and requires whenUnsatisfiable: DoNotSchedule",
            )
        which = (constraint.get("topologyKey"), constraint.get("whenUnsatisfiable"))
        if which in seen:
            yield Violation(place, f"{which[0]} and {which[1]} are duplicated")
        seen.add(which)
        yield from label_selectors.selector(
            (*place, "labelSelector"), constraint.get("labelSelector")
        )
        yield from label_selectors.label_keys(place, constraint)


def _containers(spec: Spec) -> Iterator[Spec]:
    for group in ("containers", "initContainers"):
        yield from items(spec.get(group))


def _windows(path: Path, spec: Spec, body: Body) -> Iterator[Violation]:
    """Violations of the Windows options: if one container is a host process, all containers of the
    pod must be, on the host network.
    """
    if not any(
        "windowsOptions" in section(container.get("securityContext"))
        for container in (spec, *_containers(spec))
    ):
        return
    own = section(section(spec.get("securityContext")).get("windowsOptions"))
    each = [
        (
            (*way, "securityContext", "windowsOptions"),
            section(section(container.get("securityContext")).get("windowsOptions")),
        )
        for way, container in containers(body)
    ]
    for place, options in [((*path, "securityContext", "windowsOptions"), own), *each]:
        for field in ("runAsUserName", "gmsaCredentialSpec", "gmsaCredentialSpecName"):
            if options.get(field) == "":
                yield Violation((*place, field), f"{field} is empty: remove it")
        if (name := options.get("gmsaCredentialSpecName")) and not object_names.subdomain(name):
            yield Violation(
                (*place, "gmsaCredentialSpecName"), f'"{name}" is not a valid object name'
            )
    host_process = own.get("hostProcess")
    for place, options in each:
        if host_process is not None and options.get("hostProcess") not in (None, host_process):
            yield Violation(
                (*place, "hostProcess"),
                f"hostProcess must equal the pod's value, {str(host_process).lower()}",
            )
    hosts = [
        host_process if options.get("hostProcess") is None else options["hostProcess"]
        for _, options in each
    ]
    if any(hosts):
        if not all(hosts):
            yield Violation(
                (*path, "containers"),
                "hostProcess must be set on all containers or on none",
            )
        if not spec.get("hostNetwork"):
            yield Violation((*path, "hostNetwork"), "hostProcess requires hostNetwork: true")


_ONLY_LINUX: Final = ("hostUsers", "shareProcessNamespace", "resources")


def _of_system(path: Path, spec: Spec, system: str, body: Body) -> Iterator[Violation]:
    contexts = [((*path, "securityContext"), section(spec.get("securityContext")))]
    contexts += [
        ((*way, "securityContext"), section(container.get("securityContext")))
        for way, container in containers(body)
    ]
    if system == "linux":
        for place, context in contexts:
            if context.get("windowsOptions") is not None:
                yield Violation(
                    (*place, "windowsOptions"), "windowsOptions must not be set in a pod for Linux"
                )
    if system == "windows":
        of_linux = (
            *admission_containers.NOT_OF_WINDOWS,
            *(
                "fsGroup",
                "fsGroupChangePolicy",
                "sysctls",
                "supplementalGroups",
                "supplementalGroupsPolicy",
                "seLinuxChangePolicy",
            ),
        )
        for field in of_linux:
            if contexts[0][1].get(field) not in (None, []):
                yield Violation(
                    (*contexts[0][0], field), f"{field} must not be set in a pod for Windows"
                )
        for field in ("hostPID", "hostIPC"):
            if spec.get(field):
                yield Violation((*path, field), f"{field} must not be set in a pod for Windows")
        for field in _ONLY_LINUX:
            if spec.get(field) is not None:
                yield Violation((*path, field), f"{field} must not be set in a pod for Windows")
