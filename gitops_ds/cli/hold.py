"""`gitops-ds hold` and `release`: a commit that is not to be applied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli import arguments, options, service_options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.commands.service_requests import StateObject, Where
    from gitops_ds.model.cluster import Cluster
    from gitops_ds.model.objects import Body


@dataclass(frozen=True, kw_only=True)
class HoldArgs(service_options.ServiceArgs):
    """The arguments and options of `gitops-ds hold`."""

    commit: str


@click.command()
@click.argument("commit")
@service_options.service
@arguments.typed(HoldArgs)
def hold(args: HoldArgs) -> int:
    """Keep a commit from being applied; the last good one stays."""
    return options.run(_hold(args))


@click.command()
@click.argument("commit")
@service_options.service
@arguments.typed(HoldArgs)
def release(args: HoldArgs) -> int:
    """Let a commit that is held be applied. Exits 1 when it is not held."""
    return options.run(_release(args))


async def _hold(args: HoldArgs) -> int:
    from gitops_ds.pipeline import open_repository

    commit = await open_repository.commit_named(args.commit, args.directory)

    async def work(cluster: Cluster, where: Where, found: StateObject) -> tuple[Body, str]:
        from gitops_ds.commands import service_requests as service

        body = await service.hold(cluster, where, found.id, commit)
        return body, f"{found.id}: commit {commit[:12]} is held"

    await service_options.ask(args, work)
    return 0


async def _release(args: HoldArgs) -> int:
    from gitops_ds.pipeline import open_repository

    commit = await open_repository.commit_named(args.commit, args.directory)

    async def work(cluster: Cluster, where: Where, found: StateObject) -> tuple[Body, str]:
        from gitops_ds.commands import service_requests as service

        body = await service.release(cluster, where, found.id, commit)
        return body, f"{found.id}: commit {commit[:12]} is released"

    await service_options.ask(args, work)
    return 0
