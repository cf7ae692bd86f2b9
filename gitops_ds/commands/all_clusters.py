"""All clusters of a repository with their reports, from Git alone: no cluster is read."""

from __future__ import annotations

from dataclasses import replace

from gitops_ds.fleet import cluster_overview
from gitops_ds.fleet.cluster_overview import ClusterRow
from gitops_ds.model.sources.signatures import Mode, Trust
from gitops_ds.pipeline import open_repository
from gitops_ds.pipeline.open_repository import RepositoryRef
from gitops_ds.render import bundle
from gitops_ds.service import report_reader


async def look(repository: RepositoryRef) -> tuple[ClusterRow, ...]:
    """The clusters of the default branch, by wave and name. Raises UsageError and SourceError."""
    async with open_repository.opened(_on_server(repository)) as found:
        tree = await open_repository.unexpanded(found, None, repository.path)
        names = bundle.clusters(tree)
        # The services verify signatures, with the keys of their settings.
        read = await report_reader.read(found, repository.path, names, Trust(Mode.NONE))
    return cluster_overview.rows(names, bundle.cluster_orders(tree), report_reader.of(read))


def _on_server(repository: RepositoryRef) -> RepositoryRef:
    """The remote `origin` of a work tree: a clone contains no reports."""
    if repository.directory is None or repository.identity == repository.display:
        return repository
    remote = open_repository.named(repository.identity, repository.path, repository.allowed)
    return replace(remote, directory=None)
