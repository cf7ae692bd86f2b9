"""DS005, DS006 and DS011 for all kinds: required fields, allowed values, valid names."""

from __future__ import annotations

from collections.abc import Iterator

from gitops_ds.checks.admission import (
    companions,
    containers,
    embedded_names,
    object_names,
    pods,
    resources,
    volumes,
)
from gitops_ds.checks.engine import rule
from gitops_ds.checks.engine.rule import Violation, pod_path
from gitops_ds.model.objects import Body


def missing(body: Body) -> Iterator[Violation]:
    """DS005: an empty string counts as absent, and some fields require others."""
    yield from companions.missing(body)
    yield from accounts_have_a_namespace(body)
    if pod_path(body) is not None:
        yield from pods.missing(body)
        yield from containers.missing(body)
        yield from volumes.missing(body)


def values(body: Body) -> Iterator[Violation]:
    """DS006: values out of range, and values that exclude each other."""
    yield from companions.values(body)
    if pod_path(body) is not None:
        yield from pods.values(body)
        yield from containers.values(body)
        yield from volumes.values(body)
        yield from resources.claims(body)


def names(body: Body) -> Iterator[Violation]:
    """DS011: the names of the object, and those in its fields."""
    yield from object_names.names(body)
    yield from embedded_names.names(body)


def accounts_have_a_namespace(body: Body) -> Iterator[Violation]:
    """DS005: a service account in a ClusterRoleBinding requires a namespace. In a RoleBinding, the
    default is the namespace of the binding.
    https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-subjects
    """
    if body.get("kind") != "ClusterRoleBinding":
        return
    for at, subject in enumerate(rule.items(body.get("subjects"))):
        reference = rule.section(subject)
        if reference.get("kind") == "ServiceAccount" and not reference.get("namespace"):
            yield Violation(
                ("subjects", at),
                f'the service account "{reference.get("name", "")}" requires a namespace',
            )
