"""`gitops-ds get` and `status`: what runs where, from which commit, and how it does."""

from __future__ import annotations

import time
from typing import Any

import click

from gitops_ds.cli import options, table


@click.command()
@click.argument("resource", required=False, default="ds", type=click.Choice(["ds", "daemonset", "daemonsets"]))
@options.in_namespace
@options.connection
@options.output("text", "wide", "json", "yaml")
@options.common
def get(**given: Any) -> int:
    """The table of kubectl, and COMMIT, STAGE and HEALTH."""
    return options.run(_get(given))


async def _get(given: dict[str, Any]) -> int:
    from gitops_ds.app import clusters
    from gitops_ds.controller import fleet
    from gitops_ds.model import names

    connection = clusters.Connection(given["kubeconfig"], given["context"], given["state_namespace"])
    now = time.time()
    async with clusters.opened(connection) as cluster:
        agents = await fleet.look(cluster, connection.state_namespace, now)
    agents = tuple(agent for agent in agents if given["namespace"] in ("", agent.key.namespace))
    if given["output"] in ("json", "yaml"):
        document = {
            "apiVersion": names.API_VERSION,
            "kind": "DaemonSetStatusList",
            "items": [fleet.as_json(agent) for agent in agents],
        }
        options.show_json(document) if given["output"] == "json" else options.show_yaml(document)
        return 0
    click.echo(table.fleet(agents, now, wide=given["output"] == "wide"), nl=False)
    return 0


@click.command()
@click.argument("name", required=False)
@options.option("--nodes", is_flag=True, help="One line a node.")
@options.option("--watch", is_flag=True, help="Again whenever something changed.")
@options.in_namespace
@options.connection
@options.output("text", "json", "yaml")
@options.common
def status(**given: Any) -> int:
    """One DaemonSet: its counters, its health and, with --nodes, every node."""
    return options.run(_status(given))


async def _status(given: dict[str, Any]) -> int:
    import asyncio

    if not given["name"]:
        raise click.UsageError("NAME is missing: `gitops-ds get` lists the DaemonSets, `gitops-ds sources` the repositories")

    from gitops_ds.app import clusters
    from gitops_ds.controller import fleet

    connection = clusters.Connection(given["kubeconfig"], given["context"], given["state_namespace"])
    shown = ""
    async with clusters.opened(connection) as cluster:
        while True:
            now = time.time()
            agent = fleet.find(await fleet.look(cluster, connection.state_namespace, now), given["name"], given["namespace"])
            if given["output"] != "text":
                document = {**fleet.as_json(agent), "nodes": fleet.nodes(agent)}
                options.show_json(document) if given["output"] == "json" else options.show_yaml(document)
                return 0
            text = table.agent(agent, now, nodes=given["nodes"])
            if text != shown:
                click.echo(text, nl=False)
                shown = text
            if not given["watch"]:
                return 0
            await asyncio.sleep(2)
