"""What an API server refuses in a pod beyond its shape: amounts, tolerations, ports, volumes.

ValidatePodSpec in pkg/apis/core/validation/validation.go of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from gitops_ds.kinds import quantities
from gitops_ds.model.objects import Body, Path
from gitops_ds.validate import naming
from gitops_ds.validate.rule import at, containers, items, pod_specs, section

_AMOUNTS: Final[Mapping[str, tuple[Path, ...]]] = {
    "ResourceQuota": (("spec", "hard"),),
    "PersistentVolume": (("spec", "capacity"),),
    "PersistentVolumeClaim": (("spec", "resources", "requests"), ("spec", "resources", "limits")),
    "RuntimeClass": (("overhead", "podFixed"),),
}


def amounts(body: Body) -> Iterator[tuple[Path, str]]:
    """DS010: every quantity can be read, and none is below nothing."""
    for path, value in _quantities(body):
        try:
            amount = quantities.parse(value)
        except ValueError as wrong:
            yield path, str(wrong)
        else:
            if amount.numerator < 0:  # comparing fractions takes ten times as long
                yield path, f"{value} is below nothing"


def _quantities(body: Body) -> Iterator[tuple[Path, Any]]:
    for place in _AMOUNTS.get(str(body.get("kind")), ()):
        yield from _said(place, at(body, place))
    for way, container in containers(body):
        yield from _of_resources(way, container)
    for path, spec in pod_specs(body):
        yield from _said((*path, "overhead"), spec.get("overhead"))
        yield from _of_resources(path, spec)
        for index, volume in enumerate(items(spec.get("volumes"))):
            limit = section(volume.get("emptyDir")).get("sizeLimit")
            if limit is not None:
                yield (*path, "volumes", index, "emptyDir", "sizeLimit"), limit


def _of_resources(way: Path, holder: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    if resources := section(holder.get("resources")):
        for field in ("requests", "limits"):
            yield from _said((*way, "resources", field), resources.get(field))


def _said(place: Path, amounts: Any) -> Iterator[tuple[Path, Any]]:
    for name, value in section(amounts).items():
        if value is not None:
            yield (*place, name), value


def requests_within_limits(body: Body) -> Iterator[tuple[Path, str]]:
    """DS403: no request beyond its limit; what can't be shared (devices, huge pages) is asked for as it is limited."""
    for way, container in containers(body):
        resources = section(container.get("resources"))
        requests, limits = _known(resources.get("requests")), _known(resources.get("limits"))
        for name, wanted in requests.items():
            limit, path = limits.get(name), (*way, "resources", "requests", name)
            if limit is None:
                if _whole(name):
                    yield path, f"{name} can't be shared: give it a limit of the same amount"
            elif wanted > limit:
                yield (
                    path,
                    f"the request of {resources['requests'][name]} {name} is more than its limit of {resources['limits'][name]}",
                )
            elif _whole(name) and wanted != limit:
                yield path, f"{name} can't be shared: its request must be its limit, {resources['limits'][name]}"


def _known(amounts: Any) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for name, value in section(amounts).items():
        try:
            found[name] = quantities.parse(value)
        except ValueError:
            continue  # DS010 tells
    return found


def _whole(name: str) -> bool:
    domain, slash, _ = name.rpartition("/")
    return name.startswith("hugepages-") or bool(slash and not domain.endswith("kubernetes.io"))


def tolerations(body: Body) -> Iterator[tuple[Path, str]]:
    """DS304: tolerations that can't be meant."""
    for path, spec in pod_specs(body):
        for index, one in enumerate(items(spec.get("tolerations"))):
            way = (*path, "tolerations", index)
            key, operator, value = one.get("key") or "", one.get("operator") or "Equal", one.get("value") or ""
            if key and not naming.qualified(key):
                yield (*way, "key"), f'"{key}" is no key of a taint'
            if not key and operator != "Exists":
                yield way, "a toleration without a key needs operator: Exists"
            if operator == "Exists" and value:
                yield (*way, "value"), f'operator Exists takes no value: remove "{value}", or write operator: Equal'
            if operator == "Equal" and not naming.label_value(value):
                yield (*way, "value"), f'"{value}" is no value of a taint'
            if one.get("tolerationSeconds") is not None and one.get("effect") != "NoExecute":
                yield (*way, "tolerationSeconds"), "tolerationSeconds needs effect: NoExecute"


def port_numbers(body: Body) -> Iterator[tuple[Path, str]]:
    """DS006: ports from 1 to 65535."""
    for way, container in containers(body):
        for index, port in enumerate(items(container.get("ports"))):
            for field in ("containerPort", "hostPort"):
                number = port.get(field)
                if number is not None and not (0 < number < 65536 or (field == "hostPort" and number == 0)):
                    yield (*way, "ports", index, field), f"{number} is no port: write a number from 1 to 65535"


def host_ports(body: Body) -> Iterator[tuple[Path, str]]:
    """DS515: on the host's network a container port is the host's."""
    for path, spec in pod_specs(body):
        if not spec.get("hostNetwork"):
            continue
        for way, container in containers(body):
            for index, port in enumerate(items(container.get("ports"))):
                host, own = port.get("hostPort"), port.get("containerPort")
                if way[: len(path)] == path and host and host != own:
                    yield (
                        (*way, "ports", index, "hostPort"),
                        f"with hostNetwork the hostPort must be the containerPort, {own}, not {host}",
                    )


def volumes(body: Body) -> Iterator[tuple[Path, str]]:
    """DS415: every mount has its volume, and every volume one source."""
    claims = {section(one.get("metadata")).get("name") for one in items(at(body, ("spec", "volumeClaimTemplates")))}
    for path, spec in pod_specs(body):
        named = {volume.get("name") for volume in items(spec.get("volumes"))} | claims
        for index, volume in enumerate(items(spec.get("volumes"))):
            sources = [field for field, value in volume.items() if field != "name" and value is not None]
            if len(sources) > 1:
                yield (
                    (*path, "volumes", index),
                    f'the volume "{volume.get("name")}" has {" and ".join(sources)}: it takes one of them',
                )
        for way, container in containers(body):
            for field in ("volumeMounts", "volumeDevices"):
                for index, mount in enumerate(items(container.get(field))):
                    if mount.get("name") not in named:
                        known = ", ".join(sorted(str(name) for name in named)) or "none"
                        message = f'there is no volume "{mount.get("name")}": the pod has {known}'
                        yield (*way, field, index, "name"), message


def one_name(body: Body) -> Iterator[tuple[Path, str]]:
    """DS414: init containers and containers share their names (the schema tells of twins in one list)."""
    for path, spec in pod_specs(body):
        seen = {one.get("name") for one in items(spec.get("initContainers"))}
        for index, one in enumerate(items(spec.get("containers"))):
            if one.get("name") in seen:
                yield (
                    (*path, "containers", index, "name"),
                    f'an init container is called "{one.get("name")}" too: rename one of them',
                )
