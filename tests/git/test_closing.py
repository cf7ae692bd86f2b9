"""What is left when a repository is closed, or its process killed: nothing that runs, no
credentials on the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.core.sources.repository_limits import DEFAULT
from gitops_ds.core.values import replace
from gitops_ds.source.git import address, directory_lock, revision
from gitops_ds.source.git.bare_repository import BareRepository
from gitops_ds.source.git.credentials.credential_values import Credentials, Password
from gitops_ds.source.git.directory_lock import PrivateDirectory
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.sandbox.turns import Turns
from tests import gitservers

pytestmark = pytest.mark.system
T = TypeVar("T")
FLEET = address.parse("https://127.0.0.1:1/fleet")


def test_a_server_that_hangs_is_not_waited_for_when_the_repository_is_closed(
    tmp_path: Path,
) -> None:
    async def play(port: int) -> float:
        where = address.parse(f"https://127.0.0.1:{port}/fleet")
        repository = Repository(where, tmp_path, Credentials(Password("secret")))
        asking = asyncio.create_task(repository.tip(revision.Head()))
        while not running(tmp_path):
            await asyncio.sleep(0.02)
        began = time.monotonic()
        asking.cancel()
        await repository.close()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        with pytest.raises(RuntimeError):  # its thread is gone
            await repository.tip(revision.Head())
        return time.monotonic() - began

    with gitservers.silent_server() as port:
        assert asyncio.run(play(port)) < 10  # git's own limit is two minutes
    assert not running(tmp_path)
    assert not list(tmp_path.glob("access-*"))


class Impatient(Turns):
    """Ends fetches for others at once."""

    async def run(
        self, who: str, attempt: Callable[[], Awaitable[T]], *, kept: float, **options: bool
    ) -> T:
        return await super().run(who, attempt, kept=0, **options)


def test_a_fetch_from_a_server_that_hangs_is_ended_for_another_repository(tmp_path: Path) -> None:
    async def play(port: int) -> None:
        turns, where = Impatient(), address.parse(f"https://127.0.0.1:{port}/fleet")
        async with Repository(where, tmp_path, turns=turns) as repository:
            fetching = asyncio.create_task(repository.fetch(CommitId("1" * 40)))
            while not running(tmp_path):
                await asyncio.sleep(0.02)

            async def other() -> bool:
                return bool(running(tmp_path))

            began = time.monotonic()
            assert not await turns.run("other", other, kept=60)
            assert time.monotonic() - began < 30  # the limit of the fetch is a minute
            while not running(tmp_path):  # it begins again
                await asyncio.sleep(0.02)
            fetching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await fetching
            assert not running(tmp_path)

    with gitservers.silent_server() as port:
        asyncio.run(play(port))


def test_a_waiting_git_request_fails_when_the_repository_is_closed(tmp_path: Path) -> None:
    async def play(port: int) -> None:
        repository = Repository(address.parse(f"https://127.0.0.1:{port}/fleet"), tmp_path)
        asking = asyncio.create_task(repository.tip(revision.Head()))
        while not running(tmp_path):
            await asyncio.sleep(0.02)
        await repository.close()
        with pytest.raises(errors.SourceError):
            await asking

    with gitservers.silent_server() as port:
        asyncio.run(play(port))


def test_a_repository_that_waits_for_another_process_in_its_cache_is_closed_at_once(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        async with Repository(FLEET, tmp_path) as first:
            with pytest.raises(errors.SourceError):
                await first.tip(revision.Head())
        [cache] = tmp_path.glob("*.git")
        with directory_lock.held(cache):
            repository = Repository(FLEET, tmp_path)
            request = asyncio.create_task(repository.tip(revision.Head()))
            while not list(tmp_path.glob("access-*")):
                await asyncio.sleep(0.02)
            await repository.close()
            with pytest.raises(errors.SourceError, match="is closed"):
                await request
        assert not list(tmp_path.glob("access-*"))

    asyncio.run(play())


def test_the_wait_for_another_process_in_the_cache_has_the_limit_of_a_git_command(
    tmp_path: Path,
) -> None:
    limits = replace(DEFAULT, seconds=1.0)
    BareRepository(FLEET, tmp_path, limits).close()
    [cache] = tmp_path.glob("*.git")
    with (
        directory_lock.held(cache),
        pytest.raises(errors.SourceError, match=r"another process has used the cache .* for 1 s"),
    ):
        BareRepository(FLEET, tmp_path, limits)
    assert not list(tmp_path.glob("access-*"))


def running(cache: Path) -> list[int]:
    """The processes whose environment names the cache: git, and what talks for it."""
    result = []
    for one in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = one.name.isdigit() and (one / "environ").read_bytes()
            if (
                words
                and f"GIT_DIR={cache}".encode() in words
                and b"remote-https" in (one / "cmdline").read_bytes()
            ):
                result.append(int(one.name))
    return result


HELD = """
import sys, time
from pathlib import Path
from gitops_ds.source.git.directory_lock import PrivateDirectory
made = PrivateDirectory(Path(sys.argv[1]))
(made.path / "token").write_text("secret")
print(made.path.name, flush=True)
time.sleep(600)
"""


def test_files_of_a_killed_process_are_removed_and_those_of_a_running_one_are_kept(
    tmp_path: Path,
) -> None:
    started = [
        subprocess.Popen([sys.executable, "-c", HELD, tmp_path], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        dead, alive = (
            tmp_path / (process.stdout.readline().strip() if process.stdout else "")
            for process in started
        )
        os.kill(started[0].pid, signal.SIGKILL)
        started[0].wait()
        assert dead.is_dir()
        ours = PrivateDirectory(tmp_path)
        assert set(tmp_path.iterdir()) == {alive, ours.path}
        assert (alive / "token").read_text() == "secret"
        another = PrivateDirectory(tmp_path)  # in one process, too
        assert ours.path.is_dir()
        ours.remove()
        another.remove()
        assert set(tmp_path.iterdir()) == {alive}
    finally:
        for process in started:
            process.kill()
            process.communicate()
