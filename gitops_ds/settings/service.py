"""The settings of the service: small frozen groups, read once from one YAML file that its schema
closes.

docs/operations.md lists them. Options of the command line win over the file. What the schema knows
and this version does not act upon is refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gitops_ds.controller.controller import Powers
from gitops_ds.controller.journal import files
from gitops_ds.deployer.reconcile import ApplyOptions
from gitops_ds.deployer.template_object import Chosen
from gitops_ds.errors import SettingsError
from gitops_ds.model import allowed_renderers
from gitops_ds.model.allowed_renderers import PROGRAMS, AllowedRenderers
from gitops_ds.settings import (
    apply as settings_apply,
)
from gitops_ds.settings import (
    durations,
    election,
    notify,
    repository,
    templates,
    webhook,
)
from gitops_ds.settings import (
    page as settings_page,
)
from gitops_ds.settings.election import ElectionSettings
from gitops_ds.settings.notify import ReceiverSettings
from gitops_ds.settings.page import PageSettings, Readiness
from gitops_ds.settings.repository import RepositorySettings
from gitops_ds.settings.webhook import WebhookSettings

# Known to the schema, without effect in this version.
_NOT_YET_INSIDE = {
    "repository": ("author",),
    "cluster": ("qps",),
    "apply": ("dryRun", "timeout"),
    "controller": ("concurrency",),
    "listen": ("tls", "metrics"),
}


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Which cluster of the repository, how it is reached, and where the state is kept."""

    name: str = ""
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str = "gitops-ds"


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """Where decisions are written (nowhere: empty), and how much of that is kept."""

    path: str = ""
    limits: files.JournalLimits = field(default_factory=files.JournalLimits)


@dataclass(frozen=True, slots=True)
class Service:
    """All settings of the service. `listen` is HOST:PORT or empty, `listen_probes` that of the
    probes alone; `log_format` is text or json. `progress_deadline` is in seconds.

    `allowed` are the programs that may render what the repository says. `direct`: pods are bound to
    their nodes by us, not by a scheduler. `own_node` and `own_namespace` are where the service runs
    itself; no file says so.
    """

    repositories: tuple[RepositorySettings, ...] = ()
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    apply: ApplyOptions = field(default_factory=lambda: ApplyOptions(patience=0.0))
    powers: Powers = Powers.PACE
    direct: bool = False
    own_node: str = ""
    own_namespace: str = ""
    listen: str = ""
    listen_probes: str = ""
    page: PageSettings = field(default_factory=PageSettings)
    readiness: Readiness = Readiness.STARTED
    webhook: WebhookSettings = field(default_factory=WebhookSettings)
    journal: JournalSettings = JournalSettings()
    progress_deadline: float = 600.0
    log_format: str = "text"
    log_level: str = "debug"
    allowed: AllowedRenderers = PROGRAMS
    templates: Chosen | None = None
    election: ElectionSettings = field(default_factory=ElectionSettings)
    notify: tuple[ReceiverSettings, ...] = ()

    @property
    def asked(self) -> ApplyOptions:
        """What is asked of every pass: `apply`, with what the service itself lives from out of
        reach.
        """
        return self._protected(self.apply)

    def asked_of(self, repository: RepositorySettings) -> ApplyOptions:
        """What is asked of the passes of one repository: the same, with what its own `apply` says
        instead.
        """
        return self._protected(repository.apply or self.apply)

    def _protected(self, asked: ApplyOptions) -> ApplyOptions:
        homes = frozenset({self.cluster.namespace, self.own_namespace} - {""})
        return replace(asked, allowed=replace(asked.allowed, homes=homes))


def read(file: str) -> Service:
    """The settings in a file. Raises SettingsError with file, line and column."""
    # 3 MiB, which a service that is told everything by options has no use for.
    from gitops_ds.checks.schema import repository_files
    from gitops_ds.yaml import parser

    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise SettingsError(f"--settings {file}: {error.strerror}") from None
    parsed = parser.read(file, data)
    problems = [finding for finding in parsed.findings if finding.refused]
    for document in parsed.documents:
        problems += repository_files.check_own("settings", document, file, data)
    if problems:
        raise SettingsError(
            "\n".join(f"{finding.place}: {finding.message}" for finding in problems)
        )
    if len(parsed.documents) != 1 or not isinstance(parsed.documents[0].value, dict):
        raise SettingsError(f"{file}: one document with the groups of settings is expected")
    return parse(parsed.documents[0].value, file)


def parse(told: Mapping[str, Any], file: str = "the settings") -> Service:
    """The settings of a document that its schema found right."""
    idle = [
        f"{group}.{name}"
        for group, some in _NOT_YET_INSIDE.items()
        for name in some
        if _is_said(told.get(group), name)
    ]
    idle += [
        f"repositories.{name}"
        for name in _NOT_YET_INSIDE["repository"]
        for one in told.get("repositories") or ()
        if name in one
    ]
    if idle:
        raise SettingsError(
            f"{file}: {', '.join(idle)}: known, but without effect in this version; remove it"
        )
    cluster = told.get("cluster") or {}
    log = told.get("log") or {}
    render = told.get("render") or {}
    return Service(
        repositories=_repositories(told, file),
        cluster=ClusterSettings(
            cluster.get("name") or "",
            cluster.get("kubeconfig"),
            cluster.get("context"),
            cluster.get("namespace") or "gitops-ds",
        ),
        apply=settings_apply.parse(told.get("apply") or {}),
        powers=Powers((told.get("controller") or {}).get("powers") or Powers.PACE),
        direct=(told.get("controller") or {}).get("scheduling") == "direct",
        listen=(told.get("listen") or {}).get("address") or "",
        listen_probes=(told.get("listen") or {}).get("probes") or "",
        page=settings_page.page(told["listen"]["page"])
        if _is_said(told.get("listen"), "page")
        else PageSettings(),
        readiness=Readiness((told.get("listen") or {}).get("readiness") or Readiness.STARTED),
        webhook=webhook.parse((told.get("listen") or {}).get("webhook") or {}),
        journal=_journal(told.get("journal") or {}),
        progress_deadline=durations.seconds(
            (told.get("health") or {}).get("progressDeadline", 600.0)
        ),
        log_format=log.get("format") or "text",
        log_level=log.get("level") or "debug",
        allowed=allowed_renderers.parse(render["allow"]) if "allow" in render else PROGRAMS,
        templates=templates.parse(told["templates"] or {}) if "templates" in told else None,
        election=election.parse(told.get("election") or {}),
        notify=notify.parse(told.get("notify") or ()),
    )


def _repositories(told: Mapping[str, Any], file: str) -> tuple[RepositorySettings, ...]:
    """Those of `repositories`, or the one of `repository`. Objects have one owner, so none may be
    there twice.
    """
    if "repository" in told and "repositories" in told:
        raise SettingsError(f"{file}: repository and repositories: write one of them")
    found = tuple(
        _repository(one, told.get("apply") or {})
        for one in told.get("repositories")
        or [told[name] for name in ("repository",) if name in told]
    )
    twice = [
        one
        for number, one in enumerate(found)
        if (one.url, one.path) in [(before.url, before.path) for before in found[:number]]
    ]
    if twice:
        raise SettingsError(
            f"{file}: repositories: {twice[0].url} is there twice with the same path"
        )
    _refuse_shared_account(found, file)
    return found


def _repository(told: Mapping[str, Any], common: Mapping[str, Any]) -> RepositorySettings:
    """One repository, whose own `apply` wins over the common one, key by key; `guards` limit by
    limit.
    """
    own = told.get("apply") or {}
    guards = {**(common.get("guards") or {}), **(own.get("guards") or {})}
    merged = {**common, **own, **({"guards": guards} if guards else {})}
    return replace(repository.parse(told), apply=settings_apply.parse(merged))


def _refuse_shared_account(found: tuple[RepositorySettings, ...], file: str) -> None:
    """Raises SettingsError where several repositories may write in the name of every namespace's
    account.

    A bare NAME is the account of that name in the namespace of each object: each repository would
    reach every namespace with one.
    """
    for one in found if len(found) > 1 else ():
        asked = one.apply or ApplyOptions()
        who = asked.impersonation
        accounts = (who.service_account, *who.agents.values()) if who else ()
        if asked.allowed.namespaces is None and any(name and "/" not in name for name in accounts):
            raise SettingsError(
                f"{file}: {one.url} may write in the name of an account in every namespace, as "
                "may the other repositories: say "
                "for each of them which namespaces are its own "
                "(repositories.apply.allow.namespaces), or name one account as "
                "NAMESPACE/NAME (repositories.apply.impersonate.serviceAccount)"
            )


def _is_said(group: Any, name: str) -> bool:
    """Whether a group of the file has the key, which may be a way: `guards.maxDeletes`."""
    for step in name.split("."):
        if not isinstance(group, Mapping) or step not in group:
            return False
        group = group[step]
    return True


def _journal(told: Mapping[str, Any]) -> JournalSettings:
    limits = {name: told[name] for name in ("bytes", "days") if name in told}
    return JournalSettings(told.get("path") or "", replace(files.JournalLimits(), **limits))
