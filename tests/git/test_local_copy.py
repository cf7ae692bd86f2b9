"""The size of the local copy: force-pushes leave no more than the limit; commits in use stay."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import TypeVar

import pytest

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.core.sources.repository_limits import RepositoryLimits
from gitops_ds.source.git import address
from gitops_ds.source.git.credentials.credential_values import ANONYMOUS
from gitops_ds.source.git.object_reader import BranchMovement
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.git.revision import Branch
from tests.gitservers import Upstream

T = TypeVar("T")
LIMIT = 500_000
LARGE = 200_000
A = PurePosixPath("a.yaml")


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    made = Upstream(tmp_path / "upstream")
    made.git("config", "uploadpack.allowAnySHA1InWant", "true")
    return made


def use(upstream: Upstream, work: Callable[[Repository], Awaitable[T]]) -> T:
    async def run() -> T:
        where = address.parse(str(upstream.path), allow_local=True)
        cache, limits = upstream.path.parent / "cache", RepositoryLimits(bytes=LIMIT)
        async with Repository(where, cache, ANONYMOUS, limits) as repository:
            return await work(repository)

    return asyncio.run(run())


async def fetch_tip(repository: Repository) -> CommitId:
    tip = await repository.tip(Branch("main"))
    await repository.fetch(tip)
    return tip


def rewrite(upstream: Upstream, seed: int, size: int = LARGE) -> CommitId:
    """Replaces the last commit by one with other random bytes."""
    (upstream.work / "noise").write_bytes(random.Random(seed).randbytes(size))
    upstream.git("add", "--all")
    upstream.git("commit", "--quiet", "--amend", "--message", f"noise {seed}")
    return CommitId(upstream.git("rev-parse", "HEAD"))


def copy_of(upstream: Upstream) -> Path:
    [copy] = (upstream.path.parent / "cache").glob("*.git")
    return copy


def size_of(upstream: Upstream) -> int:
    packs = (upstream.path.parent / "cache").rglob("objects*/pack/*.pack")
    return sum(pack.stat().st_size for pack in packs)


def test_force_pushes_leave_no_more_than_the_limit(upstream: Upstream) -> None:
    upstream.commit({"a.yaml": "a: 1\n"})
    upstream.commit({"noise": ""})

    async def work(repository: Repository) -> None:
        for seed in range(10):
            commit = rewrite(upstream, seed)
            assert await fetch_tip(repository) == commit
            assert size_of(upstream) <= LIMIT
            assert (await repository.snapshot(commit)).files == {A: b"a: 1\n"}

    use(upstream, work)


def test_a_small_copy_keeps_the_commits_of_a_former_branch(upstream: Upstream) -> None:
    upstream.commit({"a.yaml": "a: 1\n"})
    upstream.commit({"noise": ""})

    async def work(repository: Repository) -> None:
        first = rewrite(upstream, 1, 1000)
        await fetch_tip(repository)
        rewrite(upstream, 2, 1000)
        await fetch_tip(repository)
        assert await repository.has(first)

    use(upstream, work)


def test_a_pinned_commit_stays_until_another_one_is_pinned(upstream: Upstream) -> None:
    first = CommitId(upstream.commit({"a.yaml": "a: 1\n"}))
    applied = CommitId(upstream.commit({"a.yaml": "a: 2\n"}))
    upstream.commit({"noise": ""})

    async def work(repository: Repository) -> None:
        await fetch_tip(repository)
        await repository.pin("one", [applied])
        await repository.pin("other", [first, CommitId("0" * 40)])
        upstream.git("reset", "--quiet", "--hard", first)
        upstream.commit({"noise": ""})
        for seed in range(3):
            rewrite(upstream, seed)
            await fetch_tip(repository)
        tip = rewrite(upstream, 3)
        await fetch_tip(repository)
        # a branch that goes back is still noticed
        assert await repository.movement(applied, first) is BranchMovement.REWOUND
        assert await repository.movement(applied, tip) is BranchMovement.REWRITTEN
        await repository.pin("one", [tip])
        for seed in range(4, 7):
            rewrite(upstream, seed, LARGE // 2)
            await fetch_tip(repository)
        assert await repository.has(tip)
        assert not await repository.has(applied)
        await repository.fetch(applied)  # the server still has it

    use(upstream, work)


def test_a_history_above_the_limit_is_refused_and_deleted(upstream: Upstream) -> None:
    applied = CommitId(upstream.commit({"noise": random.Random(1).randbytes(2 * LARGE)}))

    async def work(repository: Repository) -> None:
        await fetch_tip(repository)
        await repository.pin("one", [applied])
        upstream.commit({"noise": random.Random(2).randbytes(LARGE)})
        with pytest.raises(errors.SourceTooLarge, match="and was deleted; raise"):
            await fetch_tip(repository)
        assert size_of(upstream) == 0
        assert not await repository.has(applied)
        upstream.git("checkout", "--quiet", "--orphan", "new")
        upstream.git("branch", "--quiet", "--delete", "--force", "main")
        upstream.commit({"noise": None, "a.yaml": "a: 1\n"})
        upstream.git("branch", "--quiet", "--move", "main")
        tip = await fetch_tip(repository)
        assert (await repository.snapshot(tip)).files == {A: b"a: 1\n"}

    use(upstream, work)


def test_reports_of_clusters_are_bounded_as_well(upstream: Upstream) -> None:
    tip = CommitId(upstream.commit({"a.yaml": "a: 1\n"}))

    async def work(repository: Repository) -> None:
        await fetch_tip(repository)
        await repository.pin("one", [tip])
        for seed in range(4):
            noise = random.Random(seed).randbytes(LARGE)
            blob = upstream.git("hash-object", "-w", "--stdin", input=noise)
            tree = upstream.git("mktree", input=f"100644 blob {blob}\tcluster.json\n".encode())
            commit = upstream.git("commit-tree", tree, "-m", "report")
            upstream.git("update-ref", "refs/gitops-ds/clusters/a", commit)
            [report] = await repository.cluster_reports("", ["a"])
            assert report.commit == commit
            assert size_of(upstream) <= LIMIT
        assert await repository.has(tip)

    use(upstream, work)


def without_refs(copy: Path) -> None:
    (copy / "packed-refs").unlink(missing_ok=True)
    shutil.rmtree(copy / "refs")


def without_objects(copy: Path) -> None:
    without_refs(copy)
    (copy / "objects").rename(copy / "objects.deleted")


def with_old_objects(copy: Path) -> None:
    shutil.copytree(copy / "objects", copy / "objects.deleted")


@pytest.mark.parametrize("left", [without_refs, without_objects, with_old_objects])
def test_what_a_killed_process_left_is_a_usable_copy(
    upstream: Upstream, left: Callable[[Path], None]
) -> None:
    upstream.commit({"a.yaml": "a: 1\n", "noise": ""})

    async def work(repository: Repository) -> CommitId:
        tip = await fetch_tip(repository)
        assert (await repository.snapshot(tip)).files == {A: b"a: 1\n"}
        return tip

    for seed in range(2):
        commit = rewrite(upstream, seed)
        assert use(upstream, work) == commit
        left(copy_of(upstream))
        assert use(upstream, work) == commit
        assert size_of(upstream) <= LIMIT


def test_fetches_that_fail_leave_no_more_than_the_limit_and_one_fetch(upstream: Upstream) -> None:
    upstream.git("config", "uploadpack.allowAnySHA1InWant", "false")
    upstream.commit({"a.yaml": "a: 1\n"})
    upstream.commit({"noise": ""})

    async def work(repository: Repository) -> None:
        await fetch_tip(repository)
        for seed in range(4):
            rewrite(upstream, seed)
            with pytest.raises(errors.RevisionUnknown):
                await repository.fetch(CommitId(f"{seed}" * 40))
            assert size_of(upstream) <= LIMIT + LARGE + 1000

    use(upstream, work)
