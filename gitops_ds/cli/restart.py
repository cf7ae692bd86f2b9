"""`gitops-ds restart`: the pods of a DaemonSet anew, by a commit. There is no restart that Git does not know of."""

from __future__ import annotations

from typing import Any

import click

from gitops_ds.cli import options, proposals


@click.command()
@click.argument("name")
@proposals.proposal
@options.written_to
@options.output("text", "json")
@options.common
def restart(**given: Any) -> int:
    """Write the commit that restarts ds/NAME as `kubectl rollout restart` would; without --push only show it."""
    return options.run(_restart(given))


async def _restart(given: dict[str, Any]) -> int:
    from gitops_ds.app import repositories, restarting

    proposal = proposals.asked(given)
    named = repositories.named(given["directory"], given["path"], given["allowed"])
    wanted = restarting.Asked(given["name"], given["namespace"], given["cluster"], given["reason"], proposal)
    done, key = await restarting.restart(named, wanted)
    proposals.show(given, "Restart", done, named.display, object={"namespace": key.namespace, "name": key.name})
    return 0
