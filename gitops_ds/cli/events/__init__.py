"""`gitops-ds events`: events of the service and the controller, newest last."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli.output import table
from gitops_ds.cli.parameters import candidates, formats, list_options, options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.cli.events.event_list import ListedEvent
    from gitops_ds.kube.apimachinery import jsonpath

# the fields of Events in field selectors of Kubernetes, as far as `event_list` has them
FIELDS = (
    "type",
    "reason",
    "source",
    "reportingComponent",
    "metadata.name",
    "metadata.namespace",
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
)
HEAD = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"]


@dataclass(frozen=True, kw_only=True)
class EventsArgs(list_options.ScopeArgs, options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds events`."""

    name: str
    warnings: bool
    field_selector: tuple[list_options.FieldCondition, ...]
    watch: bool
    sort_by: jsonpath.Path | None
    no_headers: bool
    output: formats.Output


@options.command(EventsArgs)
@click.argument("name", required=False, default="", shell_complete=candidates.daemonsets)
@options.option("--warnings", is_flag=True, help="Only warnings.")
@options.option(
    "--field-selector",
    type=list_options.FieldSelectorType(FIELDS),
    default="",
    metavar="FIELDS",
    help="Only events with these fields, such as reason=DriftDetected,type!=Normal.",
)
@options.option("-w", "--watch", is_flag=True, help="Print new events until Ctrl-C.")
@list_options.scope
@list_options.sort_by
@list_options.no_headers
@options.connection
@formats.output("text", "wide", "json", "yaml", "name", jsonpath=True)
async def events(args: EventsArgs) -> int:
    """List the Kubernetes Events of the service and the DaemonSet controller; with ds/NAME, of this
    DaemonSet only.
    """
    if args.watch and args.sort_by:
        raise click.UsageError("--watch and --sort-by exclude each other")
    return await (_watch(args) if args.watch else _events(args))


async def _events(args: EventsArgs) -> int:
    from gitops_ds.cli.events import event_list

    async with args.open_cluster() as cluster:
        read = await event_list.read(cluster, args.state_namespace)
    listed = list_options.in_order(_selected(args, read), args.sort_by, event_list.as_json)
    if args.output.is_table and not listed:
        click.echo("No events found; a cluster keeps them for an hour.")
        return 0
    _show(args, listed, headers=not args.no_headers)
    return 0


async def _watch(args: EventsArgs) -> int:
    from gitops_ds.cli.events import event_list

    headers = not args.no_headers

    def show(listed: list[ListedEvent]) -> None:
        nonlocal headers
        chosen = _selected(args, listed)
        if args.output.is_table and (chosen or headers):
            _show(args, chosen, headers=headers)
            headers = False
        elif not args.output.is_table:
            for event in chosen:
                formats.write(args.output, event_list.as_json(event), [_name(event)])

    async with args.open_cluster() as cluster:
        await event_list.follow(cluster, args.state_namespace, show, options.say)
    return 0


def _selected(args: EventsArgs, listed: Sequence[ListedEvent]) -> list[ListedEvent]:
    from gitops_ds.cli.events import event_list
    from gitops_ds.status import agents

    def meets(event: ListedEvent) -> bool:
        return all(
            (event_list.field_of(event, term.field) == term.value) is term.equal
            for term in args.field_selector
        )

    return [
        event
        for event in listed
        if (not args.name or event.key.name == agents.name_of(args.name))
        and args.chosen_namespace in ("", event.key.namespace)
        and (event.warning or not args.warnings)
        and meets(event)
    ]


def _name(event: ListedEvent) -> str:
    return f"event/{event.name}"


def _show(args: EventsArgs, listed: Sequence[ListedEvent], *, headers: bool) -> None:
    from gitops_ds.cli.events import event_list
    from gitops_ds.kube.apimachinery import timestamps

    if not args.output.is_table:
        items = [event_list.as_json(event) for event in listed]
        document = formats.document("EventList", items=items)
        formats.write(args.output, document, [_name(event) for event in listed])
        return
    now, wide = time.time(), args.output.is_wide
    rows = [
        [
            timestamps.elapsed(now - event.last),
            event.type,
            event.reason,
            str(event.key),
            str(event.count),
            " ".join(event.message.split()),
            *((event.source, event.name) if wide else ()),
        ]
        for event in listed
    ]
    head = [*HEAD, "SOURCE", "NAME"] if wide else HEAD
    click.echo(table.columns(head, rows, headers=headers), nl=False)
