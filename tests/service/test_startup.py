"""The attempts to read a repository before its loop starts, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gitops_ds.checks.engine.contexts import ClusterContext
from gitops_ds.core import errors
from gitops_ds.core.duration import Duration
from gitops_ds.core.events.bus import EventBus
from gitops_ds.core.events.deployer import ReconcileFailed
from gitops_ds.core.objects import CommitId
from gitops_ds.core.sources.bundle import Bundle, ClusterFacts
from gitops_ds.core.sources.source_status import Condition
from gitops_ds.deploy.owner_identity import FoundOwner
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.service import prepare_process
from gitops_ds.service.deployer_context import DeployerContext
from gitops_ds.service.git.git_source import GitSource
from gitops_ds.service.git.git_startup import Startup
from gitops_ds.service.settings.repository import RepositorySettings
from gitops_ds.service.settings.service import Service
from gitops_ds.source.git import address
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.sandbox import memory
from gitops_ds.testing.simulator import SimulatedCluster

URL = "https://git.example.com/fleet"


@dataclass
class Attempts:
    """The times of the attempts, in seconds since the start, and the events meanwhile."""

    times: list[float] = field(default_factory=list)
    events: list[object] = field(default_factory=list)

    @property
    def delays(self) -> list[float]:
        return [after - before for before, after in itertools.pairwise(self.times)]


REFUSED = errors.SourceUnreachable("the server refuses the connection")


class _Failing(GitSource):
    """A repository without a readable commit."""

    attempts: Attempts
    error: errors.SourceError

    async def newest(self) -> CommitId:
        self.attempts.times.append(asyncio.get_running_loop().time())
        raise self.error


def _context(service: Service, cluster: SimulatedCluster, events: EventBus) -> DeployerContext:
    return DeployerContext(
        service=service,
        cluster=cluster,
        unfenced=cluster,
        events=events,
        emit_recorded=events.publish,
        clock=time.time,
    )


@contextlib.asynccontextmanager
async def starting(
    cache: Path, interval: float, retry: float, error: errors.SourceError = REFUSED
) -> AsyncIterator[tuple[Startup, Attempts]]:
    """A start whose attempts fail, with its intervals in seconds; it is stopped afterwards."""
    settings = RepositorySettings(URL, interval=Duration(interval), retry_interval=Duration(retry))
    attempts = Attempts()
    where = address.parse(URL)
    async with SimulatedCluster() as cluster, Repository(where, cache) as repository:
        service = Service(repositories=(settings,))
        context = _context(service, cluster, EventBus(attempts.events.append))
        preparing = prepare_process.Preparing(memory.here())
        source = _Failing(repository, settings, "", preparing)
        source.attempts, source.error = attempts, error
        startup = Startup(context, settings, where)
        running = asyncio.create_task(startup.run(source, lambda: True))
        try:
            yield startup, attempts
        finally:
            startup.stop()
            assert await running is None


class _Named(GitSource):
    """A repository whose newest commit has a name for itself; empty: not the cluster."""

    written: str

    async def newest(self) -> CommitId:
        return CommitId("1" * 40)

    async def identified(self, commit: CommitId) -> Prepared:
        if not self.written:
            raise errors.UsageError("cluster prod is unknown")
        bundle = Bundle(commit, ClusterFacts("prod"), {}, owner_hint=self.written)
        return Prepared(bundle, (), ClusterContext({}))

    async def contains(self, commit: CommitId) -> bool:
        return True


@contextlib.asynccontextmanager
async def named(cache: Path, *names: str) -> AsyncIterator[tuple[list[_Named], list[Startup]]]:
    """The repositories of one service, each with its name, and their starts."""
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(SimulatedCluster())
        urls = [f"{URL}-{number}" for number in range(len(names))]
        each = [
            RepositorySettings(url, interval=Duration(60.0), retry_interval=Duration(1.0))
            for url in urls
        ]
        context = _context(Service(repositories=tuple(each)), cluster, EventBus())
        sources, starts = [], []
        for settings, written in zip(each, names, strict=True):
            where = address.parse(settings.url)
            repository = await stack.enter_async_context(Repository(where, cache))
            source = _Named(repository, settings, "prod", context.preparing)
            source.written = written
            sources.append(source)
            starts.append(Startup(context, settings, where))
        yield sources, starts


async def test_a_second_repository_with_a_name_is_refused_until_it_has_its_own(
    tmp_path: Path,
) -> None:
    async with named(tmp_path, "agents", "agents") as (sources, (first, second)):
        assert await first.run(sources[0], lambda: True) == FoundOwner("agents.prod")
        running = asyncio.create_task(second.run(sources[1], lambda: True))
        await asyncio.sleep(10)
        status = second.status
        assert status is not None
        assert (status.condition, status.id != "agents.prod") == (Condition.REFUSED, True)
        assert f"that of {URL}-0, also followed by this service" in status.message
        sources[1].written = "logs"
        assert await running == FoundOwner("logs.prod")


@pytest.mark.parametrize(
    ("written", "condition"), [("teamA", Condition.REFUSED), ("", Condition.REJECTED)]
)
async def test_content_of_the_only_repository_never_ends_its_service(
    tmp_path: Path, written: str, condition: Condition
) -> None:
    async with named(tmp_path, written) as ([source], [start]):
        running = asyncio.create_task(start.run(source, lambda: True))
        await asyncio.sleep(10)
        assert start.status is not None
        assert start.status.condition is condition
        source.written = "agents"
        assert await running == FoundOwner("agents.prod")


@pytest.mark.parametrize(
    ("interval", "retry", "expected"),
    [
        (60.0, 15.0, [15, 30, 60, 60]),
        (10.0, 15.0, [15, 15, 15]),
        (1.0, 1.0, [1, 1, 1]),
        (3600.0, 60.0, [60, 120, 240, 300, 300]),
    ],
)
async def test_failed_attempts_are_retried_later_each_time_up_to_the_interval(
    tmp_path: Path, interval: float, retry: float, expected: list[float]
) -> None:
    async with starting(tmp_path, interval, retry) as (_, attempts):
        await asyncio.sleep(sum(expected) * 1.1 + 1)
        delays = attempts.delays[: len(expected)]
        assert len(delays) == len(expected)
        for delay, least in zip(delays, expected, strict=True):
            assert least <= delay <= least * 1.1
        assert len(attempts.events) == 1  # the same message is published once


async def test_a_webhook_causes_an_attempt_at_once(tmp_path: Path) -> None:
    async with starting(tmp_path, 600, 300) as (startup, attempts):
        await asyncio.sleep(10)
        assert len(attempts.times) == 1
        startup.wake()
        await asyncio.sleep(1)
        assert attempts.times == [attempts.times[0], 10.0]


async def test_a_stop_ends_the_wait(tmp_path: Path) -> None:
    async with starting(tmp_path, 600, 300) as (_, attempts):
        await asyncio.sleep(10)
    assert asyncio.get_running_loop().time() == 10.0
    assert len(attempts.times) == 1


async def test_the_only_repository_is_read_again_after_a_commit_that_is_too_large(
    tmp_path: Path,
) -> None:
    large = errors.SourceTooLarge("commit abc has a message of more than 1 MiB")
    async with starting(tmp_path, 60.0, 5.0, large) as (startup, attempts):
        await asyncio.sleep(60)
        assert startup.status is not None
        assert startup.status.message == str(large)
    assert len(attempts.times) > 3


async def test_the_only_repository_is_read_again_until_it_has_its_first_commit(
    tmp_path: Path,
) -> None:
    empty = errors.RevisionUnknown(f"{URL} has no commit yet: push a first one")
    async with starting(tmp_path, 60.0, 5.0, empty) as (_, attempts):
        await asyncio.sleep(60)
    assert len(attempts.times) > 3
    (failed,) = attempts.events
    assert isinstance(failed, ReconcileFailed)
    assert "push a first one" in failed.text()
