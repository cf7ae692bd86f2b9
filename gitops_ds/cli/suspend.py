"""`gitops-ds suspend` and `resume`: nothing is written for a repository or an agent, while
comparing goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli import options, service_options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.commands.service_requests import StateObject, Where
    from gitops_ds.model.cluster import Cluster
    from gitops_ds.model.objects import Body


@click.command()
@click.argument("agent", required=False)
@options.in_namespace
@service_options.service
def suspend(**given: Any) -> int:
    """Write nothing for the repository, or for one agent, until it is resumed; what would be
    written is still told.
    """
    return options.run(_suspend(given, suspended=True))


@click.command()
@click.argument("agent", required=False)
@options.in_namespace
@service_options.service
def resume(**given: Any) -> int:
    """Write again for the repository, or for one agent."""
    return options.run(_suspend(given, suspended=False))


async def _suspend(given: dict[str, Any], *, suspended: bool) -> int:
    if given["agent"]:
        return await _agent(given, suspended=suspended)
    from gitops_ds.model import names

    async def work(cluster: Cluster, where: Where, found: StateObject) -> tuple[Body, str]:
        from gitops_ds.commands import service_requests as service

        body = await service.annotate(
            cluster, where, found.id, lambda _: {names.SUSPEND: "true" if suspended else None}
        )
        return (
            body,
            f"{found.id} is suspended: nothing is written"
            if suspended
            else f"{found.id} is resumed",
        )

    await service_options.ask(given, work)
    return 0


async def _agent(given: dict[str, Any], *, suspended: bool) -> int:
    from gitops_ds.client import connect
    from gitops_ds.commands import service_requests as service
    from gitops_ds.model import names

    connection = connect.Connection(given["kubeconfig"], given["context"], given["state_namespace"])
    async with connect.opened(connection) as cluster:
        key = await service.suspend_agent(
            cluster, given["agent"], given["namespace"], suspended=suspended
        )
    if given["output"] == "json":
        told = {
            "kind": "Steering",
            "namespace": key.namespace,
            "name": key.name,
            "suspended": suspended,
        }
        options.show_json({"apiVersion": names.API_VERSION, **told})
    else:
        click.echo(
            f"{key} is {'suspended: nothing is written for its agent' if suspended else 'resumed'}"
        )
    return 0
