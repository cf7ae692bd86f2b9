"""`gitops-ds hold`: puts a commit on hold."""

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
class HoldArgs(requests.ServiceArgs):
    """The arguments and options of `gitops-ds hold`."""

    commit: str
    reason: str


@click.command()
@click.argument("commit")
@requests.reason
@requests.service
@options.typed(HoldArgs)
async def hold(args: HoldArgs) -> int:
    """Put a commit on hold: it is not applied, and the last good commit stays.

    A rollout of the commit that is in progress takes no further node.
    """
    from gitops_ds.deploy.pipeline import open_repository

    commit = await open_repository.commit_named(args.commit, args.directory)

    async def work(cluster: Cluster, where: Where, target: StateObject) -> tuple[Body, str]:
        from gitops_ds.cli.requests import held_rollouts, service_requests

        body = await service_requests.hold(cluster, where, target.id, commit, args.reason)
        rollouts = await held_rollouts.hold(cluster, target.id, commit, time.time(), args.reason)
        return body, f"{target.id}: commit {short(commit)} is on hold{rollouts.words}"

    await requests.ask(args, work)
    return 0
