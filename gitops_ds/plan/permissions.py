"""What a repository may apply, by the settings and never by a repository: the objects that it may
contain, and the account that applies them (impersonation), with fewer permissions than the service.

Rendered objects are checked before any request to the API server; objects that are not allowed are
neither written nor deleted. The service's own objects are excluded unless the settings permit them,
its state and its leases always.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from gitops_ds.model.cluster import Identity
from gitops_ds.model.objects import Key
from gitops_ds.model.skip_reasons import Skipped, SkipReason
from gitops_ds.model.sources.bundle import Manifest

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


def not_allowed(key: Key, allowed: AllowList) -> Skipped | None:
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


_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Impersonation(msgspec.Struct, frozen=True):
    """The accounts for applies. A `user` applies everything, with `groups`; else service accounts.

    `service_account` is a NAME in the namespace of each object, or NAMESPACE/NAME for one account
    for all namespaces; `agents` has another account for an agent. Cluster-scoped objects are
    applied by `cluster_service_account` (NAMESPACE/NAME), and refused without one. Without
    `cross_namespace` no object may refer to another namespace.
    """

    user: str = ""
    groups: tuple[str, ...] = ()
    service_account: str = ""
    cluster_service_account: str = ""
    agents: Mapping[str, str] = msgspec.field(default_factory=dict)
    cross_namespace: bool = False

    def of(self, key: Key, agent: str = "") -> Identity | Skipped:
        """The identity that applies or deletes the object, or the reason of its absence."""
        if self.user:
            return Identity(self.user, self.groups)
        account = (
            self.agents.get(agent, self.service_account)
            if key.namespace
            else self.cluster_service_account
        )
        namespace, slash, name = account.rpartition("/")
        where = namespace if slash else key.namespace
        if name and _LABEL.fullmatch(where):
            return Identity(f"system:serviceaccount:{where}:{name}")
        setting = "serviceAccount" if key.namespace else "clusterServiceAccount"
        return Skipped(
            SkipReason.IMPERSONATION,
            f"no service account is configured for {key}: set apply.impersonate.{setting}",
            key,
        )


def not_appliable(manifest: Manifest, who: Impersonation | None) -> Skipped | None:
    """Why the object must not be applied by its account."""
    if who is None:
        return None
    account = who.of(manifest.key, manifest.agent)
    if isinstance(account, Skipped):
        return account
    if who.cross_namespace or not manifest.key.namespace:
        return None
    if groups := sorted(_wide_groups(manifest.body, manifest.key)):
        return Skipped(
            SkipReason.CROSS_NAMESPACE,
            f"{manifest.key} refers to {', '.join(groups)}, which includes accounts of other "
            "namespaces: refused (apply.allowCrossNamespace)",
            manifest.key,
        )
    others = sorted(_named(manifest.body, manifest.key) - {manifest.key.namespace})
    if not others:
        return None
    return Skipped(
        SkipReason.CROSS_NAMESPACE,
        f"{manifest.key} refers to namespace {', '.join(others)}: references to other namespaces "
        "are refused (apply.allowCrossNamespace)",
        manifest.key,
    )


def not_deletable(key: Key, agent: str, who: Impersonation | None) -> Skipped | None:
    """Why no account may delete the object; `agent` is that of the inventory, since every user of
    the cluster can change annotations of live objects.
    """
    account = who.of(key, agent) if who else None
    return account if isinstance(account, Skipped) else None


_ACCOUNT = re.compile(r"system:serviceaccounts?:([^:]+)")


def _named(body: object, key: Key) -> set[str]:
    """The namespaces that a namespaced object refers to: those of a RoleBinding's subjects, and of
    fields named `...Ref` or `...Refs`.
    """
    namespaces: set[str] = set()
    if key.kind == "RoleBinding" and isinstance(body, Mapping):
        for subject in body.get("subjects") or ():
            if isinstance(subject, Mapping):
                account = (
                    _ACCOUNT.match(str(subject.get("name") or ""))
                    if subject.get("kind") in ("User", "Group")
                    else None
                )
                namespaces |= {str(subject["namespace"])} if subject.get("namespace") else set()
                namespaces |= {account[1]} if account else set()
    return namespaces | _references(body)


def _wide_groups(body: Mapping[str, object], key: Key) -> set[str]:
    """The `system:` groups of a RoleBinding, except the service accounts of its own namespace.

    https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-subjects
    """
    subjects = body.get("subjects") if key.kind == "RoleBinding" else ()
    named = {str(one.get("name") or "") for one in _items(subjects) if one.get("kind") == "Group"}
    return {
        name
        for name in named
        if name.startswith("system:") and name != f"system:serviceaccounts:{key.namespace}"
    }


def _items(value: object) -> list[Mapping[str, object]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _references(value: object) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(_references, value)) if value else set()
    if not isinstance(value, Mapping):
        return set()
    namespaces: set[str] = set()
    for name, below in value.items():
        if str(name).endswith(("Ref", "Refs")):
            some = below if isinstance(below, list) else [below]
            namespaces |= {
                str(one["namespace"])
                for one in some
                if isinstance(one, Mapping) and one.get("namespace")
            }
        namespaces |= _references(below)
    return namespaces
