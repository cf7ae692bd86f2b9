"""`gitops-ds run`: the service."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli.parameters import candidates, options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.core.events.base import Event
    from gitops_ds.core.sources.repository_limits import AllowedRenderers
    from gitops_ds.service.settings.repository import RepositorySettings
    from gitops_ds.service.settings.service import Service


@dataclass(frozen=True, kw_only=True)
class RunArgs(options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds run`."""

    settings: str | None
    url: str | None
    branch: str | None
    path: str | None
    allowed: AllowedRenderers | None
    interval: float | None
    powers: str | None
    listen: str | None
    listen_probes: str | None
    log_format: str | None
    own_node: str | None
    cluster: str | None


@options.command(RunArgs)
@options.option(
    "--settings", shell_complete=candidates.files, help="The settings file; options override it."
)
@options.option(
    "-C",
    "--repository",
    "url",
    shell_complete=candidates.directories,
    help="The repository to follow; without one only the controller runs.",
)
@options.option("--branch", help="The branch to follow.")
@options.option("--path", help="The directory inside the repository.")
@options.allow
@options.option(
    "--interval",
    type=options.DurationType(least=0.1),
    help="The interval between fetches of the repository: 60s, 5m.",
)
@options.option(
    "--powers",
    type=click.Choice(["observe", "pace", "full"]),
    help="The powers of the controller; default: pace.",
)
@options.option(
    "--listen", metavar="HOST:PORT", help="The address of /healthz, /readyz, /metrics and the page."
)
@options.option(
    "--listen-probes",
    metavar="HOST:PORT",
    help="A separate address for /healthz and /readyz.",
)
@options.option(
    "--log-format", type=click.Choice(["text", "json"]), help="The format of the log on stderr."
)
@options.option(
    "--own-node",
    metavar="NODE",
    help="The node of this process; with powers full its agents are replaced last.",
)
@options.option(
    "--cluster",
    "cluster",
    shell_complete=candidates.clusters,
    help="The name of a file in clusters/, without .yaml.",
)
@options.connection
def run(args: RunArgs) -> int:
    """Run the deployer and the DaemonSet controller until SIGTERM."""
    from gitops_ds.service import event_loop

    event_loop.return_large_blocks()
    with options.importing():
        import orjson

        from gitops_ds.core.events.definition import Level
        from gitops_ds.notify import log_lines
        from gitops_ds.service import main

    settings = _settings(args)
    as_json, quiet = settings.log.format == "json", args.quiet

    def emit(event: Event) -> None:
        if (quiet and not as_json) or not log_lines.matters(event, settings.log.level):
            return
        if as_json:
            if document := log_lines.as_json(event):
                click.echo(orjson.dumps(document), err=True)
        elif line := log_lines.dated(event):
            options.say(line)

    def say(text: str) -> None:
        now = time.time()
        if as_json:
            click.echo(orjson.dumps(log_lines.message(now, Level.INFO, text)), err=True)
        else:
            options.say(log_lines.stamped(now, Level.INFO, text))

    service = main.run(settings, emit, say, at_desk=args.settings is None)
    options.run(service, event_loop.factory())
    return 0


def _settings(args: RunArgs) -> Service:
    """The settings of the file, overridden by the options."""
    from gitops_ds.core.decision import Powers
    from gitops_ds.core.values import replace
    from gitops_ds.service.settings import service as file

    settings = file.read(args.settings) if args.settings else file.Service()
    namespace = args.state_namespace
    if namespace == "gitops-ds" and args.settings:
        namespace = ""
    cluster = {
        "name": args.cluster,
        "kubeconfig": args.kubeconfig,
        "context": args.context,
        "namespace": namespace,
    }
    powers: dict[str, Any] = {"powers": Powers(args.powers)} if args.powers else {}
    render: dict[str, Any] = {} if args.allowed is None else {"allow": args.allowed.words}
    addresses = {"address": args.listen, "probes": args.listen_probes}
    return replace(
        settings,
        repositories=_repositories(args, settings.repositories),
        cluster=replace(settings.cluster, **_set(cluster)),
        controller=replace(settings.controller, **powers),
        render=replace(settings.render, **render),
        own_node=args.own_node or "",
        own_namespace=os.environ.get("POD_NAMESPACE", ""),
        listen=replace(settings.listen, **_set(addresses)),
        log=replace(settings.log, **_set({"format": args.log_format})),
    )


def _set(values: dict[str, str | None]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def _repositories(
    args: RunArgs, configured: tuple[RepositorySettings, ...]
) -> tuple[RepositorySettings, ...]:
    """The repositories of the settings, or the one of `-C`, with the options applied."""
    from gitops_ds.core.duration import Duration
    from gitops_ds.core.values import replace
    from gitops_ds.service.settings.base import Ratio
    from gitops_ds.service.settings.repository import RepositorySettings

    changes: dict[str, Any] = {} if args.branch is None else {"branch": args.branch}
    if args.path is not None:
        changes["path"] = args.path
    if len(configured) > 1 and (args.url or changes):
        raise click.UsageError(
            "the settings have several repositories: -C, --branch and --path apply to one"
        )
    if url := args.url:
        from gitops_ds.deploy.pipeline import open_repository

        named = open_repository.named(url, args.path or "")
        if named.where is None:
            raise click.UsageError(f"{url} is not in a Git repository: the service follows commits")
        configured = configured or (RepositorySettings(url),)
        changes |= {"url": named.where.url, "path": named.path}
    if args.interval:
        every = Duration(args.interval)
        configured = tuple(
            replace(
                repository,
                interval=every,
                jitter=Ratio("10%"),
                retry_interval=min(repository.retry_interval, every),
            )
            for repository in configured
        )
    return tuple(replace(repository, **changes) for repository in configured)
