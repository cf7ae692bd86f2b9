"""What a repository may apply, by the settings and never by a repository: the objects that it may
contain, and the account that applies them (impersonation), with fewer permissions than the service.

Rendered objects are checked before any request to the API server; objects that are not allowed are
neither written nor deleted. The service's own objects (`own_objects`) are excluded unless the
settings permit them, its state and its leases always.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from gitops_ds.core.cluster import Identity
from gitops_ds.core.objects import Body, Key
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.kube.apimachinery import daemonsets
from gitops_ds.ownership import own_objects, references
from gitops_ds.ownership.own_objects import OwnAccount


class AllowList(msgspec.Struct, frozen=True):
    """The settings `apply.allow`: None allows every namespace or kind; a kind is `DaemonSet` or
    `apps/DaemonSet`.

    `required_for_work`: nodes may wait for agents of the repository. `itself`: objects that empower
    or limit the service, `own`, may be changed from the repository; its state and its leases never.
    """

    namespaces: frozenset[str] | None = None
    kinds: frozenset[str] | None = None
    cluster_scoped: bool = True
    required_for_work: bool = True
    itself: bool = False
    own: OwnAccount = OwnAccount()


EVERYTHING = AllowList()


def not_allowed(key: Key, allowed: AllowList, *bodies: Body) -> Skipped | None:
    """The refusal for an object that is not allowed: `bodies` are its content in Git and in the
    cluster. A key without a namespace is that of a cluster-scoped object.
    """
    if reason := _own(key, allowed, bodies) or _listed(key, allowed):
        return Skipped(SkipReason.NOT_ALLOWED, f"{key} is not allowed: {reason}", key)
    return None


def _own(key: Key, allowed: AllowList, bodies: tuple[Body, ...]) -> str:
    """The reason for the service's own objects: its state and leases, and what empowers or limits
    it.
    """
    if key.namespace in allowed.own.homes and _is_memory(key):
        return "it is state of gitops-ds"
    reason = "" if allowed.itself else own_objects.concern(key, bodies, allowed.own)
    return f"{reason}; apply.allow.itself permits it" if reason else ""


def _is_memory(key: Key) -> bool:
    return key.group == "coordination.k8s.io" or (
        key.kind == "ConfigMap" and key.name.startswith(f"{own_objects.OURS}-")
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


def not_requirable(manifest: Manifest, allowed: AllowList) -> Skipped | None:
    """The refusal for a DaemonSet that nodes must not wait for."""
    if allowed.required_for_work or not daemonsets.is_required_for_work(manifest.body):
        return None
    return Skipped(
        SkipReason.NOT_ALLOWED,
        f"{manifest.key} is not allowed: nodes wait for it (requiredForWork); "
        "apply.allow.requiredForWork permits it",
        manifest.key,
    )


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
    others = references.beyond(manifest.key, manifest.body)
    if not others:
        return None
    return Skipped(
        SkipReason.CROSS_NAMESPACE,
        f"{manifest.key} refers to {', '.join(others)}: references beyond its namespace are "
        "refused (apply.allowCrossNamespace)",
        manifest.key,
    )


def not_deletable(key: Key, agent: str, who: Impersonation | None) -> Skipped | None:
    """Why no account may delete the object; `agent` is that of the inventory, since every user of
    the cluster can change annotations of live objects.
    """
    account = who.of(key, agent) if who else None
    return account if isinstance(account, Skipped) else None
