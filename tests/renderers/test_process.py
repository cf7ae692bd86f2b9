"""A program within its limits: what it writes and how long it takes, alone and with the others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gitops_ds.core.sources.repository_limits import RepositoryLimits
from gitops_ds.core.values import replace
from gitops_ds.source.renderers import process
from gitops_ds.source.renderers.process import Means, ProgramResult

SMALL = Means(limits=RepositoryLimits(seconds=30, bytes=100_000))


def run(script: str, means: Means = SMALL, own: Path | None = None) -> ProgramResult:
    return asyncio.run(
        process.run(["/bin/sh", "-c", script], process.environment(Path("/nowhere")), means, own)
    )


def test_standard_output_and_standard_error_are_separate() -> None:
    assert run("echo out; echo words >&2") == ProgramResult(b"out\n", "words\n")
    assert run("echo out; echo words >&2; exit 3") == ProgramResult(b"", "words\n", failed=True)


def test_complaints_without_end_are_ended_too() -> None:
    assert (
        "writes more than"
        in run(
            "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa >&2 || exit; done"
        ).problem
    )


def test_a_program_has_an_empty_home_and_none_of_our_secrets() -> None:
    assert b"PATH=/nowhere\n" in run("/usr/bin/env").output
    assert not set(process.environment(Path("/nowhere"), network=True)) - {
        *process.environment(Path()),
        *process._OF_NETWORK,
    }


@pytest.mark.parametrize(
    "script",
    [
        "cat {other}/token",
        "cat {own}/../other/token",
        "cat {own}/link",
        "echo x >> {other}/token",
        "echo x > {other}/new",
        "rm {other}/token",
        "mkdir {other}/new",
        "ls {other}",
        "cat /proc/$PPID/environ",
        "cat /proc/self/environ",
        "cat /etc/passwd",
    ],
)
def test_a_program_has_no_files_but_its_own_and_those_of_the_system(
    tmp_path: Path, script: str
) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    (other / "token").write_text("secret")
    (own / "link").symlink_to(other / "token")
    (own / "file").write_text("content")
    path = "PATH=/usr/bin:/bin"
    allowed = f"{path}; cd {own}; cat file; mkdir a; echo x > a/b; rm a/b; : > /dev/null"
    assert run(allowed, SMALL, own) == ProgramResult(b"content")
    ended = run(f"{path}; {script.format(own=own, other=other)}", SMALL, own)
    assert ended.failed
    assert b"secret" not in ended.output
    assert (other / "token").read_text() == "secret"
    assert list(other.iterdir()) == [other / "token"]


def test_a_program_does_not_run_after_the_common_time_limit(tmp_path: Path) -> None:
    ended = run(f"echo x > {tmp_path}/ran", replace(SMALL, ends=0.0))
    assert "was not run" in ended.problem
    assert not (tmp_path / "ran").exists()


def test_all_programs_of_a_source_tree_have_one_deadline() -> None:
    async def ends() -> float:
        return SMALL.timed().ends - asyncio.get_running_loop().time()

    assert 100 < asyncio.run(ends()) <= 150
