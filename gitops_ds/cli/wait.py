"""`gitops-ds wait`: until a DaemonSet is rolled out."""

from __future__ import annotations

from typing import Any

import click

from gitops_ds.cli import options


@click.command()
@click.argument("name")
@options.option(
    "--commit", metavar="REVISION", default="", help="The commit that it shall run, or a later one."
)
@options.option(
    "--timeout",
    type=options.Duration(),
    default="10m",
    show_default=True,
    help="How long at most: 90s, 10m.",
)
@options.option(
    "-C",
    "--repository",
    "directory",
    help="Where commits are looked up; default: the Git work tree around you.",
)
@options.in_namespace
@options.connection
@options.output("text", "json")
@options.common
def wait(**given: Any) -> int:
    """0 when every eligible node runs ds/NAME and it is available there; 1 when it failed, or time
    is up.
    """
    return options.run(_wait(given))


async def _wait(given: dict[str, Any]) -> int:
    from gitops_ds.client import connect
    from gitops_ds.commands import wait as commands_wait
    from gitops_ds.fleet import agents
    from gitops_ds.pipeline import open_repository

    seconds = given["timeout"]
    commit = (
        await open_repository.commit_named(given["commit"], given["directory"])
        if given["commit"]
        else ""
    )
    connection = connect.Connection(given["kubeconfig"], given["context"], given["state_namespace"])
    includes = (
        open_repository.includes(open_repository.named(given["directory"]), commit)
        if commit
        else None
    )
    awaited = commands_wait.Awaited(given["name"], given["namespace"], commit, seconds, includes)

    def say(news: str) -> None:
        options.say(news, quiet=given["quiet"])

    async with connect.opened(connection) as cluster:
        agent = await commands_wait.attend(cluster, connection.state_namespace, awaited, say)
    if given["output"] == "json":
        options.show_json(
            {"apiVersion": "gitops-ds.io/v1", "kind": "DaemonSetStatus", **agents.as_json(agent)}
        )
    else:
        click.echo(f"{agent.key} is rolled out: {agent.health.message}")
    return 0
