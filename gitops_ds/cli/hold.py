"""`gitops-ds hold`: puts a commit on hold."""

from __future__ import annotations

import time
from dataclasses import dataclass

import click

from gitops_ds.cli import requests
from gitops_ds.cli.parameters import options
from gitops_ds.core.objects import short


@dataclass(frozen=True, kw_only=True)
class HoldArgs(requests.ServiceArgs):
    """The arguments and options of `gitops-ds hold`."""

    commit: str
    reason: str


@options.command(HoldArgs)
@click.argument("commit")
@requests.reason
@requests.service
async def hold(args: HoldArgs) -> int:
    """Put a commit on hold: it is not applied, and the last good commit stays.

    A rollout of the commit that is in progress takes no further node.
    """
    from gitops_ds.cli.requests import held_rollouts, service_requests
    from gitops_ds.deploy.pipeline import open_repository

    commit = await open_repository.commit_named(args.commit, args.directory)
    async with requests.selected(args) as (cluster, target):
        body = await service_requests.hold(cluster, target, commit, args.reason)
        rollouts = await held_rollouts.hold(cluster, target.id, commit, time.time(), args.reason)
    words = f"{target.id}: commit {short(commit)} is on hold{rollouts.words}"
    requests.show(args, target, body, words)
    return 0
