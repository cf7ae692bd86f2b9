"""`gitops-ds restart`: the pods of a DaemonSet anew, by a commit. There is no restart that Git does
not know of.
"""

from __future__ import annotations

from typing import Any

import click

from gitops_ds.cli import commit_options, options


@click.command()
@click.argument("name")
@commit_options.proposal
@options.written_to
@options.output("text", "json")
@options.common
def restart(**given: Any) -> int:
    """Write the commit that restarts ds/NAME as `kubectl rollout restart` would; without --push
    only show it.
    """
    return options.run(_restart(given))


async def _restart(given: dict[str, Any]) -> int:
    from gitops_ds.commands import restart as commands_restart
    from gitops_ds.pipeline import open_repository

    proposal = commit_options.asked(given)
    named = open_repository.named(given["directory"], given["path"], given["allowed"])
    wanted = commands_restart.RestartOptions(
        given["name"], given["namespace"], given["cluster"], given["reason"], proposal
    )
    done, key = await commands_restart.restart(named, wanted)
    commit_options.show(
        given, "Restart", done, named.display, object={"namespace": key.namespace, "name": key.name}
    )
    return 0
