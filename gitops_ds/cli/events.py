"""`gitops-ds events`: events of the service and the controller, newest last."""

from __future__ import annotations

import time
from dataclasses import dataclass

import click

from gitops_ds.cli import arguments, options, table


@dataclass(frozen=True, kw_only=True)
class EventsArgs(arguments.ConnectionArgs, arguments.CommonArgs):
    """The arguments and options of `gitops-ds events`."""

    name: str
    warnings: bool
    namespace: str
    output: str


@click.command()
@click.argument("name", required=False, default="")
@options.option("--warnings", is_flag=True, help="Only warnings.")
@options.in_namespace
@options.connection
@options.output("text", "json", "yaml")
@options.common
@arguments.typed(EventsArgs)
def events(args: EventsArgs) -> int:
    """List the Kubernetes Events of the service and the DaemonSet controller; with ds/NAME, of this
    DaemonSet only.
    """
    return options.run(_events(args))


async def _events(args: EventsArgs) -> int:
    from gitops_ds.apimachinery import timestamps
    from gitops_ds.commands import events as commands_events
    from gitops_ds.fleet import agents
    from gitops_ds.model import names

    connection = args.connection()
    async with args.open_cluster() as cluster:
        found = await commands_events.read(cluster, connection.state_namespace)
    found = [
        one
        for one in found
        if (not args.name or one.key.name == agents.name_of(args.name))
        and args.namespace in ("", one.key.namespace)
        and (one.warning or not args.warnings)
    ]
    if args.output != "text":
        document = {
            "apiVersion": names.API_VERSION,
            "kind": "EventList",
            "items": [commands_events.as_json(one) for one in found],
        }
        options.show_json(document) if args.output == "json" else options.show_yaml(document)
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
