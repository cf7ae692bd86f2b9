"""The options and the output of the commands that send requests to a service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli.parameters import formats, options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.cli.requests.service_requests import StateObject
    from gitops_ds.core.cluster import Cluster
    from gitops_ds.core.objects import Body


service = options.together(
    options.directory_of("The repository of the service"),
    options.option(
        "--id",
        "id",
        default="",
        help="The ID of the service's state, if a repository has several.",
    ),
    options.connection,
    formats.output("text", "json"),
)


@dataclass(frozen=True, kw_only=True)
class ServiceArgs(options.ConnectionArgs, options.CommonArgs):
    """The service of a request, and the output."""

    directory: str | None
    id: str
    output: formats.Output


@asynccontextmanager
async def selected(args: ServiceArgs) -> AsyncIterator[tuple[Cluster, StateObject]]:
    """The cluster, for writes, and the selected state."""
    from gitops_ds.cli.requests import service_requests

    async with args.open_for_writes() as cluster:
        place = args.state_namespace, args.id, args.directory
        yield cluster, await service_requests.find(cluster, *place)


def show(args: ServiceArgs, target: StateObject, body: Body, words: str) -> None:
    """Prints the words, or with `-o json` the requests in the ConfigMap of the state."""
    from gitops_ds.checks.report import printable
    from gitops_ds.cli.requests import service_requests

    if args.output == "json":
        formats.show_json(service_requests.as_json(target, body))
    else:
        click.echo(printable.block(words))


def _reason(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    from gitops_ds.core import stated_reasons

    if flaw := stated_reasons.flaw(value):
        raise click.BadParameter(flaw)
    return value.strip()


reason = options.option(
    "--reason",
    default="",
    callback=_reason,
    metavar="TEXT",
    help="Why, in one line of at most 200 characters: status, get, the page and notifications "
    "show it until the end.",
)
