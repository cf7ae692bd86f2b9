"""`gitops-ds hold` and `release`: a commit that is not to be applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli import asking, options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.app.asking import Found, Where
    from gitops_ds.model.cluster import Cluster
    from gitops_ds.model.objects import Body


@click.command()
@click.argument("commit")
@asking.service
def hold(**given: Any) -> int:
    """Keep a commit from being applied; the last good one stays."""
    return options.run(_hold(given))


@click.command()
@click.argument("commit")
@asking.service
def release(**given: Any) -> int:
    """Let a commit that is held be applied. Exits 1 when it is not held."""
    return options.run(_release(given))


async def _hold(given: dict[str, Any]) -> int:
    from gitops_ds.app import repositories

    commit = await repositories.commit_named(given["commit"], given["directory"])

    async def work(cluster: Cluster, where: Where, found: Found) -> tuple[Body, str]:
        from gitops_ds.app import asking as service

        body = await service.hold(cluster, where, found.id, commit)
        return body, f"{found.id}: commit {commit[:12]} is held"

    await asking.ask(given, work)
    return 0


async def _release(given: dict[str, Any]) -> int:
    from gitops_ds.app import repositories

    commit = await repositories.commit_named(given["commit"], given["directory"])

    async def work(cluster: Cluster, where: Where, found: Found) -> tuple[Body, str]:
        from gitops_ds.app import asking as service

        body = await service.release(cluster, where, found.id, commit)
        return body, f"{found.id}: commit {commit[:12]} is released"

    await asking.ask(given, work)
    return 0
