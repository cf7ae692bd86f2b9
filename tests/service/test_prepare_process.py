"""Limits of the preparation of a commit: the time of helm and kustomize in it, and attempts that
ended the process.
"""

from __future__ import annotations

import asyncio
import os
import pickle
from pathlib import Path

import pytest

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.core.sources.repository_limits import DEFAULT, PROGRAMS
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.service import prepare_process
from gitops_ds.service.prepare_process import Preparing
from gitops_ds.service.prepare_worker import Job
from gitops_ds.service.settings import service
from gitops_ds.source.git import address
from gitops_ds.source.renderers.process import RENDER
from gitops_ds.source.sandbox import memory
from gitops_ds.source.sandbox.limited_process import ProcessLimits, ProcessResult


@pytest.mark.parametrize("seconds", [1.5, 60])
def test_a_program_ends_by_the_limit_of_the_allowed_renderers(seconds: float) -> None:
    allowed = replace(PROGRAMS, seconds=seconds)
    means = open_repository.means(allowed)
    assert means.allowed == allowed
    assert means.limits == replace(RENDER, seconds=seconds)


def test_a_program_of_the_service_has_a_minute_or_the_time_of_the_settings() -> None:
    assert service.parse({}).allowed.seconds == RENDER.seconds == 60
    assert service.parse({"render": {"timeout": "90s"}}).allowed == replace(PROGRAMS, seconds=90)


def test_a_timeout_below_a_second_is_an_error_of_the_settings() -> None:
    with pytest.raises(errors.SettingsError, match="render: timeout must be a second or more"):
        service.parse({"render": {"timeout": "0s"}})


@pytest.mark.parametrize(("seconds", "longest"), [(1, 330), (60, 330), (90, 480)])
def test_the_renders_of_a_commit_end_before_its_preparation(seconds: float, longest: float) -> None:
    one = replace(job("fleet"), allowed=replace(PROGRAMS, seconds=seconds))
    assert Preparing(memory.UNLIMITED).attempts(one) == (15, longest)


def job(name: str) -> Job:
    return Job(
        where=address.parse(f"https://git.example.com/{name}"),
        cache=Path("cache"),
        limits=DEFAULT,
        allowed=PROGRAMS,
        commit=CommitId("0" * 40),
        path="",
        cluster="",
        clean={},
    )


async def test_a_commit_that_takes_minutes_delays_no_commit_of_another_repository() -> None:
    async def process(
        module: str, request: bytes, limits: ProcessLimits, *, private: bool
    ) -> ProcessResult:
        is_heavy = pickle.loads(request).where == job("heavy").where
        if is_heavy and limits.seconds < 330:
            await asyncio.sleep(limits.seconds)
            return ProcessResult(problem="takes too long", timed_out=True)
        await asyncio.sleep(300 if is_heavy else 1)
        return ProcessResult(pickle.dumps(({}, ())))

    preparing = Preparing(memory.UNLIMITED, call=process)
    heavy = asyncio.create_task(preparing.digests(job("heavy")))
    await asyncio.sleep(100)
    began = asyncio.get_running_loop().time()
    await preparing.digests(job("light"))
    assert asyncio.get_running_loop().time() - began < 3
    await heavy
    assert preparing.seconds_over_limit == 0


def test_the_third_attempt_is_refused_until_one_ends_or_an_hour_is_over(tmp_path: Path) -> None:
    notes = tmp_path / "attempts"
    assert [prepare_process.begin_attempt(notes, "a") for _ in range(3)] == [True, True, False]
    assert prepare_process.begin_attempt(notes, "b")
    prepare_process.end_attempt(notes, "a")
    assert prepare_process.begin_attempt(notes, "a")
    assert prepare_process.begin_attempt(notes, "a")
    os.utime(notes / "a", (0, 0))
    assert prepare_process.begin_attempt(notes, "a")


def test_notes_that_cannot_be_written_hold_up_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert prepare_process.begin_attempt(tmp_path / "file" / "attempts", "a")
    prepare_process.end_attempt(tmp_path / "file" / "attempts", "a")
