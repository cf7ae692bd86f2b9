"""`gitops-ds rollback`: the commit that brings a template back. There is no other way back than through Git."""

from __future__ import annotations

import time
from typing import Any

import click

from gitops_ds.cli import options


@click.command()
@click.argument("name")
@options.option("--to-revision", type=int, help="The revision whose template shall come back.")
@options.option("--to-commit", metavar="SHA", help="The commit whose files shall come back.")
@options.option("--push", is_flag=True, help="Push the commit to the branch.")
@options.option("--print", "only_print", is_flag=True, help="Only show the commit (the default).")
@options.option("--branch", help="The branch to push to; default: the one that is checked out, or the server's default.")
@options.option("--reason", default="", help="Why, for the message.")
@options.option("--author", metavar="'NAME <MAIL>'", help="Who writes the commit; default: Git's user.name and user.email.")
@options.option("-C", "--repository", "directory", help="A directory or URL; default: the Git work tree around you.")
@options.option("--path", default="", help="The directory inside the repository.")
@options.allow
@options.cluster_name
@options.namespace
@options.connection
@options.output("text", "json")
@options.common
def rollback(**given: Any) -> int:
    """Write the revert commit (or the commit that restores the files) for ds/NAME; without --push only show it."""
    if (given["to_revision"] is None) == (given["to_commit"] is None):
        raise click.UsageError("say where to go back to: either --to-revision N or --to-commit SHA")
    if given["push"] and given["only_print"]:
        raise click.UsageError("--push and --print exclude each other")
    return options.run(_rollback(given))


async def _rollback(given: dict[str, Any]) -> int:
    from gitops_ds.app import clusters, repositories, reverting
    from gitops_ds.controller import fleet

    connection = clusters.Connection(given["kubeconfig"], given["context"], given["state_namespace"])
    async with clusters.opened(connection) as cluster:
        agents = await fleet.look(cluster, connection.state_namespace, time.time())
    agent = fleet.find(agents, given["name"], given["namespace"])
    named = repositories.named(given["directory"], given["path"], given["allowed"])
    asked = reverting.Asked(
        given["to_revision"], given["to_commit"], given["branch"], given["reason"], given["author"], given["cluster"], given["push"]
    )
    done = await reverting.roll_back(named, agent, asked)
    if given["output"] == "json":
        told = {"commit": done.way.commit, "reverts": done.way.reverts, "restores": done.way.restores, "pushed": given["push"]}
        options.show_json({"apiVersion": "gitops-ds.io/v1", "kind": "Rollback", **told, "branch": done.branch})
    elif given["push"]:
        click.echo(f"pushed {done.way.commit[:12]} to {done.branch} of {named.display}")
    else:
        click.echo(done.patch, nl=False)
        options.say(f"not pushed; --push sends it to {done.branch}", quiet=given["quiet"])
    return 0
