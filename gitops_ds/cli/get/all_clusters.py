"""All clusters of a repository with their reports, only from Git, without access to clusters."""

from __future__ import annotations

from gitops_ds.core import errors
from gitops_ds.core.sources.signatures import Mode, Trust
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.deploy.pipeline.open_repository import RepositoryRef
from gitops_ds.service.git import git_auth
from gitops_ds.service.rollouts import published_reports
from gitops_ds.service.settings import service
from gitops_ds.source.git import address
from gitops_ds.source.render import bundle
from gitops_ds.status import cluster_reports
from gitops_ds.status.cluster_reports import ClusterRow

NO_TRUST = Trust(Mode.NONE)


def trust_in(file: str, repository: RepositoryRef) -> Trust:
    """The trusted keys of a repository in the settings of a service: of the only repository, else
    of the one at its address and path. Raises SettingsError.
    """
    repositories = service.read(file).repositories
    place = repository.identity, repository.path
    matches = [
        repository
        for repository in repositories
        if (address.parse(repository.url, allow_local=True).display, repository.path) == place
    ]
    if len(repositories) != 1 and not matches:
        raise errors.SettingsError(f"{file} has no repository {repository.display_path}")
    return git_auth.trust_of((matches or repositories)[0])


async def read(repository: RepositoryRef, trust: Trust = NO_TRUST) -> tuple[ClusterRow, ...]:
    """The clusters of the default branch, by wave and name.

    Without keys every row is unverified if a report is signed, because a service with keys would
    accept only signed reports. Raises UsageError and SourceError.
    """
    async with open_repository.opened(_on_server(repository)) as repo:
        tree = await open_repository.unexpanded(repo, None, repository.path)
        names = bundle.clusters(tree)
        read = await published_reports.read(repo, repository.path, names, trust)
        verified = trust.mode is not Mode.NONE
        signed = not verified and any([await repo.is_signed(report.ref.commit) for report in read])
    rows = cluster_reports.rows(names, bundle.cluster_orders(tree), published_reports.of(read))
    return tuple(
        replace(
            row,
            verified=verified and row.report is not None,
            unverified=signed and row.report is not None,
        )
        for row in rows
    )


def _on_server(repository: RepositoryRef) -> RepositoryRef:
    """The remote `origin` of a work tree: a clone contains no reports."""
    if repository.directory is None or repository.identity == repository.display:
        return repository
    remote = open_repository.named(repository.identity, repository.path, repository.allowed)
    return replace(remote, directory=None)
