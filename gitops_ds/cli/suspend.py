"""`gitops-ds suspend`: suspends the writes of a service, while drift is still reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli import requests
from gitops_ds.cli.parameters import candidates, options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.cli.requests.service_requests import StateObject, Where
    from gitops_ds.core.cluster import Cluster
    from gitops_ds.core.objects import Body


@dataclass(frozen=True, kw_only=True)
class WritesArgs(requests.ServiceArgs):
    """The repository or agent whose writes are suspended or resumed."""

    agent: str | None
    namespace: str


@dataclass(frozen=True, kw_only=True)
class SuspendArgs(WritesArgs):
    """The arguments and options of `gitops-ds suspend`."""

    reason: str


@click.command()
@click.argument("agent", required=False, shell_complete=candidates.daemonsets)
@options.in_namespace
@requests.reason
@requests.service
@options.typed(SuspendArgs)
async def suspend(args: SuspendArgs) -> int:
    """Suspend all writes for the repository, or for one agent, until it is resumed; pending changes
    are still reported.
    """
    return await change(args, suspended=True, reason=args.reason)


async def change(args: WritesArgs, *, suspended: bool, reason: str = "") -> int:
    """Suspends the writes of the repository or of an agent, or resumes them."""
    if args.agent:
        return await _suspend_agent(args, args.agent, suspended=suspended, reason=reason)

    async def work(cluster: Cluster, where: Where, target: StateObject) -> tuple[Body, str]:
        from gitops_ds.cli.requests import service_requests

        done = await service_requests.suspend(
            cluster, where, target.id, suspended=suspended, reason=reason
        )
        words = done.words(suspended=suspended)
        return done.body, f"{words}: nothing is written" if suspended else words

    await requests.ask(args, work)
    return 0


async def _suspend_agent(args: WritesArgs, agent: str, *, suspended: bool, reason: str) -> int:
    from gitops_ds.cli.requests import service_requests
    from gitops_ds.core.objects import key_of

    async with args.open_for_writes() as cluster:
        done = await service_requests.suspend_agent(
            cluster, agent, args.namespace, suspended=suspended, reason=reason
        )
    if args.output == "json":
        key = key_of(done.body)
        named = {"namespace": key.namespace, "name": key.name}
        stated = {"suspendReason": reason} if reason else {}
        options.show_json(options.document("Steering", **named, suspended=suspended, **stated))
    else:
        words = done.words(suspended=suspended)
        click.echo(f"{words}: nothing is written to it" if suspended else words)
    return 0
