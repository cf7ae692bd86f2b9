"""`gitops-ds reconcile`: requests a reconciliation of the service."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gitops_ds.cli import requests
from gitops_ds.cli.parameters import options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.cli.requests.service_requests import StateObject
    from gitops_ds.core.cluster import ClusterReader


@dataclass(frozen=True, kw_only=True)
class ReconcileArgs(requests.ServiceArgs):
    """The arguments and options of `gitops-ds reconcile`."""

    wait: bool
    timeout: float


@options.command(ReconcileArgs)
@options.option("--wait", is_flag=True, help="Wait for the reconciliation and print its outcome.")
@options.time_limit("2m", "The time limit of --wait: 90s, 5m.")
@requests.service
async def reconcile(args: ReconcileArgs) -> int:
    """Request a reconciliation now. With --wait, exits 1 if it failed or did not finish in time."""
    from gitops_ds.cli.requests import service_requests
    from gitops_ds.core import names

    async with requests.selected(args) as (cluster, target):
        body, value = await service_requests.request(cluster, target)
        outcome = f"reconciliation of {target.id} requested"
        if args.wait:
            body = await service_requests.answered(cluster, target, value, args.timeout)
            outcome = str(body["metadata"]["annotations"].get(names.OUTCOME, ""))
        is_failed = args.wait and not outcome.startswith("success")
        if is_failed and (why := await _message_of(cluster, target)):
            options.say(why, quiet=args.quiet)
    requests.show(args, target, body, outcome)
    return 1 if is_failed else 0


async def _message_of(cluster: ClusterReader, target: StateObject) -> str:
    """The message of the repository's status, empty without one."""
    from gitops_ds.core import errors
    from gitops_ds.deploy import source_status_store

    try:
        statuses = await source_status_store.load_all(cluster, target.namespace, time.time())
    except errors.ClusterError:
        return ""
    status = statuses.get(target.id)
    return status.message if status is not None else ""
