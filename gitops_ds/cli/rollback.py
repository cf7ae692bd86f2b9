"""`gitops-ds rollback`: the commit that brings a template back. There is no other way back than
through Git.
"""

from __future__ import annotations

import time
from typing import Any

import click

from gitops_ds.cli import commit_options, options


@click.command()
@click.argument("name")
@options.option(
    "--to-revision",
    type=int,
    help="The revision whose template shall come back; default: the one before.",
)
@options.option("--to-commit", metavar="SHA", help="The commit whose files shall come back.")
@commit_options.proposal
@commit_options.pull_request
@options.written_to
@options.connection
@options.output("text", "json")
@options.common
def rollback(**given: Any) -> int:
    """Write the revert commit (or the commit that restores the files) for ds/NAME, and show it
    unless told otherwise.
    """
    if given["to_revision"] is not None and given["to_commit"] is not None:
        raise click.UsageError("say one place to go back to: --to-revision N or --to-commit SHA")
    return options.run(_rollback(given))


async def _rollback(given: dict[str, Any]) -> int:
    from gitops_ds.client import connect
    from gitops_ds.commands import rollback as commands_rollback
    from gitops_ds.fleet import agents as fleet_agents
    from gitops_ds.pipeline import open_repository

    connection = connect.Connection(given["kubeconfig"], given["context"], given["state_namespace"])
    async with connect.opened(connection) as cluster:
        agents = await fleet_agents.look(cluster, connection.state_namespace, time.time())
    agent = fleet_agents.find(agents, given["name"], given["namespace"])
    fleet_agents.check_in_git(agent)
    named = open_repository.named(given["directory"], given["path"], given["allowed"])
    asked = commands_rollback.RollbackOptions(
        given["to_revision"],
        given["to_commit"],
        given["reason"],
        given["cluster"],
        commit_options.asked(given),
    )
    done = await commands_rollback.roll_back(named, agent, asked)
    way = done.way
    commit_options.show(
        given, "Rollback", done.proposed, named.display, reverts=way.reverts, restores=way.restores
    )
    return 0
