"""`gitops-ds sources`: the followed repositories, and the state of their newest commit, from the
statuses that services save; without requests to services.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli.output import table
from gitops_ds.cli.parameters import formats, options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.core.cluster import ClusterReader
    from gitops_ds.core.sources.source_status import SourceStatus

HEAD = ["NAME", "REPOSITORY", "BRANCH", "NEWEST", "APPLIED", "CONDITION", "LOOKED"]
NONE = "no running service follows this repository"
WIDE = ["HELD", "SUSPENDED", "SERVICE", "MESSAGE"]


@dataclass(frozen=True, kw_only=True)
class SourcesArgs(options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds sources`."""

    output: formats.Output


@options.command(SourcesArgs)
@options.connection
@formats.output("text", "wide", "json", "yaml", "name")
async def sources(args: SourcesArgs) -> int:
    """List the followed repositories: newest commit, applied commit, condition, last fetch."""
    now = time.time()
    async with args.open_cluster() as cluster:
        statuses = await read(cluster, args.state_namespace, now)
    if not args.output.is_table:
        items = [as_json(status) for status in statuses]
        document = formats.document("SourceStatusList", items=items)
        formats.write(args.output, document, [f"source/{status.id}" for status in statuses])
    elif not statuses:
        click.echo(f"No sources found in namespace {args.state_namespace}.")
    else:
        click.echo(table_of(statuses, now, wide=args.output.is_wide), nl=False)
    return 0


async def read(cluster: ClusterReader, namespace: str, now: float) -> tuple[SourceStatus, ...]:
    """Every repository with a status or a state, sorted by id; Unknown without a running service.
    Raises ClusterError.
    """
    from gitops_ds.core.sources.source_status import SourceStatus
    from gitops_ds.deploy import source_status_store, state_store

    statuses = dict(await source_status_store.load_all(cluster, namespace, now))
    for id, state in (await state_store.load_all(cluster, namespace)).items():
        if id not in statuses:
            statuses[id] = SourceStatus(
                id,
                state.repository,
                newest=state.last_attempted,
                applied=state.last_good,
                active=False,
            )
    return tuple(_current(statuses[id]) for id in sorted(statuses))


def _current(status: SourceStatus) -> SourceStatus:
    from gitops_ds.core.sources.source_status import Condition
    from gitops_ds.core.values import replace

    if status.active:
        message = "; ".join(filter(None, (status.message, status.warning)))
        return replace(status, message=message)
    last = (
        f"; its last condition was {status.condition}: {status.message}" if status.message else ""
    )
    return replace(status, condition=Condition.UNKNOWN, message=NONE + last)


def as_json(status: SourceStatus) -> dict[str, Any]:
    """One item of a SourceStatusList (docs/reference/json.md)."""
    from gitops_ds.kube.apimachinery import timestamps

    return {
        "name": status.id,
        "repository": status.repository,
        "branch": status.branch,
        "newestCommit": status.newest or "",
        "appliedCommit": status.applied or "",
        "condition": status.condition.value,
        "message": status.message,
        "since": timestamps.text(status.since) if status.since else "",
        "looked": timestamps.text(status.looked) if status.looked else "",
        "held": list(status.held),
        "suspended": status.suspended,
        "followed": status.active,
        "otherService": timestamps.text(status.beside) if status.beside else "",
        "otherNamespace": status.elsewhere,
    }


def table_of(statuses: tuple[SourceStatus, ...], now: float, *, wide: bool) -> str:
    """The table, and a line for each repository that is not Synced; `now` is in seconds since
    1970.
    """
    from gitops_ds.core import plain_text
    from gitops_ds.core.objects import short
    from gitops_ds.kube.apimachinery import timestamps

    def row(status: SourceStatus) -> list[str]:
        # A status that does not change is saved at a heartbeat only: Git may have answered since.
        bound = "" if status.is_last_look else "at most "
        looked = f"{bound}{timestamps.elapsed(now - status.looked)} ago" if status.looked else ""
        cells = [
            status.id,
            status.repository,
            status.branch,
            short(status.newest),
            short(status.applied),
            status.condition.value,
            looked,
        ]
        service = "running" if status.active else "none"
        return cells + (
            [",".join(status.held), str(status.suspended).lower(), service, status.message]
            if wide
            else []
        )

    text = table.columns([*HEAD, *WIDE] if wide else HEAD, map(row, statuses))
    trouble = [
        f"{status.id}: {plain_text.line(status.message, 2000)}\n"
        for status in statuses
        if status.message and not wide and (status.warning or status.condition.value != "Synced")
    ]
    return text + ("\n" + "".join(trouble) if trouble else "")
