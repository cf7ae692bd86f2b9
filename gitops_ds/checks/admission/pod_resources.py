"""Validation of pods by the API server: quantities, tolerations, ports, volumes.

Source: ValidatePodSpec in pkg/apis/core/validation/validation.go of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gitops_ds.checks.admission import object_names
from gitops_ds.checks.engine.rule import Violation, at, containers, items, pod_specs, rule, section
from gitops_ds.checks.schema import error_messages
from gitops_ds.core.finding import Fix, Mend, refused
from gitops_ds.core.objects import Body, Path
from gitops_ds.kube.apimachinery import quantities

_AMOUNTS: Final[Mapping[str, tuple[Path, ...]]] = {
    "ResourceQuota": (("spec", "hard"),),
    "PersistentVolume": (("spec", "capacity"),),
    "PersistentVolumeClaim": (("spec", "resources", "requests"), ("spec", "resources", "limits")),
    "RuntimeClass": (("overhead", "podFixed"),),
}


@rule(refused("DS010", "quantity is invalid"))
def amounts(body: Body) -> Iterator[Violation]:
    """Invalid and negative quantities."""
    for path, value in _quantities(body):
        try:
            amount = quantities.parse(value)
        except ValueError as wrong:
            meant = _meant(str(value))
            yield (
                Violation(path, str(wrong), Fix(f"write {meant}", (Mend(path, meant),)))
                if meant
                else Violation(path, str(wrong))
            )
        else:
            if amount.numerator < 0:  # comparing fractions takes ten times as long
                yield Violation(path, f"{value} must not be negative")


_SLIP: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]i?)b?\Z", re.IGNORECASE | re.ASCII)
# By the lower-case suffix. A lower-case m is a valid suffix (milli).
_SUFFIXES: Final = {
    suffix.lower(): suffix for suffix in ("k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti")
}


def _meant(text: str) -> str:
    """The valid quantity for a typo: a suffix in the wrong case, with the B of bytes, or after a
    space; empty without one.
    """
    match = _SLIP.match(text)
    return f"{match[1]}{_SUFFIXES[match[2].lower()]}" if match else ""


def _quantities(body: Body) -> Iterator[tuple[Path, Any]]:
    for place in _AMOUNTS.get(str(body.get("kind")), ()):
        yield from _amounts_of(place, at(body, place))
    for way, container in containers(body):
        yield from _of_resources(way, container)
    for path, spec in pod_specs(body):
        yield from _amounts_of((*path, "overhead"), spec.get("overhead"))
        yield from _of_resources(path, spec)
        for index, volume in enumerate(items(spec.get("volumes"))):
            if (claim := section(volume.get("ephemeral")).get("volumeClaimTemplate")) is not None:
                yield from _of_resources(
                    (*path, "volumes", index, "ephemeral", "volumeClaimTemplate", "spec"),
                    section(claim.get("spec")),
                )
            limit = section(volume.get("emptyDir")).get("sizeLimit")
            if limit is not None:
                yield (*path, "volumes", index, "emptyDir", "sizeLimit"), limit


def _of_resources(way: Path, holder: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    if resources := section(holder.get("resources")):
        for field in ("requests", "limits"):
            yield from _amounts_of((*way, "resources", field), resources.get(field))


def _amounts_of(place: Path, amounts: Any) -> Iterator[tuple[Path, Any]]:
    for name, value in section(amounts).items():
        if value is not None:
            yield (*place, name), value


_INTEGER: Final = re.compile(r"(?:0|-?[1-9][0-9]{0,17})\Z")


@rule(refused("DS304", "toleration is invalid"))
def tolerations(body: Body) -> Iterator[Violation]:
    """Invalid tolerations."""
    for path, spec in pod_specs(body):
        for index, toleration in enumerate(items(spec.get("tolerations"))):
            way = (*path, "tolerations", index)
            key, operator, value = (
                toleration.get("key") or "",
                toleration.get("operator") or "Equal",
                toleration.get("value") or "",
            )
            if key and not object_names.qualified(key):
                yield Violation((*way, "key"), f'"{key}" is not a valid taint key')
            if not key and operator != "Exists":
                message = "a toleration without a key requires operator: Exists"
                yield (
                    Violation(way, message)
                    if value
                    else Violation(way, message, _written((*way, "operator"), "Exists"))
                )
            if operator == "Exists" and value:
                message = (
                    f'operator Exists does not allow a value: remove "{value}", or use operator: '
                    f"Equal"
                )
                # The value still applies, so the fix tolerates no further taints.
                equal = _written((*way, "operator"), "Equal")
                yield Violation(
                    (*way, "value"), message, equal if key else _written((*way, "value"), None)
                )
            if operator == "Equal" and not object_names.label_value(value):
                yield Violation((*way, "value"), f'"{value}" is not a valid taint value')
            if operator in ("Gt", "Lt") and not _INTEGER.match(value):
                yield Violation(
                    (*way, "value"), f'operator {operator} requires an integer, not "{value}"'
                )
            if (
                toleration.get("tolerationSeconds") is not None
                and toleration.get("effect") != "NoExecute"
            ):
                seconds = (*way, "tolerationSeconds")
                yield Violation(
                    seconds, "tolerationSeconds requires effect: NoExecute", _written(seconds, None)
                )


def _written(path: Path, value: str | None) -> Fix:
    return Fix(
        f"remove {path[-1]}" if value is None else f"{path[-1]}: {value}", (Mend(path, value),)
    )


@rule(refused("DS515", "hostPort must equal containerPort with hostNetwork"))
def host_ports(body: Body) -> Iterator[Violation]:
    """On the host network a hostPort must equal the containerPort."""
    for _, spec in pod_specs(body):
        if not spec.get("hostNetwork"):
            continue
        for way, container in containers(body):
            for index, port in enumerate(items(container.get("ports"))):
                host, own = port.get("hostPort"), port.get("containerPort")
                if way[-2] == "containers" and host and host != own:
                    path = (*way, "ports", index, "hostPort")
                    message = (
                        f"with hostNetwork hostPort must equal containerPort {own}, not {host}"
                    )
                    yield Violation(
                        path, message, Fix(f"hostPort: {own}", (Mend(path, own),), safe=True)
                    )


@rule(refused("DS415", "mount without a volume, or volume with several sources"))
def volumes(body: Body) -> Iterator[Violation]:
    """Each mount requires a volume, and each volume exactly one source."""
    claims = {
        section(template.get("metadata")).get("name")
        for template in items(at(body, ("spec", "volumeClaimTemplates")))
    }
    for path, spec in pod_specs(body):
        named = {volume.get("name") for volume in items(spec.get("volumes"))} | claims
        for index, volume in enumerate(items(spec.get("volumes"))):
            sources = [
                field for field, value in volume.items() if field != "name" and value is not None
            ]
            if len(sources) > 1:
                yield Violation(
                    (*path, "volumes", index),
                    f'the volume "{volume.get("name")}" has {" and ".join(sources)}: it takes one '
                    "of them",
                )
        for way, container in containers(body):
            for field in ("volumeMounts", "volumeDevices"):
                for index, mount in enumerate(items(container.get(field))):
                    if mount.get("name") not in named:
                        names = ", ".join(sorted(str(name) for name in named)) or "none"
                        message = f'volume "{mount.get("name")}" not found: the pod has {names}'
                        yield Violation((*way, field, index, "name"), message)


@rule(error_messages.DUPLICATE)
def once(body: Body) -> Iterator[Violation]:
    """Duplicate names of containers and ports, host ports and mount paths. The schema finds
    duplicates in lists with keys.
    """
    for path, spec in pod_specs(body):
        seen = {container.get("name") for container in items(spec.get("initContainers"))}
        ports: set[tuple[Any, ...]] = set()
        for index, container in enumerate(items(spec.get("containers"))):
            if container.get("name") in seen:
                yield Violation(
                    (*path, "containers", index, "name"),
                    f'an init container has the name "{container.get("name")}" as well: rename '
                    f"one of them",
                )
        for way, container in containers(body):
            yield from _ports_once(way, container, ports if way[-2] == "containers" else set())
            yield from _mounts_once(way, container)


def _ports_once(
    way: Path, container: Mapping[str, Any], taken: set[tuple[Any, ...]]
) -> Iterator[Violation]:
    names = set[str]()
    for index, port in enumerate(items(container.get("ports"))):
        name, place = port.get("name"), (*way, "ports", index)
        if name and name in names:
            yield Violation(
                (*place, "name"), f'another port has the name "{name}" as well: rename one of them'
            )
        names.add(name)
        if not (host := port.get("hostPort")):
            continue
        which = (port.get("protocol") or "TCP", port.get("hostIP") or "", host)
        if which in taken:
            yield Violation((*place, "hostPort"), f"host port {host} is duplicated in the pod")
        taken.add(which)


def _mounts_once(way: Path, container: Mapping[str, Any]) -> Iterator[Violation]:
    places, named = set[str](), set[str]()
    for field, key in (("volumeMounts", "mountPath"), ("volumeDevices", "devicePath")):
        for index, mount in enumerate(items(container.get(field))):
            path, name = mount.get(key), mount.get("name")
            if path and path in places:
                yield Violation(
                    (*way, field, index, key), f'"{path}" is already the path of another volume'
                )
            if field == "volumeDevices" and name in named:
                yield Violation(
                    (*way, field, index, "name"),
                    f'the volume "{name}" is already mounted: a device must be used once',
                )
            places.add(path)
            named.add(name)
