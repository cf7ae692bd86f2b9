"""`gitops-ds release`: releases a commit that does not go on."""

from __future__ import annotations

import time
from dataclasses import dataclass

import click

from gitops_ds.cli import requests
from gitops_ds.cli.parameters import options
from gitops_ds.core.objects import short


@dataclass(frozen=True, kw_only=True)
class ReleaseArgs(requests.ServiceArgs):
    """The arguments and options of `gitops-ds release`."""

    commit: str


@options.command(ReleaseArgs)
@click.argument("commit")
@requests.service
async def release(args: ReleaseArgs) -> int:
    """Release a commit that is on hold, whose rollout was halted, or that waits for other clusters.

    Exits 1 for any other commit.
    """
    from gitops_ds.cli.requests import held_rollouts, service_requests
    from gitops_ds.core import errors
    from gitops_ds.deploy.pipeline import open_repository

    commit = await open_repository.commit_named(args.commit, args.directory)
    async with requests.selected(args) as (cluster, target):
        agents = await held_rollouts.release(cluster, target.id, commit)
        waits = await service_requests.is_waiting(cluster, target, commit, time.time())
        try:
            body = await service_requests.release(cluster, target, commit)
        except errors.Refused:
            if not agents and not waits:
                raise
            body = await service_requests.annotate(cluster, target, lambda _: {})
        if waits:
            body = await service_requests.release_waiting(cluster, target, commit)
    rollouts = f", rollout of {', '.join(map(str, agents))}" if agents else ""
    requests.show(args, target, body, f"{target.id}: commit {short(commit)} released{rollouts}")
    return 0
