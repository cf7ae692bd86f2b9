"""The stages of a commit on servers that behave as GitHub and GitLab document: each is sent
once, in order, through failures.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from pathlib import Path

import pytest

from gitops_ds.core import names
from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.decision import Observation
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.commits import NewCommit
from gitops_ds.core.events.deployer import Reconciled
from gitops_ds.core.events.notifications import NotificationFailed, NotificationSent
from gitops_ds.core.health import Health
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.forges.contract import ForgeKind
from gitops_ds.service.notifications.commit_status import (
    CommitStatusPublisher,
    FollowedCommits,
    StatusRepository,
)
from gitops_ds.service.notifications.outbox import Outbox
from gitops_ds.service.settings.repository import ForgeSettings
from gitops_ds.source.git import address
from gitops_ds.status.agents import Agent
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
    """The current state of one agent."""

    def __init__(self) -> None:
        self.agent: Agent | None = None
        self._changes: asyncio.Queue[Set[Key]] = asyncio.Queue()

    def set_health(self, health: Health) -> None:
        raw = {"metadata": {"labels": {names.OWNER_LABEL: "fleet"}}}
        body = DaemonSet(KEY, "uid", {}, raw, (), annotations={names.COMMIT: COMMIT})
        self.agent = Agent(Observation(0.0, body, ()), health, DeployerState())
        self._changes.put_nowait({KEY})

    def agents(self) -> tuple[Agent, ...]:
        return (self.agent,) if self.agent else ()

    async def changed(self) -> AsyncIterator[Set[Key]]:
        while True:
            yield await self._changes.get()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


Script = Callable[[servers.Server, CommitStatusPublisher, Fleet, list[Event]], Awaitable[None]]


def play(kind: ForgeKind, directory: Path, script: Script, memory: Outbox | None = None) -> Outbox:
    memory = memory or Outbox()
    (directory / "token").write_text("good-token\n")

    async def main() -> None:
        async with FORGES[kind]().running() as server:
            project = "acme/agents" if kind is ForgeKind.GITHUB else "42"
            forge = ForgeSettings(kind, str(directory / "token"), server.url, project)
            events: list[Event] = []
            commits = CommitStatusPublisher(
                StatusRepository("fleet", address.parse("https://example.com/x/y"), forge),
                events.append,
                0.05,
                0.05,
            )
            commits.followed = lambda: FollowedCommits("fleet", "eu-1", {KEY})
            fleet = Fleet()
            running = asyncio.create_task(commits.run(memory, fleet, lambda: None))
            await script(server, commits, fleet, events)
            running.cancel()

    asyncio.run(main())
    return memory


def sent_statuses(server: servers.Server) -> list[tuple[str, str]]:
    return [(status["state"], status["description"]) for status in server.statuses]


def new() -> NewCommit:
    return NewCommit(0.0, COMMIT, "subject", "Ann")


@KINDS
def test_each_stage_is_sent_once_also_after_a_restart(kind: ForgeKind, tmp_path: Path) -> None:
    rolling = "running" if kind is ForgeKind.GITLAB else "pending"
    expected = [("pending", "applying"), (rolling, "rolling out 4/10 nodes")]

    async def starts(
        server: servers.Server, commits: CommitStatusPublisher, fleet: Fleet, events: list[Event]
    ) -> None:
        commits.handle(new())
        await until(lambda: sent_statuses(server) == expected[:1])
        commits.handle(Reconciled(0.0, COMMIT, 1, ()))
        fleet.set_health(ROLLING)
        await until(lambda: sent_statuses(server) == expected)
        assert {status.get("context") or status.get("name") for status in server.statuses} == {
            "gitops-ds/eu-1"
        }

    async def continues(
        server: servers.Server, commits: CommitStatusPublisher, fleet: Fleet, events: list[Event]
    ) -> None:
        commits.handle(new())
        commits.handle(Reconciled(0.0, COMMIT, 0, ()))
        fleet.set_health(ROLLING)
        fleet.set_health(WELL)
        await until(lambda: bool(events))  # the server has it before its answer is here
        assert sent_statuses(server) == [("success", "ops/a healthy on 10 nodes")]
        assert [type(record) for record in events] == [NotificationSent]

    memory = play(kind, tmp_path, starts)
    play(kind, tmp_path, continues, memory)


@KINDS
def test_a_refusal_of_the_forge_is_reported_once_and_retried(
    kind: ForgeKind, tmp_path: Path
) -> None:
    async def script(
        server: servers.Server, commits: CommitStatusPublisher, fleet: Fleet, events: list[Event]
    ) -> None:
        server.faults += [
            Fault(422, body={"message": "no such commit"}, method="POST") for _ in range(4)
        ]
        commits.handle(new())
        await until(lambda: len(events) == 2)
        (complaint, done) = events
        assert isinstance(complaint, NotificationFailed)
        assert "no such commit" in complaint.message
        assert (complaint.receiver, type(done)) == ("commit status of fleet", NotificationSent)

    play(kind, tmp_path, script)


def test_a_replaced_token_is_used_at_once_and_is_in_no_message(tmp_path: Path) -> None:
    async def script(
        server: servers.Server, commits: CommitStatusPublisher, fleet: Fleet, events: list[Event]
    ) -> None:
        (tmp_path / "token").write_text("an-old-token")
        commits.handle(new())
        await until(lambda: bool(events))
        (tmp_path / "token").write_text("not a token")
        await until(lambda: len(events) == 2)
        (tmp_path / "token").write_text("good-token")
        await until(lambda: len(server.statuses) == 1)
        words = " ".join(map(str, events))
        assert "repository.forge.tokenFile" in words
        assert not any(secret in words for secret in ("an-old-token", "not a token", "good-token"))

    play(ForgeKind.GITHUB, tmp_path, script)
