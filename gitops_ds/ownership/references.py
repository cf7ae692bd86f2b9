"""What a namespaced object refers to beyond its own namespace. Pure.

Addresses of an Endpoints or EndpointSlice are not here: an address names no namespace, and no
built-in role but that of an administrator may write these kinds
(https://kubernetes.io/docs/reference/access-authn-authz/rbac/#write-access-for-endpoints).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gitops_ds.core.objects import Key, items_of

_SYSTEM: Final = "system:"
# A ServiceAccount as a user, and the group of the ServiceAccounts of a namespace.
_ACCOUNTS: Final = re.compile(r"system:serviceaccounts?:(?P<namespace>[^:]+)(?::.*)?")
# Names of the cluster's DNS, of Services and pods, with or without the domain of the cluster:
# https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/
_IN_CLUSTER: Final = re.compile(
    r"(?:.+\.)?(?P<namespace>[^.]+)\.(?:svc|pod)(?:\..*)?", re.IGNORECASE
)


def beyond(key: Key, body: Mapping[str, Any]) -> list[str]:
    """The references of the object to other namespaces, and to users and groups that do not belong
    to its own: `namespace b`, `Group system:authenticated`.
    """
    found = set(_namespaces(body))
    if key.kind == "RoleBinding":
        found |= {
            reference
            for subject in items_of(body.get("subjects"))
            for reference in _subject(subject)
        }
    if (key.group, key.kind) == ("", "Service"):
        found |= set(_external_name(body.get("spec")))
    return sorted(found - {f"namespace {key.namespace}"})


def _subject(subject: Mapping[str, Any]) -> Iterator[str]:
    """Every name with the prefix `system:` is one of Kubernetes, such as `system:anonymous`; only
    those of ServiceAccounts belong to a namespace.

    https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-subjects
    """
    if subject.get("namespace"):
        yield f"namespace {subject['namespace']}"
    name = str(subject.get("name") or "")
    if subject.get("kind") != "ServiceAccount" and name.startswith(_SYSTEM):
        account = _ACCOUNTS.fullmatch(name)
        yield f"namespace {account['namespace']}" if account else f"{subject.get('kind')} {name}"


def _external_name(spec: object) -> Iterator[str]:
    """The namespace of an alias of the cluster's DNS, which leads clients of this one there."""
    if isinstance(spec, Mapping) and spec.get("type") == "ExternalName":
        match = _IN_CLUSTER.fullmatch(str(spec.get("externalName") or ""))
        if match:
            yield f"namespace {match['namespace'].lower()}"


def _namespaces(value: object) -> Iterator[str]:
    """The namespaces of all fields named `...Ref` or `...Refs`."""
    if isinstance(value, list):
        for below in value:
            yield from _namespaces(below)
    elif isinstance(value, Mapping):
        for name, below in value.items():
            if str(name).endswith(("Ref", "Refs")):
                for item in items_of(below if isinstance(below, list) else [below]):
                    if item.get("namespace"):
                        yield f"namespace {item['namespace']}"
            yield from _namespaces(below)
