"""`gitops-ds hold` and `release`: a commit that is not to be applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli import options, service_options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.commands.service_requests import StateObject, Where
    from gitops_ds.model.cluster import Cluster
    from gitops_ds.model.objects import Body


@click.command()
@click.argument("commit")
@service_options.service
def hold(**given: Any) -> int:
    """Keep a commit from being applied; the last good one stays."""
    return options.run(_hold(given))


@click.command()
@click.argument("commit")
@service_options.service
def release(**given: Any) -> int:
    """Let a commit that is held be applied. Exits 1 when it is not held."""
    return options.run(_release(given))


async def _hold(given: dict[str, Any]) -> int:
    from gitops_ds.pipeline import open_repository

    commit = await open_repository.commit_named(given["commit"], given["directory"])

    async def work(cluster: Cluster, where: Where, found: StateObject) -> tuple[Body, str]:
        from gitops_ds.commands import service_requests as service

        body = await service.hold(cluster, where, found.id, commit)
        return body, f"{found.id}: commit {commit[:12]} is held"

    await service_options.ask(given, work)
    return 0


async def _release(given: dict[str, Any]) -> int:
    from gitops_ds.pipeline import open_repository

    commit = await open_repository.commit_named(given["commit"], given["directory"])

    async def work(cluster: Cluster, where: Where, found: StateObject) -> tuple[Body, str]:
        from gitops_ds.commands import service_requests as service

        body = await service.release(cluster, where, found.id, commit)
        return body, f"{found.id}: commit {commit[:12]} is released"

    await service_options.ask(given, work)
    return 0
