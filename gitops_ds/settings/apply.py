"""The settings of an apply: what is deleted, what is done about drift, and in whose name objects
are written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gitops_ds.deployer.reconcile import ApplyOptions
from gitops_ds.errors import SettingsError
from gitops_ds.model.change import DriftPolicy
from gitops_ds.plan.ignore_differences import IgnoreRule
from gitops_ds.plan.impersonation import Impersonation
from gitops_ds.plan.prune import Guards, Limit, Policy
from gitops_ds.settings import durations, templates

_NAME = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_ACCOUNT = re.compile(rf"({_NAME}/)?{_NAME}")
_CLUSTER_ACCOUNT = re.compile(rf"{_NAME}/{_NAME}")


def parse(told: Mapping[str, Any]) -> ApplyOptions:
    """The group `apply`. Raises SettingsError for an identity that names nobody."""
    plain = ApplyOptions()
    return ApplyOptions(
        guards=_guards(told),
        adopt=bool(told.get("adopt")),
        allowed=templates.allowed(told.get("allow") or {}),
        drift=DriftPolicy(told.get("drift") or DriftPolicy.CORRECT),
        live_words=told.get("driftFrom") != "git",
        patience=0.0,
        hold_for=durations.seconds(told["holdFor"]) if "holdFor" in told else plain.hold_for,
        compare_every=durations.seconds(told["compareInterval"])
        if "compareInterval" in told
        else plain.compare_every,
        ignore=tuple(map(_rule, told.get("ignore") or ())),
        impersonation=_impersonation(told["impersonate"], told) if "impersonate" in told else None,
    )


def _guards(told: Mapping[str, Any]) -> Guards:
    said = told.get("guards") or {}
    lost = _limit(said["maxNodesLost"]) if "maxNodesLost" in said else Guards().lost
    return Guards(
        prune=bool(told.get("prune")),
        share=lost.share,
        nodes=lost.number,
        deletes=_limit(said["maxDeletes"]) if "maxDeletes" in said else None,
        empty=bool(said.get("emptyRender", True)),
        policy=Policy(told.get("deletion") or Policy.CASCADE),
    )


def _limit(said: str | int) -> Limit:
    return (
        Limit(share=float(said.removesuffix("%")) / 100)
        if isinstance(said, str)
        else Limit(number=said)
    )


def _rule(told: Mapping[str, Any]) -> IgnoreRule:
    target = told.get("target") or {}
    globs = {name: str(target[name]) for name in ("kind", "namespace", "name") if name in target}
    return IgnoreRule(tuple(told.get("paths") or ()), tuple(told.get("managers") or ()), **globs)


def _impersonation(told: Mapping[str, Any], group: Mapping[str, Any]) -> Impersonation:
    agents = {str(agent): str(account) for agent, account in (told.get("agents") or {}).items()}
    found = Impersonation(
        user=str(told.get("user") or "").strip(),
        groups=tuple(told.get("groups") or ()),
        service_account=str(told.get("serviceAccount") or ""),
        cluster_service_account=str(told.get("clusterServiceAccount") or ""),
        agents=agents,
        cross_namespace=bool(group.get("allowCrossNamespace")),
    )
    accounts = [name for name in (found.service_account, *agents.values()) if name]
    wrong = [name for name in accounts if not _ACCOUNT.fullmatch(name)]
    if found.cluster_service_account and not _CLUSTER_ACCOUNT.fullmatch(
        found.cluster_service_account
    ):
        wrong.append(found.cluster_service_account)
    if wrong:
        raise SettingsError(
            f"apply.impersonate: {wrong[0]!r} is no account: write NAME or NAMESPACE/NAME"
        )
    if not found.user and not accounts and not found.cluster_service_account:
        raise SettingsError(
            "apply.impersonate names nobody: set serviceAccount or user, or leave the group out"
        )
    if found.groups and not found.user:
        raise SettingsError(
            "apply.impersonate.groups needs a user: a service account has its own groups"
        )
    if found.user and (accounts or found.cluster_service_account):
        raise SettingsError("apply.impersonate: a user and service accounts exclude each other")
    return found
