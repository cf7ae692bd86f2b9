"""The settings of the service: a tree of frozen groups, read once from one YAML file.

docs/reference/settings.md lists them. Options of the command line override the file. The places of
errors (file:line:column) come from the check against the JSON schema, which is generated from the
groups.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gitops_ds.core.cluster import Identity
from gitops_ds.core.decision import Powers
from gitops_ds.core.duration import Duration
from gitops_ds.core.errors import SettingsError
from gitops_ds.core.events.definition import Topic
from gitops_ds.core.objects import CONFIG_MAP, SECRET
from gitops_ds.core.sources import repository_limits
from gitops_ds.core.sources.repository_limits import AllowedRenderers
from gitops_ds.core.values import replace
from gitops_ds.deploy.templates.template_selector import TemplateSelector
from gitops_ds.kube.client.leader_election import LeaseTiming
from gitops_ds.notify.notifications import MessageFormat
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.ownership.own_objects import OwnAccount
from gitops_ds.service.settings.apply import ApplySettings
from gitops_ds.service.settings.base import (
    NonEmptyText,
    Positive,
    SettingsGroup,
    decode,
    default_duration,
    describe,
)
from gitops_ds.service.settings.listen import ListenSettings
from gitops_ds.service.settings.metrics import MetricsSettings
from gitops_ds.service.settings.repository import RepositorySettings
from gitops_ds.service.settings.startup_taints import StartupTaintSettings


class TemplateKind(StrEnum):
    """A kind of objects with templates."""

    CONFIG_MAP = "ConfigMap"
    SECRET = "Secret"  # noqa: S105  the kind


_RESOURCES = {TemplateKind.CONFIG_MAP: CONFIG_MAP, TemplateKind.SECRET: SECRET}


class TemplateSettings(SettingsGroup, frozen=True):
    """The ConfigMaps and Secrets with templates."""

    selector: Annotated[
        NonEmptyText, describe("The labels of objects that hold templates, as for kubectl -l.")
    ] = TemplateSelector().selector
    namespaces: Annotated[
        tuple[NonEmptyText, ...],
        describe('Their namespaces; "*" is every namespace. Default: that of the state.'),
    ] = ()
    kinds: Annotated[
        tuple[TemplateKind, ...], msgspec.Meta(min_length=1), describe("Their kinds.")
    ] = tuple(TemplateKind)
    anywhere: Annotated[
        bool,
        describe(
            "Whether a template may name objects of other namespaces than its own, and "
            "cluster-scoped ones."
        ),
    ] = False

    def chosen(self) -> TemplateSelector:
        """The selection, without the service's namespace and the cluster's name."""
        return TemplateSelector(
            selector=self.selector,
            namespaces=self.namespaces,
            kinds=tuple(_RESOURCES[kind] for kind in self.kinds),
            anywhere=self.anywhere,
        )


_LEASE = "gitops-ds"


class ElectionSettings(SettingsGroup, frozen=True):
    """Whether replicas elect a leader, and the name and the times of their lease."""

    enabled: Annotated[
        bool | None, describe("Whether several replicas elect a leader. Default: in a pod.")
    ] = None
    lease: Annotated[str, describe("The name of the lease.")] = _LEASE
    duration: Annotated[Duration, describe("How long a lease is valid after its renewal.")] = (
        default_duration("10s")
    )
    renew_deadline: Annotated[
        Duration, describe("The time without a renewal after which the leader stops.")
    ] = default_duration("7s")
    retry_period: Annotated[Duration, describe("The time between two attempts.")] = (
        default_duration("2s")
    )

    def __post_init__(self) -> None:
        """Raises SettingsError for times that make two leaders possible."""
        if not self.lease:
            msgspec.structs.force_setattr(self, "lease", _LEASE)
        if (
            self.duration < 1
            or self.renew_deadline > 0.9 * self.duration
            or self.retry_period * 2 > self.renew_deadline
        ):
            raise SettingsError(
                "election: duration must be a second or more, renewDeadline at most nine tenths "
                "of it, retryPeriod at most half of that"
            )

    @property
    def timing(self) -> LeaseTiming:
        """The times of the lease, in seconds."""
        return LeaseTiming(self.duration, self.renew_deadline, self.retry_period)

    @property
    def held(self) -> bool:
        """Whether this process takes part in an election."""
        return "KUBERNETES_SERVICE_HOST" in os.environ if self.enabled is None else self.enabled


class ClusterSettings(SettingsGroup, frozen=True):
    """The cluster: its name in the repository, its connection, the namespace of the state."""

    name: Annotated[str, describe("The name of a file of clusters/.")] = ""
    kubeconfig: Annotated[
        str | None,
        describe("A kubeconfig. Default: as kubectl, or the service account of the pod."),
    ] = None
    context: Annotated[str | None, describe("The context of the kubeconfig.")] = None
    namespace: Annotated[
        str,
        describe("The namespace of the service, with its state.", **{"$ref": "#/$defs/name"}),
    ] = "gitops-ds"


class RenderSettings(SettingsGroup, frozen=True):
    """How the files of a commit become manifests."""

    allow: Annotated[
        tuple[Literal["helm", "kustomize", "network"], ...],
        describe("Programs that may render them, and whether charts are fetched."),
    ] = ("helm", "kustomize")
    timeout: Annotated[
        Duration,
        describe("The time limit of one program; a commit has five times as much for all."),
    ] = default_duration("60s")

    def __post_init__(self) -> None:
        """Raises SettingsError for a time in which no program renders."""
        if self.timeout < 1:
            raise SettingsError("render: timeout must be a second or more")


class ControllerSettings(SettingsGroup, frozen=True):
    """The DaemonSet controller."""

    powers: Annotated[
        Powers,
        describe(
            "The powers: observe only compares, pace applies Git, full creates the pods as well."
        ),
    ] = Powers.PACE
    scheduling: Annotated[
        Literal["scheduler", "direct"],
        describe(
            "The component that binds pods under the powers full: the scheduler, or the "
            "controller itself if resources and host ports allow."
        ),
    ] = "scheduler"


class HealthSettings(SettingsGroup, frozen=True):
    """When an agent is unhealthy."""

    progress_deadline: Annotated[
        Duration, describe("The time without progress after which a rollout has failed.")
    ] = default_duration("10m")


class ReceiverSettings(SettingsGroup, frozen=True):
    """A receiver of notifications; address and secret are in files."""

    name: Annotated[str, describe("The name of the receiver.")]
    url_file: Annotated[str, describe("A file with the address.")]
    format: Annotated[MessageFormat, describe("The format of the body.")] = MessageFormat.JSON
    topics: Annotated[
        frozenset[Annotated[Topic, describe("A topic.")]],
        describe("The topics that are sent. Default: all."),
    ] = msgspec.field(name="on", default_factory=lambda: frozenset(Topic))
    secret_file: Annotated[str, describe("A file with the secret that signs the body.")] = ""
    per_minute: Annotated[Positive, describe("The maximum number of messages in a minute.")] = (
        msgspec.field(name="maxPerMinute", default=10)
    )


class LogSettings(SettingsGroup, frozen=True):
    """The log."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        describe(
            "The lowest level of its lines; debug in JSON has each reconciliation of the "
            "controller."
        ),
    ] = "debug"
    format: Annotated[
        Literal["text", "json"],
        describe("The format of its lines: text (time in UTC, level, message) or JSON."),
    ] = "text"


class SettingsFile(SettingsGroup, frozen=True):
    """The settings file of gitops-ds run; unknown keys are refused."""

    repository: Annotated[RepositorySettings | None, describe("The Git repository.")] = None
    repositories: Annotated[
        tuple[RepositorySettings, ...],
        msgspec.Meta(min_length=1),
        describe("Several Git repositories, each as under repository."),
    ] = ()
    cluster: Annotated[ClusterSettings, describe("The cluster.")] = msgspec.field(
        default_factory=ClusterSettings
    )
    templates: Annotated[
        TemplateSettings | None,
        describe(
            "Templates in ConfigMaps and Secrets of the cluster. Default: none.",
            type=["object", "null"],
        ),
    ] = None
    startup_taints: Annotated[
        StartupTaintSettings | None,
        describe(
            "Nodes get no work before their required agents are ready. Default: none.",
            type=["object", "null"],
        ),
    ] = None
    render: Annotated[RenderSettings, describe("How the files of a commit become manifests.")] = (
        msgspec.field(default_factory=RenderSettings)
    )
    apply: Annotated[ApplySettings, describe("How a commit is applied.")] = msgspec.field(
        default_factory=ApplySettings
    )
    controller: Annotated[ControllerSettings, describe("The DaemonSet controller.")] = (
        msgspec.field(default_factory=ControllerSettings)
    )
    election: Annotated[ElectionSettings, describe("Leader election.")] = msgspec.field(
        default_factory=ElectionSettings
    )
    listen: Annotated[ListenSettings, describe("The addresses of the service.")] = msgspec.field(
        default_factory=ListenSettings
    )
    notify: Annotated[
        tuple[Annotated[ReceiverSettings, describe("A receiver.")], ...],
        describe("The receivers of notifications."),
    ] = ()
    health: Annotated[HealthSettings, describe("When an agent is unhealthy.")] = msgspec.field(
        default_factory=HealthSettings
    )
    metrics: Annotated[MetricsSettings, describe("The measured gates of rollouts.")] = (
        msgspec.field(default_factory=MetricsSettings)
    )
    log: Annotated[LogSettings, describe("The log.")] = msgspec.field(default_factory=LogSettings)


class Service(SettingsFile, frozen=True, kw_only=True):
    """All settings of the service. `own_node` and `own_namespace` are those of its own pod, from
    the environment, `own_account` is that of its requests, from the API server. The repository of
    the file is one of `repositories`.
    """

    own_node: str = ""
    own_namespace: str = ""
    own_account: Identity | None = None

    def __post_init__(self) -> None:
        """Raises SettingsError for keys that contradict each other."""
        names = [target.name for target in self.notify]
        if duplicate := next((name for name in names if names.count(name) > 1), ""):
            raise SettingsError(f"notify: the name {duplicate} is used twice")

    @property
    def direct(self) -> bool:
        """Whether the controller binds pods to their nodes, without a scheduler."""
        return self.controller.scheduling == "direct"

    @property
    def allowed(self) -> AllowedRenderers:
        """The programs that may render the files of a commit."""
        return replace(
            repository_limits.parse_allowed(self.render.allow), seconds=float(self.render.timeout)
        )

    @property
    def chosen_templates(self) -> TemplateSelector | None:
        """The selection of cluster objects with templates; None if templates are disabled."""
        if self.templates is None:
            return None
        return replace(
            self.templates.chosen(), home=self.cluster.namespace, cluster=self.cluster.name
        )

    @property
    def prunes(self) -> bool:
        """Whether objects that left Git are deleted, for any repository or template."""
        options = [self.apply_options_of(repository) for repository in self.repositories]
        return any(option.guards.prune for option in (self.apply_options, *options))

    @property
    def apply_options(self) -> ApplyOptions:
        """The options of every apply."""
        return self._with_homes(self.apply)

    def apply_options_of(self, repository: RepositorySettings) -> ApplyOptions:
        """The apply options of one repository, whose own settings override the common ones."""
        options = self._with_homes(self.apply.of_repository(repository.apply))
        return replace(options, approvers=frozenset(repository.approvers))

    def _with_homes(self, settings: ApplySettings) -> ApplyOptions:
        """Options that exclude the namespaces of the service itself from applies."""
        options = settings.options()
        homes = frozenset({self.cluster.namespace, self.own_namespace} - {""})
        own = OwnAccount(homes, self.own_account)
        return replace(options, allowed=replace(options.allowed, own=own))


def read(file: str) -> Service:
    """The settings in a file. Raises SettingsError with file, line and column."""
    # 3 MiB, which a service without a settings file does not need.
    from gitops_ds.checks.schema import repository_files
    from gitops_ds.yaml import parser

    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise SettingsError(f"--settings {file}: {error.strerror}") from None
    parsed = parser.read(file, data)
    problems = [finding for finding in parsed.findings if finding.refused]
    for document in parsed.documents:
        _restore_on(document.value)
        problems += repository_files.check_own("settings", document, file, data)
    if problems:
        raise SettingsError(
            "\n".join(f"{finding.place}: {finding.message}" for finding in problems)
        )
    if len(parsed.documents) != 1 or not isinstance(parsed.documents[0].value, dict):
        raise SettingsError(f"{file}: one document with the groups of settings is expected")
    return parse(parsed.documents[0].value, file)


def _restore_on(document: object) -> None:
    """Renames the key "true" of receivers to `on`: YAML 1.1 and kubectl read an unquoted `on` as
    true.
    """
    receivers = document.get("notify") if isinstance(document, dict) else None
    for receiver in receivers if isinstance(receivers, list) else ():
        if isinstance(receiver, dict) and "on" not in receiver and "true" in receiver:
            receiver["on"] = receiver.pop("true")


def parse(document: Mapping[str, Any], file: str = "the settings") -> Service:
    """The settings of a document that matches the JSON schema. Raises SettingsError."""
    if "repository" in document and "repositories" in document:
        raise SettingsError(f"{file}: repository and repositories: write one of them")
    # An empty group `templates:` or `startupTaints:` enables it with its defaults.
    for name in ("templates", "startupTaints"):
        if name in document and document[name] is None:
            document = {**document, name: {}}
    groups = decode(SettingsFile, document)
    values = {name: getattr(groups, name) for name in groups.__struct_fields__}
    if groups.repository is not None:
        values |= {"repository": None, "repositories": (groups.repository,)}
    service = Service(**values)
    _refuse_duplicate_repository(service, file)
    _refuse_shared_account(service, file)
    return service


def _refuse_duplicate_repository(service: Service, file: str) -> None:
    """Raises SettingsError for two repositories with the same address and path."""
    places = [(repository.url, repository.path) for repository in service.repositories]
    for number, (url, path) in enumerate(places):
        if (url, path) in places[:number]:
            raise SettingsError(f"{file}: repositories: {url} is listed twice with the same path")


def _refuse_shared_account(service: Service, file: str) -> None:
    """Raises SettingsError if several repositories may use one account name in every namespace.

    A bare NAME is the account of that name in the namespace of each object: each repository could
    use those of every namespace.
    """
    for repository in service.repositories if len(service.repositories) > 1 else ():
        options = service.apply_options_of(repository)
        identity = options.impersonation
        accounts = (identity.service_account, *identity.agents.values()) if identity else ()
        bare = any(name and "/" not in name for name in accounts)
        if options.allowed.namespaces is None and bare:
            raise SettingsError(
                f"{file}: {repository.url} may use a service account in every namespace, as may "
                "the other repositories: set the namespaces of each "
                "(repositories.apply.allow.namespaces), or one account as NAMESPACE/NAME "
                "(repositories.apply.impersonate.serviceAccount)"
            )
