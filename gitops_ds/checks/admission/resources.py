"""Resources of containers and pods: names, whole amounts, huge pages, claims, and resources of the
pod as a whole.

Source: validateResourceRequirements and validatePodResources in
pkg/apis/core/validation/validation.go of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from gitops_ds.checks.admission import object_names
from gitops_ds.checks.engine.rule import (
    Spec,
    Violation,
    containers,
    items,
    pod_specs,
    rule,
    section,
)
from gitops_ds.core.finding import refused
from gitops_ds.core.objects import Body, Path
from gitops_ds.kube.apimachinery import quantities

_OF_CONTAINERS: Final = frozenset(("cpu", "memory", "ephemeral-storage"))
_OF_PODS: Final = frozenset(("cpu", "memory"))
_HUGE: Final = "hugepages-"
_GROUPS: Final = ("containers", "initContainers")


def valid_amounts(amounts: Any) -> dict[str, Fraction]:
    """The valid amounts, rounded up as the API server does. DS010 reports the others."""
    valid: dict[str, Fraction] = {}
    for name, value in section(amounts).items():
        try:
            valid[name] = Fraction(0) if value is None else quantities.parse(value)
        except ValueError:
            continue
    return valid


@rule(refused("DS403", "request exceeds its limit"))
def requests_within_limits(body: Body) -> Iterator[Violation]:
    """A request must not exceed its limit, and must equal it for devices and huge pages."""
    for way, container in containers(body):
        if resources := section(container.get("resources")):
            yield from _requests((*way, "resources"), resources)
    for path, spec in pod_specs(body):
        for name, amount in valid_amounts(spec.get("overhead")).items():
            if name not in _OF_CONTAINERS:
                yield from _resource((*path, "overhead", name), name, amount)
        if resources := section(spec.get("resources")):
            yield from _requests((*path, "resources"), resources)
            yield from _of_whole_pod(path, spec, resources)


def _requests(way: Path, resources: Spec) -> Iterator[Violation]:
    requests, limits = (
        valid_amounts(resources.get("requests")),
        valid_amounts(resources.get("limits")),
    )
    for name, least in requests.items():
        limit, path = limits.get(name), (*way, "requests", name)
        if limit is None:
            if whole(name):
                yield Violation(
                    path, f"{name} cannot be overcommitted: set a limit of the same amount"
                )
        elif least > limit:
            request, limit = resources["requests"][name], resources["limits"][name]
            amount = "null, which is 0" if limit is None else limit
            yield Violation(path, f"the request of {request} {name} exceeds its limit of {amount}")
        elif whole(name) and least != limit:
            yield Violation(
                path,
                f"{name} cannot be overcommitted: its request must equal its limit, "
                f"{resources['limits'][name]}",
            )
    for field, amounts in (("requests", requests), ("limits", limits)):
        for name, amount in amounts.items():
            if name in _OF_CONTAINERS:
                continue
            yield from _resource((*way, field, name), name, amount)
    if not _OF_PODS & {*requests, *limits} and any(
        name.startswith(_HUGE) for name in (*requests, *limits)
    ):
        yield Violation(way, "huge pages require a request or limit of cpu or memory")


def _resource(path: Path, name: str, amount: Fraction) -> Iterator[Violation]:
    if name.startswith(_HUGE):
        try:
            page = quantities.parse(name.removeprefix(_HUGE))
        except ValueError:
            yield Violation(path, f'"{name}" is not a valid page size, such as hugepages-2Mi')
            return
        if page <= 0 or page.denominator != 1 or amount % page:
            yield Violation(path, f"{name} must be a multiple of the page size")
    elif "/" not in name:
        yield Violation(
            path,
            f'"{name}" is not a container resource: use cpu, memory, ephemeral-storage, '
            "hugepages-SIZE, or DOMAIN/NAME for a device",
        )
    elif not object_names.qualified(name) or (
        "kubernetes.io/" not in name and not _is_device(name)
    ):
        yield Violation(path, f'"{name}" is not a valid resource name')
    elif whole(name) and (amount * 1000) % 1000:
        yield Violation(path, f"{name} must be an integer")


def _is_device(name: str) -> bool:
    return not name.startswith("requests.") and object_names.qualified("requests." + name)


def whole(name: str) -> bool:
    """Whether a resource cannot be overcommitted: huge pages, and all resources that Kubernetes
    does not define.
    """
    return name.startswith(_HUGE) or ("/" in name and "kubernetes.io/" not in name)


def _of_whole_pod(path: Path, spec: Spec, resources: Spec) -> Iterator[Violation]:
    for field in ("requests", "limits"):
        for name in section(resources.get(field)):
            if name not in _OF_PODS and not name.startswith(_HUGE):
                yield Violation(
                    (*path, "resources", field, name),
                    f"resources of a pod must be cpu, memory or hugepages-SIZE, not {name}",
                )
    limits = valid_amounts(resources.get("limits"))
    for index, container in enumerate(items(spec.get("containers"))):
        for name, limit in valid_amounts(section(container.get("resources")).get("limits")).items():
            if name in limits and limit > limits[name]:
                yield Violation(
                    (*path, "containers", index, "resources", "limits", name),
                    f"the limit of {name} exceeds the limit of the pod",
                )
    requests = valid_amounts(resources.get("requests"))
    for name in requests:
        container_requests = (
            valid_amounts(section(container.get("resources")).get("requests")).get(name, 0)
            for container in items(spec.get("containers"))
        )
        if sum(container_requests) > requests[name]:
            yield Violation(
                (*path, "resources", "requests", name),
                f"the containers request more {name} than the pod",
            )
    if resources.get("claims"):
        yield Violation(
            (*path, "resources", "claims"), "claims must be set on a container, not on the pod"
        )


def claims(body: Body) -> Iterator[Violation]:
    """A container's claims must exist in the pod, and must be unique."""
    for path, spec in pod_specs(body):
        for index, claim in enumerate(items(spec.get("resourceClaims"))):
            if (claim.get("resourceClaimName") is None) == (
                claim.get("resourceClaimTemplateName") is None
            ):
                yield Violation(
                    (*path, "resourceClaims", index),
                    "a claim must have either resourceClaimName or resourceClaimTemplateName",
                )
        if not any(
            section(container.get("resources")).get("claims")
            for group in _GROUPS
            for container in items(spec.get(group))
        ):
            continue
        named = {claim.get("name") for claim in items(spec.get("resourceClaims"))}
        for way, container in containers(body):
            for index, claim in enumerate(items(section(container.get("resources")).get("claims"))):
                if claim.get("name") not in named:
                    yield Violation(
                        (*way, "resources", "claims", index),
                        f'claim "{claim.get("name")}" not found in resourceClaims of the pod',
                    )
