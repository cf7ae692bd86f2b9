"""`gitops-ds hold` and `release`: commits on hold."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli.parameters import options, request_options
from gitops_ds.model.objects import short

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.commands.service_requests import StateObject, Where
    from gitops_ds.model.cluster import Cluster
    from gitops_ds.model.objects import Body


@dataclass(frozen=True, kw_only=True)
class HoldArgs(request_options.ServiceArgs):
    """The arguments and options of `gitops-ds hold`."""

    commit: str


@click.command()
@click.argument("commit")
@request_options.service
@options.typed(HoldArgs)
def hold(args: HoldArgs) -> int:
    """Put a commit on hold: it is not applied, and the last good commit stays.

    A rollout of the commit that is in progress takes no further node.
    """
    return options.run(_hold(args))


@click.command()
@click.argument("commit")
@request_options.service
@options.typed(HoldArgs)
def release(args: HoldArgs) -> int:
    """Release a commit that is on hold, whose rollout was halted, or that waits for other clusters.

    Exits 1 for any other commit.
    """
    return options.run(_release(args))


async def _hold(args: HoldArgs) -> int:
    from gitops_ds.pipeline import open_repository

    commit = await open_repository.commit_named(args.commit, args.directory)

    async def work(cluster: Cluster, where: Where, target: StateObject) -> tuple[Body, str]:
        from gitops_ds.commands import service_requests
        from gitops_ds.commands import service_requests as service

        body = await service.hold(cluster, where, target.id, commit)
        agents = await service_requests.hold_rollouts(cluster, target.id, commit, time.time())
        rollouts = f", and its rollout of {', '.join(map(str, agents))}" if agents else ""
        return body, f"{target.id}: commit {short(commit)} is on hold{rollouts}"

    await request_options.ask(args, work)
    return 0


async def _release(args: HoldArgs) -> int:
    from gitops_ds.pipeline import open_repository

    commit = await open_repository.commit_named(args.commit, args.directory)

    async def work(cluster: Cluster, where: Where, target: StateObject) -> tuple[Body, str]:
        from gitops_ds import errors
        from gitops_ds.commands import service_requests
        from gitops_ds.commands import service_requests as service

        agents = await service_requests.release_rollouts(cluster, target.id, commit)
        waits = await service.is_waiting(cluster, where, target.id, commit, time.time())
        try:
            body = await service.release(cluster, where, target.id, commit)
        except errors.Refused:
            if not agents and not waits:
                raise
            body = await service.annotate(cluster, where, target.id, lambda _: {})
        if waits:
            body = await service.release_waiting(cluster, where, target.id, commit)
        rollouts = f", rollout of {', '.join(map(str, agents))}" if agents else ""
        return body, f"{target.id}: commit {short(commit)} released{rollouts}"

    await request_options.ask(args, work)
    return 0
