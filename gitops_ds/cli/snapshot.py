"""`gitops-ds snapshot`: an inventory file of a cluster, for checks that have no access to it."""

from __future__ import annotations

from typing import Any

import click

from gitops_ds.cli import options
from gitops_ds.model.plural import counted


@click.command()
@options.option("--hash-names", is_flag=True, help="Nodes go by names that say nothing.")
@options.access
@options.common
def snapshot(**given: Any) -> int:
    """Print nodes, DaemonSets, their revisions and what these name as JSON, for `check
    --inventory`.
    """
    return options.run(_snapshot(given))


async def _snapshot(given: dict[str, Any]) -> int:
    from gitops_ds.client import connect
    from gitops_ds.commands.check import live_cluster

    async with connect.opened(connect.Connection(given["kubeconfig"], given["context"])) as cluster:
        bodies = await live_cluster.survey(cluster)
    options.show_json(live_cluster.published(bodies, hash_names=given["hash_names"]))
    nodes = sum(body["kind"] == "Node" for body in bodies)
    options.say(
        f"{counted(nodes, 'node')}, {counted(len(bodies) - nodes, 'other object')}",
        quiet=given["quiet"],
    )
    return 0
