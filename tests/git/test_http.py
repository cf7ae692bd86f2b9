"""A real git server over https: access, requests, and messages of failures."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.core.sources.repository_limits import DEFAULT, RepositoryLimits
from gitops_ds.source.git import address
from gitops_ds.source.git.commit_writer import Signature
from gitops_ds.source.git.credentials.credential_values import (
    Bearer,
    Credentials,
    Login,
    OwnSsh,
    Password,
)
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.git.revision import Branch, RevisionSpec, parse
from tests import gitservers
from tests.gitservers import HttpServer

T = TypeVar("T")
MAIN = Branch("main")
SIGNATURE = Signature("Bot", "bot@example.com", datetime(2026, 1, 1, tzinfo=UTC))


def use(
    url: str,
    cache: Path,
    credentials: Credentials,
    work: Callable[[Repository], Awaitable[T]],
    limits: RepositoryLimits = DEFAULT,
) -> T:
    async def run() -> T:
        async with Repository(address.parse(url), cache, credentials, limits) as repository:
            return await work(repository)

    return asyncio.run(run())


def tip(revision: RevisionSpec = MAIN) -> Callable[[Repository], Awaitable[CommitId]]:
    return lambda repository: repository.tip(revision)


def login(server: HttpServer, login: Login | None = None) -> Credentials:
    return Credentials(login or Password(server.password, server.user), server.authority)


def test_a_password_and_a_bearer_token_open_the_door(
    http_server: HttpServer, tmp_path: Path
) -> None:
    commit = http_server.repository("a").commit({"x.yaml": "a: 1\n"})
    for credential in (Password(http_server.password, http_server.user), Bearer(http_server.token)):
        assert (
            use(f"{http_server.url}/a", tmp_path, login(http_server, credential), tip()) == commit
        )


@pytest.mark.parametrize("between", ["", "a\nb", "wrong"])
def test_credentials_that_are_invalid_for_a_while_work_again(
    http_server: HttpServer, tmp_path: Path, between: str
) -> None:
    commit = http_server.repository("a").commit({"x.yaml": "a: 1\n"})
    passwords = [http_server.password, between, http_server.password]

    async def current(refused: bool) -> Credentials:
        return login(http_server, Password(passwords[0], http_server.user))

    async def run() -> None:
        where = address.parse(f"{http_server.url}/a")
        async with Repository(where, tmp_path, current) as repository:
            assert await repository.tip(MAIN) == commit
            passwords.pop(0)
            with pytest.raises((errors.UsageError, errors.SourceDenied)):
                await repository.tip(MAIN)
            passwords.pop(0)
            assert await repository.tip(MAIN) == commit

    asyncio.run(run())


def test_credentials_in_the_url_are_used_and_never_kept(
    http_server: HttpServer, tmp_path: Path
) -> None:
    http_server.password = "hunter2"
    commit = http_server.repository("a").commit({"x.yaml": "a: 1\n"})
    url = f"{http_server.url}/a".replace("https://", "https://bot:hunter2@")

    async def work(repository: Repository) -> CommitId:
        found = await repository.tip(MAIN)
        await repository.fetch(found)
        return found

    assert use(url, tmp_path, Credentials(None, http_server.authority), work) == commit
    assert all(b"hunter2" not in f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())
    assert not list(tmp_path.glob("access-*"))


@pytest.mark.parametrize(
    ("credential", "words"),
    [
        (Password("wrong-password", "bot"), "refused the credentials (401)"),
        (Bearer("wrong-password"), "(repository.credentials)"),
        (None, "requires credentials"),
    ],
)
def test_wrong_or_missing_credentials_are_reported_with_a_remedy_and_without_their_values(
    http_server: HttpServer, tmp_path: Path, credential: Login | None, words: str
) -> None:
    http_server.repository("a")
    with pytest.raises(errors.SourceDenied) as caught:
        use(f"{http_server.url}/a", tmp_path, Credentials(credential, http_server.authority), tip())
    assert words in str(caught.value)
    assert "wrong-password" not in str(caught.value)


def test_a_server_with_an_unknown_authority_is_rejected(
    http_server: HttpServer, tmp_path: Path
) -> None:
    http_server.repository("a")
    with pytest.raises(errors.SourceDenied, match="not from a trusted authority"):
        use(f"{http_server.url}/a", tmp_path, Credentials(Password("x")), tip())
    assert http_server.requests == []


def test_an_authority_that_is_not_a_certificate_is_named(
    http_server: HttpServer, tmp_path: Path
) -> None:
    with pytest.raises(errors.SourceDenied, match="certificate"):
        use(f"{http_server.url}/a", tmp_path, Credentials(Password("x"), b"no certificate"), tip())


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (403, errors.SourceDenied, "lack the permission"),
        (404, errors.SourceDenied, "repository not found"),
        (429, errors.SourceUnreachable, "try again"),
        (500, errors.SourceUnreachable, "try again"),
        (503, errors.SourceUnreachable, "try again"),
    ],
)
def test_each_status_becomes_a_retryable_or_a_permanent_error(
    http_server: HttpServer, tmp_path: Path, status: int, kind: type[errors.SourceError], words: str
) -> None:
    http_server.status = status
    with pytest.raises(kind, match=words):
        use(f"{http_server.url}/a", tmp_path, login(http_server), tip())


def test_a_netrc_of_the_person_is_not_read(http_server: HttpServer, tmp_path: Path) -> None:
    http_server.password = "hunter2"
    http_server.repository("a").commit({"x.yaml": "a: 1\n"})
    (tmp_path / ".netrc").write_text("machine localhost login bot password hunter2\n")
    (tmp_path / "ca.pem").write_bytes(http_server.authority)
    program = """
import asyncio, sys
from pathlib import Path
from gitops_ds.core import errors
from gitops_ds.source.git import address
from gitops_ds.source.git.credentials.credential_values import Credentials
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.git.revision import Head

async def main():
    authority = Path("ca.pem").read_bytes()
    own = Credentials(None, authority)
    async with Repository(address.parse(sys.argv[1]), Path("cache"), own) as repository:
        try:
            print(await repository.tip(Head()))
        except errors.SourceDenied:
            print("denied")

asyncio.run(main())
"""
    words = (sys.executable, "-c", program, f"{http_server.url}/a")
    environment = {**os.environ, "HOME": str(tmp_path)}
    run = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.stdout == "denied\n", run.stderr


@pytest.mark.slow
def test_nothing_is_fetched_when_nothing_moved(http_server: HttpServer, tmp_path: Path) -> None:
    upstream = http_server.repository("a")
    http_server.anonymous = True
    upstream.commit({"x.yaml": "a: 1\n"})

    async def pass_over(repository: Repository) -> list[str]:
        http_server.requests.clear()
        commit = await repository.tip(MAIN)
        await repository.fetch(commit)
        await repository.snapshot(commit)
        return list(http_server.requests)

    async def work(repository: Repository) -> None:
        look = ["GET /a/info/refs?service=git-upload-pack", "POST /a/git-upload-pack"]
        assert len(await pass_over(repository)) > len(look)
        assert await pass_over(repository) == look
        upstream.commit({"x.yaml": "a: 2\n"})
        assert len(await pass_over(repository)) > len(look)
        assert await pass_over(repository) == look

    use(f"{http_server.url}/a", tmp_path, login(http_server), work)
    # A new process with the same cache fetches nothing either.
    use(f"{http_server.url}/a", tmp_path, login(http_server), pass_over)
    assert len(http_server.requests) == 2


def test_an_older_commit_is_fetched_by_its_id_also_after_a_force_push(
    http_server: HttpServer, tmp_path: Path
) -> None:
    upstream = http_server.repository("a")
    first = upstream.commit({"x.yaml": "a: 1\n"})
    upstream.commit({"x.yaml": "a: 2\n"})

    async def work(repository: Repository) -> str:
        commit = await repository.tip(parse(first))
        await repository.fetch(commit)
        return (await repository.info(commit)).id

    assert use(f"{http_server.url}/a", tmp_path, login(http_server), work) == first


def test_fetches_over_the_cap_on_bytes_are_refused_and_leave_nothing(
    http_server: HttpServer, tmp_path: Path
) -> None:
    upstream = http_server.repository("a")
    upstream.commit({"noise": random.Random(1).randbytes(1 << 20)})

    async def work(repository: Repository) -> None:
        tip = await repository.tip(MAIN)
        for _ in range(3):
            with pytest.raises(errors.SourceTooLarge, match="size limit"):
                await repository.fetch(tip)

    limits = RepositoryLimits(bytes=200_000)
    use(f"{http_server.url}/a", tmp_path, login(http_server), work, limits)
    assert sum(f.stat().st_size for f in tmp_path.rglob("*") if f.is_file()) < 100_000


@pytest.mark.slow
def test_a_push_succeeds_and_one_based_on_an_old_tip_fails(
    http_server: HttpServer, tmp_path: Path
) -> None:
    upstream = http_server.repository("a")
    upstream.commit({"x.yaml": "a: 1\n"})

    async def work(repository: Repository) -> None:
        old = await repository.tip(MAIN)
        await repository.fetch(old)
        mine = await repository.commit_files(old, {"x.yaml": b"a: 2\n"}, "mine", SIGNATURE)
        theirs = upstream.commit({"y.yaml": "b: 1\n"})
        with pytest.raises(errors.PushRejected):
            await repository.push(mine, "main", old)
        assert await repository.tip(MAIN) == theirs
        await repository.fetch(CommitId(theirs))
        mine = await repository.commit_files(
            CommitId(theirs), {"x.yaml": b"a: 2\n"}, "mine", SIGNATURE
        )
        await repository.push(mine, "main", CommitId(theirs))
        assert upstream.git("rev-parse", "main") == mine

    use(f"{http_server.url}/a", tmp_path, login(http_server), work)


def test_a_silent_server_fails_after_the_time_limit(tmp_path: Path) -> None:
    with (
        gitservers.silent_server() as port,
        pytest.raises(errors.SourceUnreachable, match="within 1 s"),
    ):
        use(
            f"https://127.0.0.1:{port}/a",
            tmp_path,
            Credentials(),
            tip(),
            RepositoryLimits(seconds=1),
        )


def test_a_closed_port_and_an_unknown_host_are_unreachable(tmp_path: Path) -> None:
    with gitservers.silent_server() as port:
        pass
    with pytest.raises(errors.SourceUnreachable, match="unreachable"):
        use(f"https://127.0.0.1:{port}/a", tmp_path, Credentials(), tip())
    with pytest.raises(errors.SourceUnreachable, match="DNS"):
        use("https://nowhere.invalid/a", tmp_path, Credentials(), tip())


def test_credentials_of_the_wrong_kind_are_rejected_before_any_request(
    http_server: HttpServer, tmp_path: Path
) -> None:
    with pytest.raises(errors.UsageError, match="no ssh key"):
        use(f"{http_server.url}/a", tmp_path, Credentials(OwnSsh()), tip())
    with pytest.raises(errors.UsageError, match="line break"):
        use(f"{http_server.url}/a", tmp_path, Credentials(Password("secret\n")), tip())
    assert http_server.requests == []
