"""`gitops-ds events`: what happened, newest last."""

from __future__ import annotations

import time
from typing import Any

import click

from gitops_ds.cli import options, table


@click.command()
@click.argument("name", required=False, default="")
@options.option("--warnings", is_flag=True, help="Only what somebody should look at.")
@options.in_namespace
@options.connection
@options.output("text", "json", "yaml")
@options.common
def events(**given: Any) -> int:
    """What the service and the DaemonSet controller did, from the cluster's own events; with
    ds/NAME of that one alone.
    """
    return options.run(_events(given))


async def _events(given: dict[str, Any]) -> int:
    from gitops_ds.apimachinery import timestamps
    from gitops_ds.client import connect
    from gitops_ds.commands import events as commands_events
    from gitops_ds.fleet import agents
    from gitops_ds.model import names

    connection = connect.Connection(given["kubeconfig"], given["context"], given["state_namespace"])
    async with connect.opened(connection) as cluster:
        found = await commands_events.read(cluster, connection.state_namespace)
    found = [
        one
        for one in found
        if (not given["name"] or one.key.name == agents.named(given["name"]))
        and given["namespace"] in ("", one.key.namespace)
        and (one.warning or not given["warnings"])
    ]
    if given["output"] != "text":
        document = {
            "apiVersion": names.API_VERSION,
            "kind": "EventList",
            "items": [commands_events.as_json(one) for one in found],
        }
        options.show_json(document) if given["output"] == "json" else options.show_yaml(document)
        return 0
    if not found:
        click.echo("No events found; a cluster keeps them for an hour.")
        return 0
    now = time.time()
    head = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"]
    rows = [
        [
            timestamps.elapsed(now - one.last),
            one.type,
            one.reason,
            str(one.key),
            str(one.count),
            " ".join(one.message.split()),
        ]
        for one in found
    ]
    click.echo(table.columns(head, rows), nl=False)
    return 0
