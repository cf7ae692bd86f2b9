"""The applied commit stays in the local copy, also when force-pushes fill it."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path, PurePosixPath
from typing import cast

import pytest

from gitops_ds.core import errors
from gitops_ds.core.deployer_state import DeployerState, Steering
from gitops_ds.core.objects import CommitId, short
from gitops_ds.core.sources.repository_limits import RepositoryLimits
from gitops_ds.core.sources.source_status import Condition
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy import revision_selector, source_status_store
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.deploy.revision_selector import RevisionSelector, SelectedRevision
from gitops_ds.deploy.source_status_store import Facts
from gitops_ds.service.git.git_source import GitSource
from gitops_ds.service.prepare_process import Preparing
from gitops_ds.service.settings.repository import RepositorySettings
from gitops_ds.source.git import address
from gitops_ds.source.git.repository import Repository
from tests.gitservers import Upstream


@pytest.mark.parametrize("other_path", ["other", None])
def test_a_branch_that_goes_back_after_force_pushes_is_still_noticed(
    tmp_path: Path, other_path: str | None
) -> None:
    upstream = Upstream(tmp_path / "fleet")
    first = CommitId(upstream.commit({"other/a.yaml": "a: 1\n"}))
    applied = CommitId(upstream.commit({"other/a.yaml": "a: 2\n"}))
    where = address.parse(str(upstream.path), allow_local=True)

    def selector(repository: Repository, path: str) -> RevisionSelector:
        settings = RepositorySettings(
            url=str(upstream.path), allow_local=True, branch="main", path=path
        )
        source = GitSource(repository, settings, "", cast("Preparing", None)).revisions()
        prepared = revision_selector.prepare_directly(prepare.prepare)
        return RevisionSelector(replace(source, prepare=prepared), lambda event: None, lambda: 0.0)

    async def select(selector: RevisionSelector, repository: Repository) -> SelectedRevision:
        tip = CommitId(upstream.git("rev-parse", "main"))
        await repository.fetch(tip)
        return await selector.select(tip, DeployerState(last_attempted=applied), Steering())

    async def run() -> SelectedRevision:
        limits = RepositoryLimits(bytes=200_000)
        async with Repository(where, tmp_path / "cache", limits=limits) as repository:
            await select(selector(repository, ""), repository)
            upstream.git("reset", "--quiet", "--hard", first)
            for seed in range(4):
                upstream.commit({"noise": random.Random(seed).randbytes(90_000)})
                if other_path is not None:  # another deployer of the same repository
                    tip = CommitId(upstream.git("rev-parse", "main"))
                    await repository.fetch(tip)
                    state, path = DeployerState(last_attempted=tip), other_path
                    await selector(repository, path).select(tip, state, Steering())
                upstream.git("reset", "--quiet", "--hard", first)
                upstream.commit({"noise": random.Random(-seed - 1).randbytes(90_000)})
                await repository.fetch(CommitId(upstream.git("rev-parse", "main")))
                upstream.git("reset", "--quiet", "--hard", first)
            return await select(selector(repository, ""), repository)

    assert isinstance(asyncio.run(run()).blocked, errors.HistoryRewound)


def test_a_lost_commit_does_not_hide_why_the_tip_is_refused(tmp_path: Path) -> None:
    """After a rewrite of the branch and with a new local copy."""
    upstream = Upstream(tmp_path / "fleet")
    lost = CommitId("1" * 40)
    upstream.commit({"a.yaml": "a: 1\n"})

    def refused(tree: SourceTree) -> Prepared:
        return prepare.prepare(replace(tree, files={PurePosixPath("a.yaml"): b"a: ["}))

    async def run() -> tuple[Condition, str]:
        where = address.parse(str(upstream.path), allow_local=True)
        settings = RepositorySettings(url=str(upstream.path), allow_local=True, branch="main")
        async with Repository(where, tmp_path / "cache") as repository:
            source = GitSource(repository, settings, "", cast("Preparing", None)).revisions()
            source = replace(source, prepare=revision_selector.prepare_directly(refused))
            selector = RevisionSelector(source, lambda event: None, lambda: 0.0)
            state = DeployerState(last_attempted=lost, last_good=lost)
            tip = CommitId(upstream.git("rev-parse", "main"))
            selected = await selector.select(tip, state, Steering())
            return source_status_store.judge(Facts(selected, state, None))

    condition, message = asyncio.run(run())
    assert condition is Condition.REJECTED
    assert message.endswith(
        f"commit {short(lost)} stays applied, but the Git server no longer has it, so drift is "
        "not corrected"
    )
