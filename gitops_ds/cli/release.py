"""`gitops-ds release`: releases a commit that does not go on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli import requests
from gitops_ds.cli.parameters import options
from gitops_ds.core.objects import short

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.cli.requests.service_requests import StateObject, Where
    from gitops_ds.core.cluster import Cluster
    from gitops_ds.core.objects import Body


@dataclass(frozen=True, kw_only=True)
class ReleaseArgs(requests.ServiceArgs):
    """The arguments and options of `gitops-ds release`."""

    commit: str


@click.command()
@click.argument("commit")
@requests.service
@options.typed(ReleaseArgs)
async def release(args: ReleaseArgs) -> int:
    """Release a commit that is on hold, whose rollout was halted, or that waits for other clusters.

    Exits 1 for any other commit.
    """
    from gitops_ds.deploy.pipeline import open_repository

    commit = await open_repository.commit_named(args.commit, args.directory)

    async def work(cluster: Cluster, where: Where, target: StateObject) -> tuple[Body, str]:
        from gitops_ds.cli.requests import held_rollouts, service_requests
        from gitops_ds.core import errors

        agents = await held_rollouts.release(cluster, target.id, commit)
        waits = await service_requests.is_waiting(cluster, where, target.id, commit, time.time())
        try:
            body = await service_requests.release(cluster, where, target.id, commit)
        except errors.Refused:
            if not agents and not waits:
                raise
            body = await service_requests.annotate(cluster, where, target.id, lambda _: {})
        if waits:
            body = await service_requests.release_waiting(cluster, where, target.id, commit)
        rollouts = f", rollout of {', '.join(map(str, agents))}" if agents else ""
        return body, f"{target.id}: commit {short(commit)} released{rollouts}"

    await requests.ask(args, work)
    return 0
