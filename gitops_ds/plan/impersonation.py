"""Impersonation: the account that applies an object, with fewer permissions than the service. It is
set in the settings, never in a repository.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from gitops_ds.model.cluster import Identity
from gitops_ds.model.objects import Key
from gitops_ds.model.skip_reasons import Skipped, SkipReason
from gitops_ds.model.sources.bundle import Manifest

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


def why_not(manifest: Manifest, who: Impersonation | None) -> Skipped | None:
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


def why_not_deleted(key: Key, agent: str, who: Impersonation | None) -> Skipped | None:
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
