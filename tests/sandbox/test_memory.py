"""How much memory there is: the least limit of our cgroup and those above it, of either version."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gitops_ds.core.sources.repository_limits import MIB
from gitops_ds.source.git import address
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.git.revision import Branch
from gitops_ds.source.sandbox import memory
from gitops_ds.source.sandbox.turns import Turns
from tests.gitservers import Upstream

UNLIMITED_V1 = str(2**63 - 4096)
CASES = [
    ("no cgroup at all", "", {}, None),
    ("v2 in a container", "0::/\n", {"memory.max": f"{512 * MIB}"}, 512 * MIB),
    ("v2 without a limit", "0::/\n", {"memory.max": "max"}, None),
    (
        "v2, the pod's limit above ours",
        "0::/pod/one\n",
        {"pod/memory.max": "1000000", "pod/one/memory.max": "2000000"},
        1_000_000,
    ),
    ("v2, a path of the host", "0::/kubepods/x\n", {"memory.max": "3000000"}, 3_000_000),
    (
        "v1",
        "4:memory:/a\n0::/\n",
        {"memory/memory.limit_in_bytes": UNLIMITED_V1, "memory/a/memory.limit_in_bytes": "5000000"},
        5_000_000,
    ),
    ("v1 without a limit", "4:memory:/\n", {"memory/memory.limit_in_bytes": UNLIMITED_V1}, None),
    (
        "v1 beside others",
        "4:cpu,memory:/\n",
        {"memory/memory.limit_in_bytes": "6000000"},
        6_000_000,
    ),
]


@pytest.mark.parametrize(
    ("name", "membership", "files", "limit"), CASES, ids=[case[0] for case in CASES]
)
def test_the_limit_of_a_cgroup(
    tmp_path: Path, name: str, membership: str, files: dict[str, str], limit: int | None
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    if membership:
        (tmp_path / "proc/self/cgroup").write_text(membership)
    for file, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert memory.cgroup_limit(tmp_path) == limit


@pytest.mark.parametrize("mebibytes", [256, 512, 1024, 1536, 4096, 65536])
def test_all_shares_together_leave_a_fifth_to_the_service(mebibytes: int) -> None:
    shares = memory.budget(mebibytes * MIB)
    assert (
        shares.worker + shares.git * shares.fetches + shares.program * shares.programs
        <= mebibytes * MIB * 4 / 5
    )
    assert shares.snapshot <= 64 * MIB


def test_a_limit_that_is_too_small_is_raised_to_the_minimum() -> None:
    assert memory.budget(1) == memory.budget(256 * MIB)


@pytest.mark.parametrize(
    ("mebibytes", "fetches"),
    [(256, 1), (512, 1), (1536, 1), (4096, 1), (8192, 1), (16384, 4), (65536, 4)],
)
def test_as_many_fetches_at_once_as_have_room_beside_the_other_shares(
    mebibytes: int, fetches: int
) -> None:
    assert memory.budget(mebibytes * MIB).fetches == fetches
    assert memory.budget(None).fetches == 4


@pytest.mark.system
def test_a_fetch_waits_for_room_that_repositories_share_and_nothing_else_does(
    tmp_path: Path,
) -> None:
    upstream = Upstream(tmp_path / "upstream")
    upstream.commit({"a.yaml": "{}"})

    async def play() -> None:
        turns, over = Turns(), asyncio.Event()
        other = asyncio.create_task(turns.run("other", over.wait, kept=60))
        async with Repository(
            address.parse(str(upstream.path), allow_local=True), tmp_path / "cache", turns=turns
        ) as repository:
            tip = await repository.tip(Branch("main"))
            fetching = asyncio.create_task(repository.fetch(tip))
            for _ in range(3):
                assert not await repository.has(tip), "the copy is read meanwhile"
            assert not fetching.done()
            over.set()
            await fetching
            assert await repository.has(tip)
            over.clear()
            again = asyncio.create_task(turns.run("other", over.wait, kept=60))
            await repository.fetch(tip)  # it is here already
            over.set()
            await asyncio.gather(other, again)

    asyncio.run(play())
