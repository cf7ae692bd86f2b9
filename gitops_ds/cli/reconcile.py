"""`gitops-ds reconcile`: asks the service for a pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli import options, service_options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.commands.service_requests import StateObject, Where
    from gitops_ds.model.cluster import Cluster
    from gitops_ds.model.objects import Body


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
def reconcile(**given: Any) -> int:
    """Ask the service to look at Git now. Exits 1 when, with --wait, the pass failed or there was
    no answer in time.
    """
    return options.run(_reconcile(given))


async def _reconcile(given: dict[str, Any]) -> int:
    from gitops_ds.model import names

    async def work(cluster: Cluster, where: Where, found: StateObject) -> tuple[Body, str]:
        from gitops_ds.commands import service_requests as service

        body, value = await service.request(cluster, where, found.id)
        if not given["wait"]:
            return body, f"asked for a pass of {found.id}"
        body = await service.answered(cluster, where, found.id, value, given["timeout"])
        return body, body["metadata"]["annotations"].get(names.OUTCOME, "")

    body = await service_options.ask(given, work)
    outcome = str(body["metadata"]["annotations"].get(names.OUTCOME, ""))
    return 1 if given["wait"] and not outcome.startswith("success") else 0
