"""DS011: names in the fields of an object: of referenced objects, variables, keys, scheduling gates
and hosts.

Source: pkg/apis/core/validation/validation.go and pkg/apis/rbac/validation of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gitops_ds.checks.admission import object_names
from gitops_ds.checks.engine.rule import (
    Spec,
    Violation,
    containers,
    items,
    pod_path,
    pod_specs,
    section,
)
from gitops_ds.model.objects import Body, Path

# Printable ASCII without "=", since Kubernetes 1.32.
_VARIABLE: Final = re.compile(r"[ -<>-~]+\Z")
_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+\Z")
_SUBDOMAINS: Final = (
    "serviceAccountName",
    "serviceAccount",
    "priorityClassName",
    "runtimeClassName",
    "nodeName",
)
_LABELS: Final = ("hostname", "subdomain")
_GATES: Final = (("readinessGates", "conditionType"), ("schedulingGates", "name"))


def names(body: Body) -> Iterator[Violation]:
    """DS011: all names in an object that the API server validates, except those of its metadata."""
    path = pod_path(body)
    if path is not None:
        for way, spec in pod_specs(body):
            yield from _of_pod(way, spec)
        for way, container in containers(body):
            if "env" in container or "envFrom" in container:
                yield from _of_variables(way, container)
        return
    look = _OF_KIND.get(str(body.get("kind")))
    if look:
        yield from look(body)


def _of_pod(way: Path, spec: Spec) -> Iterator[Violation]:
    for field in _SUBDOMAINS:
        name = spec.get(field)
        if field == "serviceAccount" and spec.get("serviceAccountName"):
            continue  # unused in that case
        empty_is_a_name = field == "runtimeClassName" and name == ""
        if (name or empty_is_a_name) and not object_names.subdomain(name):
            yield Violation((*way, field), f'"{name}" is not a valid object name')
    for field in _LABELS:
        if (name := spec.get(field)) and not object_names.label(name):
            yield Violation(
                (*way, field),
                f'"{name}" is not a valid host name: lower-case letters, digits and dashes',
            )
    if chosen := spec.get("nodeSelector"):
        yield from object_names.pairs((*way, "nodeSelector"), chosen)
    yield from _of_lists(way, spec)


def _of_lists(way: Path, spec: Spec) -> Iterator[Violation]:
    for field, key in _GATES:
        for index, one in enumerate(items(spec.get(field))):
            if not object_names.qualified(str(one.get(key) or "")):
                yield Violation(
                    (*way, field, index, key), f'"{one.get(key)}" is not a valid condition type'
                )
    for index, alias in enumerate(items(spec.get("hostAliases"))):
        for number, name in enumerate(alias.get("hostnames") or ()):
            if not object_names.subdomain(name or ""):
                yield Violation(
                    (*way, "hostAliases", index, "hostnames", number),
                    f'"{name}" is not a valid host name',
                )
    for index, one in enumerate(items(spec.get("resourceClaims"))):
        if not object_names.label(str(one.get("name") or "")):
            yield Violation(
                (*way, "resourceClaims", index, "name"), f'"{one.get("name")}" is not a valid name'
            )


def _of_variables(way: Path, container: Spec) -> Iterator[Violation]:
    for index, one in enumerate(items(container.get("env"))):
        if (name := one.get("name")) and not _VARIABLE.match(name):
            yield Violation(
                (*way, "env", index, "name"),
                f'"{name}" is not a valid variable name: printable ASCII without "="',
            )
        if source := one.get("valueFrom"):
            for field in ("configMapKeyRef", "secretKeyRef"):
                if reference := source.get(field):
                    yield from _reference((*way, "env", index, "valueFrom", field), reference)
    for index, one in enumerate(items(container.get("envFrom"))):
        if (prefix := one.get("prefix")) and not _VARIABLE.match(prefix):
            yield Violation(
                (*way, "envFrom", index, "prefix"),
                f'"{prefix}" is not a valid prefix of a variable name: printable ASCII without "="',
            )
        for field in ("configMapRef", "secretRef"):
            if reference := one.get(field):
                yield from _reference((*way, "envFrom", index, field), reference, ("name",))


def _reference(
    place: Path, reference: Spec, fields: tuple[str, ...] = ("name", "key")
) -> Iterator[Violation]:
    name, key = reference.get("name"), reference.get("key")
    if name and not object_names.subdomain(name):
        yield Violation((*place, "name"), f'"{name}" is not a valid object name')
    if "key" in fields and key and not key_of_data(key):
        yield Violation(
            (*place, "key"),
            f'"{key}" is not a valid key of a ConfigMap or Secret: letters, digits, ".", "-" and '
            f'"_"',
        )


def key_of_data(key: str) -> bool:
    """Whether a string is a valid key of a ConfigMap or a Secret."""
    return (
        len(key) <= 253 and _KEY.match(key) is not None and key != "." and not key.startswith("..")
    )


def _of_data(body: Body) -> Iterator[Violation]:
    for field in ("data", "binaryData", "stringData"):
        for key in section(body.get(field)):
            if not key_of_data(key):
                yield Violation(
                    (field, key),
                    f'"{key}" is not a valid key: letters, digits, ".", "-" and "_", at most 253 '
                    f"of them",
                )


def _of_service(body: Body) -> Iterator[Violation]:
    spec = section(body.get("spec"))
    yield from object_names.pairs(("spec", "selector"), section(spec.get("selector")))
    for index, port in enumerate(items(spec.get("ports"))):
        if (name := port.get("name")) and not object_names.label(name):
            yield Violation(
                ("spec", "ports", index, "name"),
                f'"{name}" is not a valid port name: lower-case letters, digits and dashes',
            )


def _of_binding(body: Body) -> Iterator[Violation]:
    name = str(section(body.get("roleRef")).get("name") or "")
    if name in (".", "..") or "/" in name or "%" in name:
        yield Violation(
            ("roleRef", "name"),
            f'"{name}" is not a valid role name: it must not contain "/" or "%"',
        )
    for index, one in enumerate(items(body.get("subjects"))):
        if (
            one.get("kind") == "ServiceAccount"
            and one.get("name")
            and not object_names.subdomain(one["name"])
        ):
            yield Violation(
                ("subjects", index, "name"), f'"{one["name"]}" is not a valid service account name'
            )


_OF_KIND: Final = {
    "ConfigMap": _of_data,
    "Secret": _of_data,
    "Service": _of_service,
    "RoleBinding": _of_binding,
    "ClusterRoleBinding": _of_binding,
}
