"""`gitops-ds reconcile`: requests a reconciliation of the service."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli import requests
from gitops_ds.cli.parameters import options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.cli.requests.service_requests import StateObject, Where
    from gitops_ds.core.cluster import Cluster, ClusterReader
    from gitops_ds.core.objects import Body


@dataclass(frozen=True, kw_only=True)
class ReconcileArgs(requests.ServiceArgs):
    """The arguments and options of `gitops-ds reconcile`."""

    wait: bool
    timeout: float


@click.command()
@options.option("--wait", is_flag=True, help="Wait for the reconciliation and print its outcome.")
@options.option(
    "--timeout",
    type=options.DurationType(),
    default="2m",
    show_default=True,
    help="The time limit of --wait: 90s, 5m.",
)
@requests.service
@options.typed(ReconcileArgs)
async def reconcile(args: ReconcileArgs) -> int:
    """Request a reconciliation now. With --wait, exits 1 if it failed or did not finish in time."""
    from gitops_ds.core import names

    async def work(cluster: Cluster, where: Where, target: StateObject) -> tuple[Body, str]:
        from gitops_ds.cli.requests import service_requests

        body, value = await service_requests.request(cluster, where, target.id)
        if not args.wait:
            return body, f"reconciliation of {target.id} requested"
        body = await service_requests.answered(cluster, where, target.id, value, args.timeout)
        outcome = str(body["metadata"]["annotations"].get(names.OUTCOME, ""))
        if not outcome.startswith("success") and (
            why := await _message_of(cluster, where, target.id)
        ):
            options.say(why, quiet=args.quiet)
        return body, outcome

    body = await requests.ask(args, work)
    outcome = str(body["metadata"]["annotations"].get(names.OUTCOME, ""))
    return 1 if args.wait and not outcome.startswith("success") else 0


async def _message_of(cluster: ClusterReader, where: Where, id: str) -> str:
    """The message of the repository's status, empty without one."""
    from gitops_ds.core import errors
    from gitops_ds.deploy import source_status_store

    try:
        status = (await source_status_store.load_all(cluster, where.namespace, time.time())).get(id)
    except errors.ClusterError:
        return ""
    return status.message if status is not None else ""
