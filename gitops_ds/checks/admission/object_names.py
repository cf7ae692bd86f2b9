"""Validation of names, labels and annotations by the API server, of an object and of its
fields: referenced objects, variables, keys, scheduling gates, hosts.

Sources: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/,
pkg/apis/core/validation/validation.go and pkg/apis/rbac/validation of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from gitops_ds.checks.engine.rule import (
    Spec,
    Violation,
    at,
    containers,
    items,
    pod_path,
    pod_specs,
    rule,
    section,
)
from gitops_ds.core.objects import Body, Path, group_of
from gitops_ds.kube.apimachinery import builtin_resources
from gitops_ds.source.rules import INVALID_NAME

_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?\Z")
_SUBDOMAIN: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*\Z"
)
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?\Z")
_PORT_NAME: Final = re.compile(r"(?=.{1,15}\Z)(?=.*[a-z])[a-z0-9]+(?:-[a-z0-9]+)*\Z")

_RBAC: Final = "rbac.authorization.k8s.io/"
_ONE_LABEL: Final = frozenset({"Namespace", "Service"})
_ANNOTATIONS_AT_MOST: Final = 256 * 1024


@rule(INVALID_NAME)
def names(body: Body) -> Iterator[Violation]:
    """Names of the object, its namespace, containers, ports and volumes; keys and values of
    labels; the size of annotations; names in fields.
    """
    yield from _metadata(body)
    yield from _of_parts(body)
    yield from _in_fields(body)


def _of_parts(body: Body) -> Iterator[Violation]:
    """Names of containers, ports and volumes, and the labels of pods."""
    path = pod_path(body)
    if path is None:
        return
    if path:
        yield from _labels((*path, "metadata"), section(at(body, (*path, "metadata"))))
        yield from pairs(
            ("spec", "selector", "matchLabels"),
            section(at(body, ("spec", "selector", "matchLabels"))),
        )
    for way, container in containers(body):
        if problem := _no_label(container.get("name")):
            yield Violation((*way, "name"), problem)
        for index, port in enumerate(items(container.get("ports"))):
            name = port.get("name")
            if name and not port_name(name):
                hint = (
                    "at most 15 lower-case letters, digits and single dashes, with a letter among "
                    "them"
                )
                yield Violation(
                    (*way, "ports", index, "name"), f'"{name}" is not a valid port name: {hint}'
                )
    for way, spec in pod_specs(body):
        for index, volume in enumerate(items(spec.get("volumes"))):
            if problem := _no_label(volume.get("name")):
                yield Violation((*way, "volumes", index, "name"), problem)


_FINALIZERS: Final = frozenset(("foregroundDeletion", "orphan", "kubernetes"))


def _is_of_whole_cluster(body: Body) -> bool:
    """Whether the kind is cluster-scoped. The API server drops the namespace of such an object."""
    resource = builtin_resources.RESOURCES.get((group_of(body), str(body.get("kind"))))
    return resource is not None and not resource.namespaced


def _metadata(body: Body) -> Iterator[Violation]:
    metadata = section(body.get("metadata"))
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if isinstance(name, str) and str(body.get("apiVersion", "")).startswith(_RBAC):
        if name in (".", "..") or "/" in name or "%" in name:
            yield Violation(
                ("metadata", "name"),
                f'"{name}" is not a valid name: it must not contain "/" or "%"',
            )
    elif body.get("kind") in _ONE_LABEL:
        if problem := _no_label(name):
            yield Violation(("metadata", "name"), problem)
    elif name and isinstance(name, str) and not subdomain(name):
        hint = (
            "at most 253 lower-case letters, digits, dashes and dots, with a letter or digit at "
            "each end"
        )
        yield Violation(("metadata", "name"), f'"{name}" is not a valid name: {hint}')
    prefix = metadata.get("generateName")
    of_role = str(body.get("apiVersion", "")).startswith(_RBAC)
    if prefix and (
        "/" in prefix or "%" in prefix if of_role else not subdomain(prefix.removesuffix("-"))
    ):
        yield Violation(("metadata", "generateName"), f'"{prefix}" is not a valid name prefix')
    if (problem := _no_label(namespace)) and not _is_of_whole_cluster(body):
        yield Violation(("metadata", "namespace"), problem)
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        if not qualified(finalizer or "") or (
            "/" not in finalizer and finalizer not in _FINALIZERS
        ):
            yield Violation(
                ("metadata", "finalizers", index), f'"{finalizer}" is not a valid finalizer name'
            )
    yield from _labels(("metadata",), metadata)


def _labels(path: Path, metadata: Any) -> Iterator[Violation]:
    yield from pairs((*path, "labels"), section(metadata.get("labels")))
    annotations = section(metadata.get("annotations"))
    for key in annotations:
        if not qualified(key.lower()):
            yield Violation(
                (*path, "annotations", key),
                f'"{key}" is not a valid annotation key: {_QUALIFIED_HINT}',
            )
    size = sum(
        [len(key.encode()) + len(str(value or "").encode()) for key, value in annotations.items()]
    )
    if size > _ANNOTATIONS_AT_MOST:
        yield Violation(
            (*path, "annotations"),
            f"the annotations have {size:,} bytes: at most {_ANNOTATIONS_AT_MOST:,} are allowed",
        )


def pairs(path: Path, labels: Any) -> Iterator[Violation]:
    """Violations of the keys and values of labels."""
    for key, value in labels.items():
        if not qualified(key):
            yield Violation((*path, key), f'"{key}" is not a valid label key: {_QUALIFIED_HINT}')
        if not label_value(value or ""):
            hint = (
                "at most 63 letters, digits, dashes, dots and underscores, with a letter or digit "
                "at each end"
            )
            yield Violation((*path, key), f'"{value}" is not a valid label value: {hint}')


_QUALIFIED_HINT: Final = (
    "at most 63 letters, digits, dashes, dots and underscores, after a domain and a slash if need "
    "be"
)


@lru_cache(4096)  # manifests repeat the same few keys and values
def qualified(key: str) -> bool:
    """Whether a string is a valid label key: a name, or a DNS subdomain, a slash and a name."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.match(prefix)):
        return False
    return len(name) <= 63 and _QUALIFIED.match(name) is not None


@lru_cache(4096)
def label_value(value: str) -> bool:
    """Whether a string is a valid label value."""
    return value == "" or (len(value) <= 63 and _QUALIFIED.match(value) is not None)


@lru_cache(4096)
def label(name: str) -> bool:
    """Whether a string is a DNS label, as required for containers, volumes and namespaces."""
    return len(name) <= 63 and _LABEL.match(name) is not None


@lru_cache(4096)
def subdomain(name: str) -> bool:
    """Whether a string is a DNS subdomain, as required for the names of most objects."""
    return len(name) <= 253 and _SUBDOMAIN.match(name) is not None


@lru_cache(4096)
def port_name(name: str) -> bool:
    """Whether a string is a valid name of a container port."""
    return _PORT_NAME.match(name) is not None


def _no_label(name: Any) -> str:
    """The fault of a name that must be a DNS label; empty if valid or absent."""
    if not name or not isinstance(name, str) or label(name):
        return ""
    return (
        f'"{name}" is not a valid name: at most 63 lower-case letters, digits and dashes, with a '
        f"letter or "
        "digit at each end"
    )


# Printable ASCII without "=", since Kubernetes 1.32.
_VARIABLE: Final = re.compile(r"[ -<>-~]+\Z")
_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+\Z")
_SUBDOMAIN_FIELDS: Final = (
    "serviceAccountName",
    "serviceAccount",
    "priorityClassName",
    "runtimeClassName",
    "nodeName",
)
_LABEL_FIELDS: Final = ("hostname", "subdomain")
_GATES: Final = (("readinessGates", "conditionType"), ("schedulingGates", "name"))


def _in_fields(body: Body) -> Iterator[Violation]:
    """Names of referenced objects, variables, keys, scheduling gates and hosts."""
    if pod_path(body) is not None:
        for way, spec in pod_specs(body):
            yield from _of_pod(way, spec)
        for way, container in containers(body):
            if "env" in container or "envFrom" in container:
                yield from _of_variables(way, container)
    elif look := _OF_KIND.get(str(body.get("kind"))):
        yield from look(body)


def _of_pod(way: Path, spec: Spec) -> Iterator[Violation]:
    for field in _SUBDOMAIN_FIELDS:
        name = spec.get(field)
        if field == "serviceAccount" and spec.get("serviceAccountName"):
            continue  # unused in that case
        empty_is_a_name = field == "runtimeClassName" and name == ""
        if (name or empty_is_a_name) and not subdomain(name):
            yield Violation((*way, field), f'"{name}" is not a valid object name')
    for field in _LABEL_FIELDS:
        if (name := spec.get(field)) and not label(name):
            yield Violation(
                (*way, field),
                f'"{name}" is not a valid host name: lower-case letters, digits and dashes',
            )
    if chosen := spec.get("nodeSelector"):
        yield from pairs((*way, "nodeSelector"), chosen)
    yield from _of_lists(way, spec)


def _of_lists(way: Path, spec: Spec) -> Iterator[Violation]:
    for field, key in _GATES:
        for index, gate in enumerate(items(spec.get(field))):
            if not qualified(str(gate.get(key) or "")):
                yield Violation(
                    (*way, field, index, key), f'"{gate.get(key)}" is not a valid condition type'
                )
    for index, alias in enumerate(items(spec.get("hostAliases"))):
        for number, name in enumerate(alias.get("hostnames") or ()):
            if not subdomain(name or ""):
                yield Violation(
                    (*way, "hostAliases", index, "hostnames", number),
                    f'"{name}" is not a valid host name',
                )
    for index, claim in enumerate(items(spec.get("resourceClaims"))):
        if not label(str(claim.get("name") or "")):
            yield Violation(
                (*way, "resourceClaims", index, "name"),
                f'"{claim.get("name")}" is not a valid name',
            )


def _of_variables(way: Path, container: Spec) -> Iterator[Violation]:
    for index, variable in enumerate(items(container.get("env"))):
        if (name := variable.get("name")) and not _VARIABLE.match(name):
            yield Violation(
                (*way, "env", index, "name"),
                f'"{name}" is not a valid variable name: printable ASCII without "="',
            )
        if source := variable.get("valueFrom"):
            for field in ("configMapKeyRef", "secretKeyRef"):
                if reference := source.get(field):
                    yield from _reference((*way, "env", index, "valueFrom", field), reference)
    for index, env_source in enumerate(items(container.get("envFrom"))):
        if (prefix := env_source.get("prefix")) and not _VARIABLE.match(prefix):
            yield Violation(
                (*way, "envFrom", index, "prefix"),
                f'"{prefix}" is not a valid prefix of a variable name: printable ASCII without "="',
            )
        for field in ("configMapRef", "secretRef"):
            if reference := env_source.get(field):
                yield from _reference((*way, "envFrom", index, field), reference, ("name",))


def _reference(
    place: Path, reference: Spec, fields: tuple[str, ...] = ("name", "key")
) -> Iterator[Violation]:
    name, key = reference.get("name"), reference.get("key")
    if name and not subdomain(name):
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
    yield from pairs(("spec", "selector"), section(spec.get("selector")))
    for index, port in enumerate(items(spec.get("ports"))):
        if (name := port.get("name")) and not label(name):
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
    for index, subject in enumerate(items(body.get("subjects"))):
        if (
            subject.get("kind") == "ServiceAccount"
            and subject.get("name")
            and not subdomain(subject["name"])
        ):
            yield Violation(
                ("subjects", index, "name"),
                f'"{subject["name"]}" is not a valid service account name',
            )


_OF_KIND: Final = {
    "ConfigMap": _of_data,
    "Secret": _of_data,
    "Service": _of_service,
    "RoleBinding": _of_binding,
    "ClusterRoleBinding": _of_binding,
}
