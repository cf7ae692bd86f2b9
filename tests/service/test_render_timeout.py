"""The time limit of helm and kustomize in the service, and that of a commit around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops_ds import errors
from gitops_ds.git import address
from gitops_ds.model.objects import CommitId
from gitops_ds.model.sources.repository_limits import DEFAULT, PROGRAMS
from gitops_ds.model.values import replace
from gitops_ds.pipeline import open_repository
from gitops_ds.renderers.process import RENDER
from gitops_ds.sandbox import memory
from gitops_ds.service.prepare_process import Preparing
from gitops_ds.service.prepare_worker import Job
from gitops_ds.settings import service


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
