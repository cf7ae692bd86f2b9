"""Limits of the preparation of a commit: the time of helm and kustomize in it, and attempts that
ended the process.
"""

from __future__ import annotations

import os
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
    job = Job(
        where=address.parse("https://git.example.com/fleet"),
        cache=Path("cache"),
        limits=DEFAULT,
        allowed=replace(PROGRAMS, seconds=seconds),
        commit=CommitId("0" * 40),
        path="",
        cluster="",
        clean={},
    )
    assert Preparing(memory.UNLIMITED).attempts(job) == (15, longest)


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
