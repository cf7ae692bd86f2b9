"""The objects that a repository may contain, regardless of the permissions of the service.

Rendered objects are checked before any request to the API server; objects that are not allowed are
neither written nor deleted. The service's own objects are excluded unless the settings permit them,
its state and its leases always.
"""

from __future__ import annotations

import msgspec

from gitops_ds.model.objects import Key
from gitops_ds.model.skip_reasons import Skipped, SkipReason

# the name of the ClusterRoles and bindings of deploy/, or its prefix before a dash or a colon
_OURS = "gitops-ds"
_RIGHTS = "rbac.authorization.k8s.io"


class AllowList(msgspec.Struct, frozen=True):
    """The settings `apply.allow`: None allows every namespace or kind; a kind is `DaemonSet` or
    `apps/DaemonSet`.

    `homes` are the namespaces of the service's pod and of its state (empty: nothing to protect).
    `itself`: its own deployment there may be changed from the repository; its state and its leases
    never.
    """

    namespaces: frozenset[str] | None = None
    kinds: frozenset[str] | None = None
    cluster_scoped: bool = True
    itself: bool = False
    homes: frozenset[str] = frozenset()


EVERYTHING = AllowList()


def why_not(key: Key, allowed: AllowList) -> Skipped | None:
    """The refusal for an object that is not allowed. A key without a namespace is that of a
    cluster-scoped object.
    """
    if reason := _own(key, allowed) or _listed(key, allowed):
        return Skipped(SkipReason.NOT_ALLOWED, f"{key} is not allowed: {reason}", key)
    return None


def _own(key: Key, allowed: AllowList) -> str:
    """The reason for the service's own objects: settings, credentials, state and leases in its
    namespace, and its permissions.
    """
    if key.namespace in allowed.homes and _is_memory(key):
        return "it is state of gitops-ds"
    if not allowed.homes or allowed.itself or not _is_own(key, allowed.homes):
        return ""
    return "gitops-ds itself depends on it; apply.allow.itself permits it"


def _is_memory(key: Key) -> bool:
    return key.group == "coordination.k8s.io" or (
        key.kind == "ConfigMap" and key.name.startswith(f"{_OURS}-")
    )


def _is_own(key: Key, homes: frozenset[str]) -> bool:
    if key.namespace:
        return key.namespace in homes
    if (key.group, key.kind) == ("", "Namespace"):
        return key.name in homes
    return key.group == _RIGHTS and (
        key.name == _OURS or key.name.startswith((f"{_OURS}-", f"{_OURS}:"))
    )


def _listed(key: Key, allowed: AllowList) -> str:
    """The reason from the lists of the settings."""
    if (
        allowed.kinds is not None
        and not {key.kind, f"{key.group or 'core'}/{key.kind}"} & allowed.kinds
    ):
        return f"apply.allow.kinds has no {key.group or 'core'}/{key.kind}"
    if not key.namespace and not allowed.cluster_scoped:
        return "apply.allow.clusterScoped is false"
    if key.namespace and allowed.namespaces is not None and key.namespace not in allowed.namespaces:
        return f"apply.allow.namespaces has no {key.namespace}"
    return ""
