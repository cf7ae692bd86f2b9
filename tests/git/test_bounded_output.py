"""The memory of git and of its output: a repository decides what git prints, and how much that is.

Each test measures a process of its own with the memory limit of a small pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gitops_ds.core import errors
from gitops_ds.source.git import address, command_output, hardening
from gitops_ds.source.git.credentials.credential_values import Credentials
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.git.revision import ShortName
from gitops_ds.source.sandbox import memory
from tests.gitservers import HttpServer, Upstream

MIB = 1 << 20
LIMIT = 256 * MIB  # of the pod; git's share is 48 MiB
# The process prints the result or the error of a method, and the most memory of itself and of git.
PROGRAM = """
import asyncio, json, resource, sys
from pathlib import Path
from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.source.git import address
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.git.revision import Branch, Head

async def main(url, cache, first, work):
    where = address.parse(url, allow_local=True)
    async with Repository(where, Path(cache)) as repository:
        return await work(repository, CommitId(first))

async def line(repository, first):
    tip = await repository.tip(Branch("main"))
    await repository.fetch(tip)
    return str(len(await repository.line(first, tip)))

async def log(repository, first):
    tip = await repository.tip(Branch("main"))
    await repository.fetch(tip)
    return str(len(await repository.log(first, tip)))

async def branch(repository, first):
    return await repository.tip(Branch("main"))

async def head(repository, first):
    return await repository.tip(Head())

async def missing(repository, first):
    return await repository.tip(Branch("mian"))

try:
    found = asyncio.run(main(*sys.argv[1:4], globals()[sys.argv[4]]))
except errors.SourceError as error:
    found = type(error).__name__
rows = Path("/proc/self/status").read_text().splitlines()
own = next(int(row.split()[1]) for row in rows if row.startswith("VmHWM:"))
of_git = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps([found, own >> 10, of_git >> 10]))
"""
# As many repositories of one address as the last argument has are polled at once.
CROWD = """
import asyncio, json, sys
from pathlib import Path
from gitops_ds.source.git import address
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.git.revision import Branch
from gitops_ds.source.sandbox.turns import Turns

async def main(url, cache, number):
    where, turns = address.parse(url, allow_local=True), Turns()
    async def tip(n):
        async with Repository(where, Path(cache) / str(n), turns=turns) as repository:
            return await repository.tip(Branch("main"))
    results = await asyncio.gather(*map(tip, range(number)), return_exceptions=True)
    print(json.dumps(sorted({type(result).__name__ for result in results})))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path / "upstream")


def found(upstream: Upstream, first: str, work: str) -> str:
    """The result, or the name of the error; the memory must be that of an ordinary repository."""
    cache = upstream.path.parent / "cache"
    command = [sys.executable, "-c", PROGRAM, str(upstream.path), str(cache), first, work]
    environment = {**os.environ, "GITOPS_DS_MEMORY_LIMIT": str(LIMIT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    result, own, of_git = json.loads(done.stdout)
    assert own < 100, f"{own} MiB of the process that runs git"
    assert of_git < 100, f"{of_git} MiB of git"
    return str(result)


def refs(upstream: Upstream, kind: str, number: int) -> str:
    """Gives the repository so many refs without pushes; its commit."""
    commit = upstream.commit({"a.yaml": "a: 1\n"})
    rows = "".join(f"{commit} refs/{kind}/change-{n:08d}\n" for n in range(number))
    head = "# pack-refs with: peeled fully-peeled sorted \n"
    (upstream.path / "packed-refs").write_text(head + rows)
    return commit


@pytest.mark.parametrize(("kind", "work"), [("heads", "branch"), ("pull", "head")])
def test_one_ref_of_a_hundred_thousand_is_read(upstream: Upstream, kind: str, work: str) -> None:
    commit = refs(upstream, kind, 100_000)
    assert found(upstream, commit, work) == commit


def test_a_branch_that_is_missing_among_many_is_unknown_or_they_are_too_many(
    upstream: Upstream,
) -> None:
    commit = refs(upstream, "heads", 20_000)
    assert found(upstream, commit, "missing") == "RevisionUnknown"
    refs(upstream, "heads", 100_000)
    assert found(upstream, commit, "missing") == "GitMemoryExceeded"


@pytest.mark.parametrize(("kind", "work"), [("heads", "branch"), ("pull", "head")])
def test_a_million_refs_are_refused(upstream: Upstream, kind: str, work: str) -> None:
    commit = refs(upstream, kind, 1_000_000)
    assert found(upstream, commit, work) == "GitMemoryExceeded"


def of_children(process: int) -> int:
    """The memory of all processes that this one started, in MiB."""
    total = 0
    with contextlib.suppress(OSError):  # it has just ended
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                rows = Path(f"/proc/{child}/status").read_text().splitlines()
                total += sum(int(row.split()[1]) for row in rows if row.startswith("RssAnon:"))
                total += of_children(child) << 10
    return total >> 10


def test_repositories_with_a_million_refs_that_are_polled_at_once_fit_together(
    upstream: Upstream,
) -> None:
    refs(upstream, "heads", 1_000_000)
    command = [sys.executable, "-c", CROWD, str(upstream.path), str(upstream.path.parent), "8"]
    environment = {**os.environ, "GITOPS_DS_MEMORY_LIMIT": str(512 * MIB)}
    peak = 0
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        while process.poll() is None:
            peak = max(peak, of_children(process.pid))
            time.sleep(0.01)
        assert process.stdout is not None
        assert json.loads(process.stdout.read()) == ["GitMemoryExceeded"]
    shares = memory.budget(512 * MIB)
    assert peak <= (8 * shares.connect + 2 * shares.git) // MIB


def test_a_thread_of_a_command_that_connects_has_a_small_stack() -> None:
    """With the default of 8 MiB its memory does not suffice for a host whose name is resolved."""
    command = ["sh", "-c", "ulimit -d; ulimit -s"]
    limited = hardening.capped(command, None, 16 * MIB, memory.STACK)
    printed = subprocess.run(limited, capture_output=True, text=True, check=True).stdout
    assert printed.split() == [str(16 << 10), str(1 << 10)]


def test_the_refs_that_become_files_are_few(http_server: HttpServer, tmp_path: Path) -> None:
    """An abbreviated commit is searched in all branches, which are fetched for it."""
    http_server.anonymous = True
    upstream, cache = http_server.repository("many"), tmp_path / "cache"
    where = address.parse(f"{http_server.url}/many")

    async def tip(commit: str) -> str:
        own = Credentials(None, http_server.authority)
        async with Repository(where, cache, own) as repository:
            return await repository.tip(ShortName(commit[:10]))

    commit = refs(upstream, "heads", 100)
    assert asyncio.run(tip(commit)) == commit
    commit = refs(upstream, "heads", 60_000)
    with pytest.raises(errors.SourceTooLarge, match="has 60,001 branches and tags"):
        asyncio.run(tip(commit))
    assert len(list(cache.rglob("change-*"))) == 100


@pytest.mark.parametrize("depth", [6, 10])  # a million files, and ten thousand million
def test_a_commit_of_few_bytes_with_countless_files_is_refused(
    upstream: Upstream, depth: int
) -> None:
    first = upstream.commit({"agents/a.yaml": "a: 1\n"})
    kind, id = "100644 blob", upstream.git("hash-object", "-w", "--stdin", input=b"x")
    for _ in range(depth):
        rows = "".join(f"{kind} {id}\tname-{n}\n" for n in range(10))
        kind, id = "040000 tree", upstream.git("mktree", input=rows.encode())
    row = f"040000 tree {id}\tbeside\n"
    tree = upstream.git("mktree", input=row.encode())
    commit = upstream.git("commit-tree", tree, "-p", first, "-m", "countless")
    upstream.git("update-ref", "refs/heads/main", commit)
    assert found(upstream, first, "line") == "GitMemoryExceeded"
    assert found(upstream, first, "log") == "1"


@pytest.mark.parametrize("work", ["line", "log"])
def test_a_commit_with_a_message_of_many_megabytes_is_refused(
    upstream: Upstream, work: str
) -> None:
    first = upstream.commit({"a.yaml": "a: 1\n"})
    message = "\N{GRINNING FACE}" + "x" * (20 * MIB)
    words = ("commit-tree", f"{first}^{{tree}}", "-p", first, "-F", "-")
    commit = upstream.git(*words, input=message.encode())
    tip = upstream.git("commit-tree", f"{first}^{{tree}}", "-p", commit, "-m", "later")
    upstream.git("update-ref", "refs/heads/main", tip)
    assert found(upstream, first, work) == "GitMemoryExceeded"


@pytest.mark.parametrize(("names", "characters"), [(25_000, 10), (1, 200_000)])
def test_commits_that_are_too_large_together_are_refused(
    upstream: Upstream, names: int, characters: int
) -> None:
    """Each is within the limits of one commit."""
    first = commit = upstream.commit({"a.yaml": "a: 1\n"})
    trees = []
    for content in (b"x", b"y"):
        blob = upstream.git("hash-object", "-w", "--stdin", input=content)
        rows = "".join(f"100644 blob {blob}\tname-{n:05d}\n" for n in range(names))
        trees.append(upstream.git("mktree", input=rows.encode()))
    for n in range(60):
        words = ("commit-tree", trees[n % 2], "-p", commit, "-F", "-")
        commit = upstream.git(*words, input=("\N{GRINNING FACE}" * characters).encode())
    upstream.git("update-ref", "refs/heads/main", commit)
    assert found(upstream, first, "line") == "SourceTooLarge"


def test_of_errors_the_last_lines_are_kept() -> None:
    script = "import sys; sys.stderr.write('remote: noise\\n' * 100_000 + 'fatal: the cause\\n')"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        stdout, stderr = command_output.read(process, 60.0, 10)
    assert (stdout, len(stderr)) == (b"", 1 << 16)
    assert stderr.endswith(b"noise\nfatal: the cause\n")
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("script", "seconds", "expected"),
    [
        ("import os\nwhile True: os.write(1, bytes(1 << 16))", 60.0, command_output.OutputTooLong),
        ("import os\nos.close(1)\nos.close(2)\nwhile True: pass", 0.5, subprocess.TimeoutExpired),
        ("while True: pass", 0.5, subprocess.TimeoutExpired),
    ],
)
def test_a_program_without_end_ends_at_its_limit(
    script: str, seconds: float, expected: type[Exception]
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            with pytest.raises(expected):
                command_output.read(process, seconds, 1000)
        finally:
            process.kill()
