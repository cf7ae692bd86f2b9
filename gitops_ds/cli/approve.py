"""`gitops-ds approve`: approves one plan that deletes more than the guards allow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli import arguments, options, service_options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.commands.service_requests import StateObject, Where
    from gitops_ds.model.cluster import Cluster
    from gitops_ds.model.objects import Body


def _hash(_: click.Context, __: click.Parameter, value: str) -> str:
    if not re.fullmatch("[0-9a-f]{8,64}(-[0-9]{1,9})?", value):
        raise click.BadParameter(
            f"{value!r} is not the hash of a plan: `gitops-ds plan` and the log print it"
        )
    return value


@dataclass(frozen=True, kw_only=True)
class ApproveArgs(service_options.ServiceArgs):
    """The arguments and options of `gitops-ds approve`."""

    hash: str


@click.command()
@click.argument("hash", callback=_hash)
@service_options.service
@arguments.typed(ApproveArgs)
def approve(args: ApproveArgs) -> int:
    """Approve the plan with this hash, and no other."""
    return options.run(_approve(args))


async def _approve(args: ApproveArgs) -> int:
    from gitops_ds.model import names

    async def work(cluster: Cluster, where: Where, found: StateObject) -> tuple[Body, str]:
        from gitops_ds.commands import service_requests as service

        body = await service.annotate(
            cluster, where, found.id, lambda _: {names.APPROVE: args.hash}
        )
        return body, f"{found.id}: plan {args.hash} approved"

    await service_options.ask(args, work)
    return 0
