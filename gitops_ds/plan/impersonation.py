"""As whom an object is applied: an account that may do less than the service, chosen by the
settings and never by a repository.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gitops_ds.model.bundle import Manifest
from gitops_ds.model.cluster import Identity
from gitops_ds.model.objects import Key
from gitops_ds.model.skip_reasons import SkipReason
from gitops_ds.model.skipped import Skipped

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Impersonation:
    """Who applies what. A `user` applies everything, with `groups`; else service accounts do.

    `service_account` is a NAME, which stands in the namespace of each object, or NAMESPACE/NAME for
    one account that applies to all namespaces; `agents` name another account for an agent. What is
    in no namespace is applied by `cluster_service_account` (NAMESPACE/NAME), or by nobody. Without
    `cross_namespace` no object may refer to another namespace.
    """

    user: str = ""
    groups: tuple[str, ...] = ()
    service_account: str = ""
    cluster_service_account: str = ""
    agents: Mapping[str, str] = field(default_factory=dict)
    cross_namespace: bool = False

    def of(self, key: Key, agent: str = "") -> Identity | Skipped:
        """As whom the object is applied or deleted, or why by nobody."""
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
        return Skipped(
            SkipReason.IMPERSONATION, f"{key} is applied by nobody: {self._advice(key)}", key
        )

    def _advice(self, key: Key) -> str:
        setting = "serviceAccount" if key.namespace else "clusterServiceAccount"
        return (
            f"apply.impersonate.{setting} names no account for what is in "
            f"{'a namespace' if key.namespace else 'no namespace'}"
        )


def why_not(manifest: Manifest, who: Impersonation | None) -> Skipped | None:
    """Why the object may not be applied by an account of its own."""
    if who is None:
        return None
    found = who.of(manifest.key, manifest.agent)
    if isinstance(found, Skipped):
        return found
    if who.cross_namespace or not manifest.key.namespace:
        return None
    if groups := sorted(_wide_groups(manifest.body, manifest.key)):
        told = f"{manifest.key} names {', '.join(groups)}, which accounts of other namespaces belong to"
        return Skipped(
            SkipReason.CROSS_NAMESPACE, f"{told}: refused (apply.allowCrossNamespace)", manifest.key
        )
    others = sorted(_named(manifest.body, manifest.key) - {manifest.key.namespace})
    if not others:
        return None
    told = (
        f"{manifest.key} refers to namespace {', '.join(others)}: references to other namespaces "
        "are refused"
    )
    return Skipped(SkipReason.CROSS_NAMESPACE, f"{told} (apply.allowCrossNamespace)", manifest.key)


def why_not_deleted(key: Key, agent: str, who: Impersonation | None) -> Skipped | None:
    """Why nobody may delete the object; `agent` by the inventory, for annotations of live objects
    are anybody's.
    """
    found = who.of(key, agent) if who else None
    return found if isinstance(found, Skipped) else None


_ACCOUNT = re.compile(r"system:serviceaccounts?:([^:]+)")


def _named(body: object, key: Key) -> set[str]:
    """The namespaces that a namespaced object refers to: a RoleBinding's subjects, and whatever is
    called a reference.
    """
    found: set[str] = set()
    if key.kind == "RoleBinding" and isinstance(body, Mapping):
        for subject in body.get("subjects") or ():
            if isinstance(subject, Mapping):
                account = (
                    _ACCOUNT.match(str(subject.get("name") or ""))
                    if subject.get("kind") in ("User", "Group")
                    else None
                )
                found |= {str(subject["namespace"])} if subject.get("namespace") else set()
                found |= {account[1]} if account else set()
    return found | _references(body)


def _wide_groups(body: Mapping[str, object], key: Key) -> set[str]:
    """Groups of Kubernetes' own in a RoleBinding; that of its own namespace's accounts alone is
    none of them.

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
    found: set[str] = set()
    for name, below in value.items():
        if str(name).endswith(("Ref", "Refs")):
            some = below if isinstance(below, list) else [below]
            found |= {
                str(one["namespace"])
                for one in some
                if isinstance(one, Mapping) and one.get("namespace")
            }
        found |= _references(below)
    return found
