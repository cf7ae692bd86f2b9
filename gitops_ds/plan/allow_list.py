"""Which objects a repository may name at all, whatever rights the service itself has.

Judged on the rendered object, before anything is asked of the API server; what is not allowed is
neither written nor deleted. What the service itself lives from is out of reach unless the settings
say otherwise, and its memory and its leases always are.
"""

from __future__ import annotations

import msgspec

from gitops_ds.model.objects import Key
from gitops_ds.model.skip_reasons import SkipReason
from gitops_ds.model.skipped import Skipped

# what deploy/ calls its ClusterRoles and bindings, alone or followed by a dash or a colon
_OURS = "gitops-ds"
_RIGHTS = "rbac.authorization.k8s.io"


class AllowList(msgspec.Struct, frozen=True):
    """The settings `apply.allow`: None allows every namespace or kind; a kind is `DaemonSet` or
    `apps/DaemonSet`.

    `homes` are the namespaces that the service itself lives in, of its pod and of its state (empty:
    nothing to protect), `itself` whether its own deployment there may be changed from the
    repository; its memory and its leases never are.
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
    """By what the service lives from: settings, credentials, memory and leases in its namespace;
    its rights.
    """
    if key.namespace in allowed.homes and _is_memory(key):
        return "gitops-ds keeps its memory there"
    if not allowed.homes or allowed.itself or not _is_own(key, allowed.homes):
        return ""
    return "gitops-ds itself lives from it; apply.allow.itself permits it"


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
    """By the lists of the settings."""
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
