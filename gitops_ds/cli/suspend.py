"""`gitops-ds suspend`: suspends the writes of a service, while drift is still reported."""

from __future__ import annotations

from dataclasses import dataclass

import click

from gitops_ds.cli import requests
from gitops_ds.cli.parameters import candidates, formats, options


@dataclass(frozen=True, kw_only=True)
class WritesArgs(requests.ServiceArgs):
    """The repository or agent whose writes are suspended or resumed."""

    agent: str | None
    namespace: str


@dataclass(frozen=True, kw_only=True)
class SuspendArgs(WritesArgs):
    """The arguments and options of `gitops-ds suspend`."""

    reason: str


@options.command(SuspendArgs)
@click.argument("agent", required=False, shell_complete=candidates.daemonsets)
@options.in_namespace
@requests.reason
@requests.service
async def suspend(args: SuspendArgs) -> int:
    """Suspend all writes for the repository, or for one agent, until it is resumed; pending changes
    are still reported.
    """
    return await change(args, suspended=True, reason=args.reason)


async def change(args: WritesArgs, *, suspended: bool, reason: str = "") -> int:
    """Suspends the writes of the repository or of an agent, or resumes them."""
    if args.agent:
        return await _suspend_agent(args, args.agent, suspended=suspended, reason=reason)
    from gitops_ds.cli.requests import service_requests

    async with requests.selected(args) as (cluster, target):
        done = await service_requests.suspend(cluster, target, suspended=suspended, reason=reason)
    words = done.words(suspended=suspended)
    requests.show(args, target, done.body, f"{words}: nothing is written" if suspended else words)
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
        formats.show_json(formats.document("Steering", **named, suspended=suspended, **stated))
    else:
        words = done.words(suspended=suspended)
        click.echo(f"{words}: nothing is written to it" if suspended else words)
    return 0
