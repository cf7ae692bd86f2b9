"""`gitops-ds suspend` and `resume`: the writes of a repository or an agent. Drift is still reported
while they are suspended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli.parameters import candidates, options, request_options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.commands.service_requests import StateObject, Where
    from gitops_ds.model.cluster import Cluster
    from gitops_ds.model.objects import Body


@dataclass(frozen=True, kw_only=True)
class SuspendArgs(request_options.ServiceArgs):
    """The arguments and options of `gitops-ds suspend`."""

    agent: str | None
    namespace: str


@click.command()
@click.argument("agent", required=False, shell_complete=candidates.daemonsets)
@options.in_namespace
@request_options.service
@options.typed(SuspendArgs)
def suspend(args: SuspendArgs) -> int:
    """Suspend all writes for the repository, or for one agent, until it is resumed; pending changes
    are still reported.
    """
    return options.run(_suspend(args, suspended=True))


@click.command()
@click.argument("agent", required=False, shell_complete=candidates.daemonsets)
@options.in_namespace
@request_options.service
@options.typed(SuspendArgs)
def resume(args: SuspendArgs) -> int:
    """Resume writes for the repository, or for one agent."""
    return options.run(_suspend(args, suspended=False))


async def _suspend(args: SuspendArgs, *, suspended: bool) -> int:
    if args.agent:
        return await _agent(args, args.agent, suspended=suspended)

    async def work(cluster: Cluster, where: Where, target: StateObject) -> tuple[Body, str]:
        from gitops_ds.commands import service_requests as service

        done = await service.suspend(cluster, where, target.id, suspended=suspended)
        words = done.words(suspended=suspended)
        return done.body, f"{words}: nothing is written" if suspended else words

    await request_options.ask(args, work)
    return 0


async def _agent(args: SuspendArgs, agent: str, *, suspended: bool) -> int:
    from gitops_ds.commands import service_requests as service
    from gitops_ds.model import names
    from gitops_ds.model.objects import key_of

    async with args.open_cluster() as cluster:
        done = await service.suspend_agent(cluster, agent, args.namespace, suspended=suspended)
    if args.output == "json":
        key = key_of(done.body)
        fields = {
            "kind": "Steering",
            "namespace": key.namespace,
            "name": key.name,
            "suspended": suspended,
        }
        options.show_json({"apiVersion": names.API_VERSION, **fields})
    else:
        words = done.words(suspended=suspended)
        click.echo(f"{words}: nothing is written to it" if suspended else words)
    return 0
