"""Validation of the environment variables of a container by the API server, and of references to
fields of the pod.

Source: validateEnv and validateEnvFrom in pkg/apis/core/validation/validation.go of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from gitops_ds.checks.admission import object_names
from gitops_ds.checks.engine.rule import Spec, Violation, items
from gitops_ds.core.objects import Path
from gitops_ds.kube.apimachinery import quantities

_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")

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


def missing(way: Path, container: Spec) -> Iterator[Violation]:
    """Required fields of environment variables and their sources."""
    for index, variable in enumerate(items(container.get("env"))):
        if variable.get("name") == "":
            yield Violation((*way, "env", index, "name"), "the name of the variable is required")
        source = variable.get("valueFrom")
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
    for index, env_source in enumerate(items(container.get("envFrom"))):
        place = (*way, "envFrom", index)
        named = [
            field for field in ("configMapRef", "secretRef") if env_source.get(field) is not None
        ]
        if not named:
            yield Violation(place, "envFrom has no source: set configMapRef or secretRef")
        for field in named:
            if not env_source[field].get("name"):
                yield Violation((*place, field), f"{field} requires a name")


def values(way: Path, container: Spec) -> Iterator[Violation]:
    """Values of environment variables that are not allowed, alone or in combination."""
    for index, variable in enumerate(items(container.get("env"))):
        source = variable.get("valueFrom")
        if source is None:
            continue
        place = (*way, "env", index, "valueFrom")
        sources = [field for field in _SOURCES if source.get(field) is not None]
        if sources and variable.get("value"):
            yield Violation(place, "a variable must have either value or valueFrom, not both")
        elif len(sources) > 1:
            yield Violation(place, f"valueFrom has {' and '.join(sources)}: only one is allowed")
        if reference := source.get("fieldRef"):
            yield from field_of_pod((*place, "fieldRef"), reference, _FIELDS_OF_VARIABLES)
        if reference := source.get("resourceFieldRef"):
            yield from resource_of_container((*place, "resourceFieldRef"), reference)
    for index, env_source in enumerate(items(container.get("envFrom"))):
        if env_source.get("configMapRef") is not None and env_source.get("secretRef") is not None:
            yield Violation(
                (*way, "envFrom", index),
                "envFrom has configMapRef and secretRef: only one is allowed",
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
        written = reference.get("divisor")
        divisor = quantities.canonical(0 if written is None else written)
    except ValueError as wrong:
        yield Violation((*place, "divisor"), str(wrong))
        return
    if divisor != "0" and divisor not in (("1", "1m") if resource.endswith(".cpu") else _DIVISORS):
        examples = (
            "1 or 1m" if resource.endswith(".cpu") else "1 with a unit or without, such as 1Mi"
        )
        yield Violation(
            (*place, "divisor"), f"the divisor of {resource} must be {examples}, not {divisor}"
        )


def files(way: Path, container: Spec, spec: Spec) -> Iterator[Violation]:
    """Violations of a variable from a file: the file must be in an emptyDir of the pod."""
    for index, variable in enumerate(items(container.get("env"))):
        reference = (variable.get("valueFrom") or {}).get("fileKeyRef")
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
