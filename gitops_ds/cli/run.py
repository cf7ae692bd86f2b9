"""`gitops-ds run`: the service."""

from __future__ import annotations

import os
from typing import Any

import click

from gitops_ds.cli import options


@click.command()
@options.option("--settings", help="The settings file; options win over it.")
@options.option(
    "-C",
    "--repository",
    "url",
    help="The repository to follow; without one the controller runs alone.",
)
@options.option("--branch", help="The branch to follow.")
@options.option("--path", help="The directory inside the repository.")
@options.allow
@options.option(
    "--interval",
    type=options.Duration(least=0.1),
    help="How often the repository is looked at: 60s, 5m.",
)
@options.option(
    "--powers",
    type=click.Choice(["observe", "pace", "full"]),
    help="What the controller may do; default: pace.",
)
@options.option(
    "--listen", metavar="HOST:PORT", help="Where /healthz, /readyz and /metrics answer."
)
@options.option(
    "--listen-probes",
    metavar="HOST:PORT",
    help="Where /healthz and /readyz answer on a port of their own.",
)
@options.option(
    "--journal", metavar="DIRECTORY", help="Where every decision is written, for replay."
)
@options.option(
    "--log-format", type=click.Choice(["text", "json"]), help="How the log on stderr looks."
)
@options.option(
    "--own-node",
    metavar="NODE",
    help="Where this runs; under powers full the agents there are replaced last.",
)
@options.option("--cluster", "cluster", help="A file of clusters/, without .yaml.")
@options.connection
@options.common
def run(**given: Any) -> int:
    """The scheduled loop and the controller core, until SIGTERM."""
    from gitops_ds.service import event_loop

    options.run(_run(given), event_loop.factory())
    return 0


async def _run(given: dict[str, Any]) -> None:
    import orjson

    from gitops_ds.model.events.base import Record
    from gitops_ds.service import main
    from gitops_ds.telemetry import log_lines

    settings = _settings(given)

    as_json, quiet = settings.log_format == "json", given["quiet"]

    def emit(told: Record) -> None:
        if (quiet and not as_json) or not log_lines.matters(told, settings.log_level):
            return
        if as_json:
            if found := log_lines.as_json(told):
                click.echo(orjson.dumps(found), err=True)
        elif line := log_lines.dated(told):
            options.say(line)

    await main.run(settings, emit, options.say, at_desk=given["settings"] is None)


def _settings(given: dict[str, Any]) -> Any:
    """The file's settings with the options over them."""
    from dataclasses import replace

    from gitops_ds.controller.controller import Powers
    from gitops_ds.settings import service as file

    found = file.read(given["settings"]) if given["settings"] else file.Service()
    cluster = found.cluster
    if given["cluster"]:
        cluster = replace(cluster, name=given["cluster"])
    for option in ("kubeconfig", "context"):
        if given[option]:
            cluster = replace(cluster, **{option: given[option]})
    if given["state_namespace"] != "gitops-ds" or not given["settings"]:
        cluster = replace(cluster, namespace=given["state_namespace"])
    return replace(
        found,
        repositories=_repositories(given, found.repositories),
        cluster=cluster,
        powers=Powers(given["powers"]) if given["powers"] else found.powers,
        own_node=given["own_node"] or "",
        own_namespace=os.environ.get("POD_NAMESPACE", ""),
        listen=given["listen"] or found.listen,
        listen_probes=given["listen_probes"] or found.listen_probes,
        journal=replace(found.journal, path=given["journal"])
        if given["journal"]
        else found.journal,
        log_format=given["log_format"] or found.log_format,
        allowed=found.allowed if given["allowed"] is None else given["allowed"],
    )


def _repositories(given: dict[str, Any], told: tuple[Any, ...]) -> tuple[Any, ...]:
    """Those of the settings, or the one that `-C` names, with the options over it."""
    from dataclasses import replace

    from gitops_ds.settings.repository import RepositorySettings

    changes = {option: given[option] for option in ("branch", "path") if given[option] is not None}
    if len(told) > 1 and (given["url"] or changes):
        raise click.UsageError(
            "the settings name several repositories: -C, --branch and --path are for one"
        )
    if url := given["url"]:
        from gitops_ds.pipeline import open_repository

        named = open_repository.named(url, given["path"] or "")
        if named.where is None:
            raise click.UsageError(f"{url} is not in Git: the service follows commits")
        told = told or (RepositorySettings(),)
        changes |= {"url": named.where.url, "path": named.path}
    if given["interval"]:
        every = given["interval"]
        told = tuple(
            replace(
                one,
                interval=every,
                jitter=every / 10,
                retry_interval=min(one.retry_interval, every),
            )
            for one in told
        )
    return tuple(replace(one, **changes) for one in told)
