"""The stages of a commit on servers that behave as GitHub and GitLab document: through failures,
said once each, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from pathlib import Path

import pytest

from gitops_ds.fleet.agents import Agent
from gitops_ds.forges.contract import ForgeKind
from gitops_ds.git import address
from gitops_ds.model import names
from gitops_ds.model.daemonset import DaemonSet
from gitops_ds.model.decision import Observation
from gitops_ds.model.deployment import DeployerState
from gitops_ds.model.events.base import Event
from gitops_ds.model.events.commits import NewCommit
from gitops_ds.model.events.deployer import Reconciled
from gitops_ds.model.events.notifications import NotificationFailed, NotificationSent
from gitops_ds.model.health import Health
from gitops_ds.model.objects import CommitId, Key
from gitops_ds.service.notifications.commit_status import (
    CommitStatusPublisher,
    FollowedCommits,
    StatusRepository,
)
from gitops_ds.service.notifications.outbox import Outbox
from gitops_ds.settings.notify import ForgeSettings
from tests.forges import servers
from tests.forges.servers import Fault
from tests.notifications.test_commit_progress import ROLLING, WELL

KEY = Key("apps", "DaemonSet", "ops", "a")
COMMIT = CommitId("c" * 40)
FORGES: dict[ForgeKind, Callable[[], servers.Server]] = {
    ForgeKind.GITHUB: servers.GitHub,
    ForgeKind.GITLAB: servers.GitLab,
}
KINDS = pytest.mark.parametrize("kind", list(FORGES))


class Fleet:
    """One agent, as it stands now."""

    def __init__(self) -> None:
        self.agent: Agent | None = None
        self._changes: asyncio.Queue[Set[Key]] = asyncio.Queue()

    def stands(self, health: Health) -> None:
        raw = {"metadata": {"labels": {names.OWNER_LABEL: "fleet"}}}
        body = DaemonSet(KEY, "uid", {}, raw, (), annotations={names.COMMIT: COMMIT})
        self.agent = Agent(Observation(0.0, body, ()), health, DeployerState())
        self._changes.put_nowait({KEY})

    def agents(self) -> tuple[Agent, ...]:
        return (self.agent,) if self.agent else ()

    async def changed(self) -> AsyncIterator[Set[Key]]:
        while True:
            yield await self._changes.get()


async def until(told: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not told():
            await asyncio.sleep(0.02)


Script = Callable[[servers.Server, CommitStatusPublisher, Fleet, list[Event]], Awaitable[None]]


def play(kind: ForgeKind, directory: Path, script: Script, memory: Outbox | None = None) -> Outbox:
    memory = memory or Outbox()
    (directory / "token").write_text("good-token\n")

    async def main() -> None:
        async with FORGES[kind]().running() as server:
            project = "acme/agents" if kind is ForgeKind.GITHUB else "42"
            forge = ForgeSettings(kind, str(directory / "token"), server.url, project)
            told: list[Event] = []
            commits = CommitStatusPublisher(
                StatusRepository("fleet", address.parse("https://example.com/x/y"), forge),
                told.append,
                0.05,
                0.05,
            )
            commits.followed = lambda: FollowedCommits("fleet", "eu-1", {KEY})
            fleet = Fleet()
            running = asyncio.create_task(commits.run(memory, fleet, lambda: None))
            await script(server, commits, fleet, told)
            running.cancel()

    asyncio.run(main())
    return memory


def said(server: servers.Server) -> list[tuple[str, str]]:
    return [(one["state"], one["description"]) for one in server.statuses]


def new() -> NewCommit:
    return NewCommit(0.0, COMMIT, "subject", "Ann")


@KINDS
def test_each_stage_comes_once_also_after_a_restart(kind: ForgeKind, tmp_path: Path) -> None:
    rolling = "running" if kind is ForgeKind.GITLAB else "pending"
    expected = [("pending", "applying"), (rolling, "rolling out 4/10 nodes")]

    async def begins(
        server: servers.Server, commits: CommitStatusPublisher, fleet: Fleet, told: list[Event]
    ) -> None:
        commits.handle(new())
        await until(lambda: said(server) == expected[:1])
        commits.handle(Reconciled(0.0, COMMIT, 1, ()))
        fleet.stands(ROLLING)
        await until(lambda: said(server) == expected)
        assert {one.get("context") or one.get("name") for one in server.statuses} == {
            "gitops-ds/eu-1"
        }

    async def goes_on(
        server: servers.Server, commits: CommitStatusPublisher, fleet: Fleet, told: list[Event]
    ) -> None:
        commits.handle(new())
        commits.handle(Reconciled(0.0, COMMIT, 0, ()))
        fleet.stands(ROLLING)
        fleet.stands(WELL)
        await until(lambda: bool(told))  # the server has it before its answer is here
        assert said(server) == [("success", "ops/a healthy on 10 nodes")]
        assert [type(record) for record in told] == [NotificationSent]

    memory = play(kind, tmp_path, begins)
    play(kind, tmp_path, goes_on, memory)


@KINDS
def test_a_forge_that_refuses_is_told_once_and_asked_again(kind: ForgeKind, tmp_path: Path) -> None:
    async def script(
        server: servers.Server, commits: CommitStatusPublisher, fleet: Fleet, told: list[Event]
    ) -> None:
        server.faults += [
            Fault(422, body={"message": "no such commit"}, method="POST") for _ in range(4)
        ]
        commits.handle(new())
        await until(lambda: len(told) == 2)
        (complaint, done) = told
        assert isinstance(complaint, NotificationFailed)
        assert "no such commit" in complaint.message
        assert (complaint.receiver, type(done)) == ("commit status of fleet", NotificationSent)

    play(kind, tmp_path, script)


def test_a_token_that_is_exchanged_counts_at_once_and_is_in_no_word(tmp_path: Path) -> None:
    async def script(
        server: servers.Server, commits: CommitStatusPublisher, fleet: Fleet, told: list[Event]
    ) -> None:
        (tmp_path / "token").write_text("an-old-token")
        commits.handle(new())
        await until(lambda: bool(told))
        (tmp_path / "token").write_text("not a token")
        await until(lambda: len(told) == 2)
        (tmp_path / "token").write_text("good-token")
        await until(lambda: len(server.statuses) == 1)
        words = " ".join(map(str, told))
        assert "repository.forge.tokenFile" in words
        assert not any(secret in words for secret in ("an-old-token", "not a token", "good-token"))

    play(ForgeKind.GITHUB, tmp_path, script)
