"""The options and the output of the commands that send requests to a service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli.parameters import options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.cli.requests.service_requests import StateObject, Where
    from gitops_ds.core.cluster import Cluster
    from gitops_ds.core.objects import Body

    Work = Callable[[Cluster, Where, StateObject], Awaitable[tuple[Body, str]]]


service = options.together(
    options.directory_of("The repository of the service"),
    options.option(
        "--id",
        "id",
        default="",
        help="The ID of the service's state, if a repository has several.",
    ),
    options.connection,
    options.output("text", "json"),
    options.common,
)


@dataclass(frozen=True, kw_only=True)
class ServiceArgs(options.ConnectionArgs, options.CommonArgs):
    """The service of a request, and the output."""

    directory: str | None
    id: str
    output: str


async def ask(args: ServiceArgs, work: Work) -> Body:
    """Runs the work on the selected state, and prints its message, or with `-o json` the
    requests.
    """
    from gitops_ds.checks.report import printable
    from gitops_ds.cli.requests import service_requests

    where = service_requests.Where(args.state_namespace, args.id, args.directory)
    async with args.open_for_writes() as cluster:
        target = await service_requests.find(cluster, where)
        body, words = await work(cluster, where, target)
    if args.output == "json":
        options.show_json(service_requests.as_json(target, body))
    else:
        click.echo(printable.block(words))
    return body


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
