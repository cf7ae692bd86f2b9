"""The commits of a repository for a command, without a service."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence, Set

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.core.rollouts.halted_rollout import BranchCommit
from gitops_ds.core.rollouts.template_cause import RenderedCommit
from gitops_ds.deploy.cause_finder import CauseFinder, CommitSource
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.render import bundle as rendering


def causes(repository: Repository, path: str, cluster: str, namespace: str) -> CauseFinder:
    """Finds the commits of templates in an open repository; `path` is the followed folder."""

    async def render(commits: Sequence[CommitId]) -> Mapping[CommitId, RenderedCommit]:
        found = {}
        for commit in commits:
            with contextlib.suppress(errors.GitopsError):
                tree = await open_repository.snapshot_of(repository, commit, path)
                bundle = rendering.render(tree, cluster=cluster, namespace=namespace)
                found[commit] = template_digests.rendered(bundle)
        return found

    async def contained(head: CommitId, commits: Set[CommitId]) -> Set[CommitId]:
        await repository.fetch(head)
        return await repository.contained(head, commits)

    async def line(since: CommitId | None, head: CommitId, limit: int) -> Sequence[BranchCommit]:
        await repository.fetch(head)
        return await repository.line(since, head, limit)

    return CauseFinder(CommitSource(line, render, contained, path))
