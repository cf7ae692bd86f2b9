"""The settings of an apply: pruning, drift, and the identity that writes objects."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gitops_ds.core.duration import Duration
from gitops_ds.core.errors import SettingsError
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.core.values import replace
from gitops_ds.ownership.ignore_differences import IgnoreRule
from gitops_ds.ownership.options import AddedFields, ApplyOptions, Guards, Policy
from gitops_ds.ownership.permissions import AllowList, Impersonation
from gitops_ds.service.settings.base import (
    NonEmptyText,
    Ratio,
    SettingsGroup,
    default_duration,
    describe,
)

_NAME = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_ACCOUNT = re.compile(rf"({_NAME}/)?{_NAME}")
_CLUSTER_ACCOUNT = re.compile(rf"{_NAME}/{_NAME}")


class DeletionPolicy(StrEnum):
    """The effect of the deletion of a DaemonSet on its pods."""

    CASCADE = "cascade"
    FOREGROUND = "foreground"
    ORPHAN = "orphan"


class GuardSettings(SettingsGroup, frozen=True):
    """Guards of an apply. An unset guard has the value of the common guards."""

    empty_render: Annotated[
        bool | UnsetType, describe("Block a commit without objects. Default: true.")
    ] = UNSET
    max_deletes: Annotated[
        Ratio | UnsetType,
        describe(
            "The maximum number of objects that one apply deletes. Default: 50%, or unlimited with "
            "`emptyRender: false`."
        ),
    ] = UNSET
    max_nodes_lost: Annotated[
        Ratio | UnsetType,
        describe("The maximum number of nodes that may lose an agent in one apply. Default: 20%."),
    ] = UNSET


class ImpersonateSettings(SettingsGroup, frozen=True):
    """The identity that writes objects: a user with groups, or service accounts."""

    user: Annotated[
        NonEmptyText, describe("The user who applies every object, in place of accounts.")
    ] = ""
    groups: Annotated[tuple[NonEmptyText, ...], describe("The groups of that user.")] = ()
    service_account: Annotated[
        NonEmptyText,
        describe(
            "NAME: the account of that name in the namespace of each object; or NAMESPACE/NAME: "
            "one account for all namespaces."
        ),
    ] = ""
    cluster_service_account: Annotated[
        NonEmptyText,
        describe(
            "NAMESPACE/NAME: the account that applies cluster-scoped objects; without it "
            "they are refused."
        ),
    ] = ""
    agents: Annotated[
        dict[str, NonEmptyText],
        describe("Other service accounts for the objects of an agent: NAME or NAMESPACE/NAME."),
    ] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        accounts = [name for name in (self.service_account, *self.agents.values()) if name]
        invalid = [name for name in accounts if not _ACCOUNT.fullmatch(name)]
        of_cluster = self.cluster_service_account
        if of_cluster and not _CLUSTER_ACCOUNT.fullmatch(of_cluster):
            invalid.append(of_cluster)
        if invalid:
            raise SettingsError(
                f"apply.impersonate: {invalid[0]!r} is not a service account: write NAME or "
                "NAMESPACE/NAME"
            )
        user = self.user.strip()
        if not user and not accounts and not of_cluster:
            raise SettingsError(
                "apply.impersonate names no identity: set serviceAccount or user, or remove the "
                "group"
            )
        if self.groups and not user:
            raise SettingsError(
                "apply.impersonate.groups needs a user: a service account has its own groups"
            )
        if user and (accounts or of_cluster):
            raise SettingsError("apply.impersonate: a user and service accounts exclude each other")


class IgnoreTarget(SettingsGroup, frozen=True):
    """The objects of a rule, as globs."""

    kind: Annotated[NonEmptyText, describe("The kind.")] = "*"
    namespace: Annotated[NonEmptyText, describe("The namespace.")] = "*"
    name: Annotated[NonEmptyText, describe("The name.")] = "*"


class IgnoreSettings(SettingsGroup, frozen=True):
    """Fields of objects that are set while they are missing, and ignored afterwards."""

    paths: Annotated[
        tuple[Annotated[str, msgspec.Meta(pattern="^/")], ...],
        msgspec.Meta(min_length=1),
        describe("JSON pointers; a list's item by its name or its index."),
    ] = ()
    managers: Annotated[
        tuple[NonEmptyText, ...],
        msgspec.Meta(min_length=1),
        describe("Only the fields that one of these field managers owns."),
    ] = ()
    target: Annotated[IgnoreTarget, describe("The objects, as globs.")] = msgspec.field(
        default_factory=IgnoreTarget
    )

    def rule(self) -> IgnoreRule:
        """The rule of the plan."""
        target = self.target
        return IgnoreRule(self.paths, self.managers, target.kind, target.namespace, target.name)


class AllowSettings(SettingsGroup, frozen=True):
    """The objects that may be applied at all; an empty list allows none."""

    namespaces: Annotated[
        tuple[NonEmptyText, ...] | None, describe("Their namespaces. Default: all.")
    ] = None
    kinds: Annotated[
        tuple[NonEmptyText, ...] | None,
        describe("Their kinds, such as DaemonSet or apps/DaemonSet. Default: all."),
    ] = None
    cluster_scoped: Annotated[bool, describe("Whether cluster-scoped objects are allowed.")] = True
    required_for_work: Annotated[
        bool | None,
        describe(
            "Whether `requiredForWork` is allowed, for which nodes of the whole cluster wait. "
            "Default: true where objects of the cluster may be applied."
        ),
    ] = None
    itself: Annotated[
        bool,
        describe(
            "Whether objects that empower or limit gitops-ds itself are allowed: those of its "
            "namespace, and bindings, priorities and admission that include its account."
        ),
    ] = False

    def allow_list(self, impersonation: Impersonation | None) -> AllowList:
        """The list of the plan. Nodes are objects of the cluster: who applies none lets none wait,
        unless the settings permit it.
        """
        of_cluster = self.cluster_scoped and (
            impersonation is None
            or bool(impersonation.user or impersonation.cluster_service_account)
        )
        return AllowList(
            namespaces=None if self.namespaces is None else frozenset(self.namespaces),
            kinds=None if self.kinds is None else frozenset(self.kinds),
            cluster_scoped=self.cluster_scoped,
            required_for_work=(
                of_cluster if self.required_for_work is None else self.required_for_work
            ),
            itself=self.itself,
        )


class RepositoryApplySettings(SettingsGroup, frozen=True):
    """The keys that a repository may set for itself."""

    prune: Annotated[
        bool | UnsetType,
        describe("Whether objects that Git no longer has are deleted. Default: false."),
    ] = UNSET
    guards: Annotated[GuardSettings, describe("The guards of deletions and of nodes.")] = (
        msgspec.field(default_factory=GuardSettings)
    )
    impersonate: Annotated[
        ImpersonateSettings | UnsetType,
        describe("Apply with the identity of a user or service account with fewer permissions."),
    ] = UNSET
    allow_cross_namespace: Annotated[
        bool | UnsetType,
        describe(
            "Whether, under impersonation, an object may refer to another namespace. "
            "Default: false."
        ),
    ] = UNSET
    allow: Annotated[
        AllowSettings | UnsetType, describe("The objects that may be applied at all.")
    ] = UNSET


class ApplySettings(RepositoryApplySettings, frozen=True):
    """How a commit is applied."""

    drift: Annotated[
        DriftPolicy, describe("The policy for fields that were changed in the cluster.")
    ] = DriftPolicy.CORRECT
    adopt: Annotated[bool, describe("Whether objects of other tools are taken over.")] = False
    added_fields: Annotated[
        AddedFields,
        describe(
            "The agents from whose pod template fields that users of kubectl added are removed, by "
            "the policy `drift`: those with a rollout policy (staged), or all."
        ),
    ] = AddedFields.STAGED
    drift_from: Annotated[
        Literal["live", "git"],
        describe(
            "The annotations that control an object: also those set in the cluster (live), or "
            "those of Git alone."
        ),
    ] = "live"
    hold_for: Annotated[
        Duration, describe("How long held drift remains before it is corrected.")
    ] = default_duration("24h")
    compare_interval: Annotated[
        Duration,
        describe("How often the cluster is compared when no watch has reported a change."),
    ] = default_duration("10m")
    deletion: Annotated[
        DeletionPolicy, describe("How the pods of deleted DaemonSets are deleted.")
    ] = DeletionPolicy.CASCADE
    ignore: Annotated[
        tuple[
            Annotated[
                IgnoreSettings,
                describe(
                    "Fields of objects.",
                    anyOf=[{"required": ["paths"]}, {"required": ["managers"]}],
                ),
            ],
            ...,
        ],
        describe("Fields that are set while they are missing, and ignored afterwards."),
    ] = ()

    def of_repository(self, own: RepositoryApplySettings) -> ApplySettings:
        """These settings with a repository's own over them: key by key, guards limit by limit."""
        return replace(
            self,
            **{
                **_set_fields(own),
                "guards": replace(self.guards, **_set_fields(own.guards)),
            },
        )

    def options(self) -> ApplyOptions:
        """The options of the deployer."""
        return ApplyOptions(
            guards=self._guards(),
            adopt=self.adopt,
            allowed=(AllowSettings() if self.allow is UNSET else self.allow).allow_list(
                self._impersonation()
            ),
            drift=self.drift,
            added_fields=self.added_fields,
            live_annotations=self.drift_from == "live",
            patience=0.0,
            hold_for=self.hold_for,
            compare_every=self.compare_interval,
            ignore=tuple(rule.rule() for rule in self.ignore),
            impersonation=self._impersonation(),
        )

    def _guards(self) -> Guards:
        guards, default = self.guards, Guards()
        lost = default.lost if guards.max_nodes_lost is UNSET else guards.max_nodes_lost.limit
        return Guards(
            prune=self.prune is True,
            share=lost.share,
            nodes=lost.number,
            deletes=None if guards.max_deletes is UNSET else guards.max_deletes.limit,
            empty=guards.empty_render is not False,
            policy=Policy(self.deletion.value),
        )

    def _impersonation(self) -> Impersonation | None:
        if self.impersonate is UNSET:
            return None
        return Impersonation(
            user=self.impersonate.user.strip(),
            groups=self.impersonate.groups,
            service_account=self.impersonate.service_account,
            cluster_service_account=self.impersonate.cluster_service_account,
            agents=self.impersonate.agents,
            cross_namespace=self.allow_cross_namespace is True,
        )


def _set_fields(group: SettingsGroup) -> dict[str, Any]:
    values = {name: getattr(group, name) for name in group.__struct_fields__}
    return {name: value for name, value in values.items() if value is not UNSET}
