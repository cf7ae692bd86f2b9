"""`gitops-ds rollback`: the commit that brings a template back. There is no other way back than through Git."""

from __future__ import annotations

import time
from typing import Any

import click

from gitops_ds.cli import options, proposals


@click.command()
@click.argument("name")
@options.option("--to-revision", type=int, help="The revision whose template shall come back; default: the one before.")
@options.option("--to-commit", metavar="SHA", help="The commit whose files shall come back.")
@proposals.proposal
@proposals.pull_request
@options.written_to
@options.connection
@options.output("text", "json")
@options.common
def rollback(**given: Any) -> int:
    """Write the revert commit (or the commit that restores the files) for ds/NAME, and show it unless told otherwise."""
    if given["to_revision"] is not None and given["to_commit"] is not None:
        raise click.UsageError("say one place to go back to: --to-revision N or --to-commit SHA")
    return options.run(_rollback(given))


async def _rollback(given: dict[str, Any]) -> int:
    from gitops_ds.app import clusters, repositories, reverting
    from gitops_ds.controller import fleet

    connection = clusters.Connection(given["kubeconfig"], given["context"], given["state_namespace"])
    async with clusters.opened(connection) as cluster:
        agents = await fleet.look(cluster, connection.state_namespace, time.time())
    agent = fleet.find(agents, given["name"], given["namespace"])
    fleet.check_in_git(agent)
    named = repositories.named(given["directory"], given["path"], given["allowed"])
    asked = reverting.Asked(given["to_revision"], given["to_commit"], given["reason"], given["cluster"], proposals.asked(given))
    done = await reverting.roll_back(named, agent, asked)
    way = done.way
    proposals.show(given, "Rollback", done.proposed, named.display, reverts=way.reverts, restores=way.restores)
    return 0
