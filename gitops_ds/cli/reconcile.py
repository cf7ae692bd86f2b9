"""`gitops-ds reconcile`: asks the service for a pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gitops_ds.cli import arguments, options, service_options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.commands.service_requests import StateObject, Where
    from gitops_ds.model.cluster import Cluster
    from gitops_ds.model.objects import Body


@dataclass(frozen=True, kw_only=True)
class ReconcileArgs(service_options.ServiceArgs):
    """The arguments and options of `gitops-ds reconcile`."""

    wait: bool
    timeout: float


@click.command()
@options.option("--wait", is_flag=True, help="Return when the pass is over, and say how it ended.")
@options.option(
    "--timeout",
    type=options.Duration(),
    default="2m",
    show_default=True,
    help="How long to wait for the answer: 90s, 5m.",
)
@service_options.service
@arguments.typed(ReconcileArgs)
def reconcile(args: ReconcileArgs) -> int:
    """Ask the service to look at Git now. Exits 1 when, with --wait, the pass failed or there was
    no answer in time.
    """
    return options.run(_reconcile(args))


async def _reconcile(args: ReconcileArgs) -> int:
    from gitops_ds.model import names

    async def work(cluster: Cluster, where: Where, found: StateObject) -> tuple[Body, str]:
        from gitops_ds.commands import service_requests as service

        body, value = await service.request(cluster, where, found.id)
        if not args.wait:
            return body, f"asked for a pass of {found.id}"
        body = await service.answered(cluster, where, found.id, value, args.timeout)
        return body, body["metadata"]["annotations"].get(names.OUTCOME, "")

    body = await service_options.ask(args, work)
    outcome = str(body["metadata"]["annotations"].get(names.OUTCOME, ""))
    return 1 if args.wait and not outcome.startswith("success") else 0
