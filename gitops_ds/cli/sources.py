"""`gitops-ds sources`: the followed repositories, and the state of their newest commit."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli.output import table
from gitops_ds.cli.parameters import options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.core.sources.source_status import SourceStatus

HEAD = ["NAME", "REPOSITORY", "BRANCH", "NEWEST", "APPLIED", "CONDITION", "LOOKED"]
WIDE = ["HELD", "SUSPENDED", "SERVICE", "MESSAGE"]


@dataclass(frozen=True, kw_only=True)
class SourcesArgs(options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds sources`."""

    output: str


@click.command()
@options.connection
@options.output("text", "wide", "json", "yaml", "name")
@options.common
@options.typed(SourcesArgs)
async def sources(args: SourcesArgs) -> int:
    """List the followed repositories: newest commit, applied commit, condition, last fetch."""
    from gitops_ds.cli.commands import sources as commands_sources

    now = time.time()
    async with args.open_cluster() as cluster:
        statuses = await commands_sources.look(cluster, args.state_namespace, now)
    if args.output in ("json", "yaml"):
        items = [commands_sources.as_json(status) for status in statuses]
        document = options.document("SourceStatusList", items=items)
        options.show_json(document) if args.output == "json" else options.show_yaml(document)
    elif args.output == "name":
        click.echo("".join(f"source/{status.id}\n" for status in statuses), nl=False)
    elif not statuses:
        click.echo(f"No sources found in namespace {args.state_namespace}.")
    else:
        click.echo(table_of(statuses, now, wide=args.output == "wide"), nl=False)
    return 0


def table_of(statuses: tuple[SourceStatus, ...], now: float, *, wide: bool) -> str:
    """The table, and a line for each repository that is not Synced; `now` is in seconds since
    1970.
    """
    from gitops_ds.core import plain_text
    from gitops_ds.core.objects import short
    from gitops_ds.kube.apimachinery import timestamps

    def row(one: SourceStatus) -> list[str]:
        # A status that does not change is saved at a heartbeat only: Git may have answered since.
        bound = "" if one.is_last_look else "at most "
        looked = f"{bound}{timestamps.elapsed(now - one.looked)} ago" if one.looked else ""
        cells = [
            one.id,
            one.repository,
            one.branch,
            short(one.newest),
            short(one.applied),
            one.condition.value,
            looked,
        ]
        service = "running" if one.active else "none"
        return cells + (
            [",".join(one.held), str(one.suspended).lower(), service, one.message] if wide else []
        )

    text = table.columns([*HEAD, *WIDE] if wide else HEAD, map(row, statuses))
    trouble = [
        f"{one.id}: {plain_text.line(one.message, 2000)}\n"
        for one in statuses
        if one.message and not wide and (one.warning or one.condition.value != "Synced")
    ]
    return text + ("\n" + "".join(trouble) if trouble else "")
