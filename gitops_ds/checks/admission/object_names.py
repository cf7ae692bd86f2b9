"""Validation of names, labels and annotations by the API server.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from gitops_ds.apimachinery import builtin_resources
from gitops_ds.checks.engine.rule import (
    Violation,
    at,
    containers,
    items,
    pod_path,
    pod_specs,
    section,
)
from gitops_ds.model.objects import Body, Path, group_of

_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?\Z")
_SUBDOMAIN: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*\Z"
)
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?\Z")
_PORT_NAME: Final = re.compile(r"(?=.{1,15}\Z)(?=.*[a-z])[a-z0-9]+(?:-[a-z0-9]+)*\Z")

_RBAC: Final = "rbac.authorization.k8s.io/"
_ONE_LABEL: Final = frozenset({"Namespace", "Service"})
_ANNOTATIONS_AT_MOST: Final = 256 * 1024


def names(body: Body) -> Iterator[Violation]:
    """DS011: names of the object, its namespace, containers, ports and volumes; keys and values of
    labels; the size of annotations.
    """
    yield from _metadata(body)
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
    for index, one in enumerate(metadata.get("finalizers") or ()):
        if not qualified(one or "") or ("/" not in one and one not in _FINALIZERS):
            yield Violation(
                ("metadata", "finalizers", index), f'"{one}" is not a valid finalizer name'
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
