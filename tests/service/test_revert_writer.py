"""The writer of reverts on a real repository: what it refuses, and two clusters at once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core.duration import Duration
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.rollouts import RevertCommitted, RevertFailed, RevertProposed
from gitops_ds.core.objects import CommitId, Digest, Key
from gitops_ds.core.rollouts.halted_rollout import HaltedRollout
from gitops_ds.core.rollouts.rollout_policy import Revert
from gitops_ds.core.rollouts.staged_rollout import Halt
from gitops_ds.core.rollouts.stopped_rollouts import StoppedRollouts
from gitops_ds.core.rollouts.template_cause import RenderedCommit
from gitops_ds.core.values import replace
from gitops_ds.deploy.cause_finder import CauseFinder, CommitSource
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.forges.contract import ForgeKind
from gitops_ds.kube.client.supervisor import ended
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.service.rollouts.repository_context import RepositoryContext
from gitops_ds.service.rollouts.revert_writer import RevertWriter
from gitops_ds.service.settings.repository import ForgeSettings, RepositorySettings
from gitops_ds.source.git import address
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.render import bundle as rendering
from tests import gitservers
from tests.http_servers import Reply, http_server
from tests.plan.world import daemonset

AGENT = Key("apps", "DaemonSet", "default", "agent")
FILE = "agents/agent/agent-ds.yaml"


def files(tag: int, **more: str | None) -> dict[str, str | bytes | None]:
    body = daemonset("agent", f"registry.example.com/agent:{tag}", "default")
    return {"gitops-ds.yaml": "version: v1\n", FILE: json.dumps(body, indent=2), **more}


@dataclass
class Writer:
    """A writer of one cluster, with its own cache, and what it emitted."""

    repository: Repository
    settings: RepositorySettings
    stopped: StoppedRollouts | None = None
    events: list[Event] = field(default_factory=list)

    async def prepared(self, commit: CommitId) -> Prepared:
        return prepare.prepare(await self.repository.snapshot(commit))

    async def render(self, commits: Sequence[CommitId]) -> dict[CommitId, RenderedCommit]:
        return {
            commit: template_digests.rendered(
                rendering.render(await self.repository.snapshot(commit))
            )
            for commit in commits
        }

    async def halted(self, bad: str, since: str, **more: Any) -> HaltedRollout:
        """The rollout of the template of a commit, halted long ago."""
        await self.repository.fetch(CommitId(bad))
        manifest = (await self.prepared(CommitId(bad))).bundle.manifests[AGENT]
        rollout = HaltedRollout(
            daemonset=AGENT,
            uid="u",
            commit=CommitId(bad),
            since=since,
            template=Digest(template_digests.digest(manifest)),
            files=frozenset({FILE, "agents/agent"}),
            own=frozenset({FILE, "agents/agent"}),
            halt=Halt(1767225600.0, "canary", "CrashLoopBackOff on n1"),
            revert=Revert(after=Duration(60)),
        )
        self.stopped = StoppedRollouts(CommitId(bad), (replace(rollout, **more),))
        return rollout

    def writer(self, emit: Callable[[Event], None]) -> RevertWriter:
        return RevertWriter(
            RepositoryContext(
                repository=self.repository,
                settings=self.settings,
                emit=emit,
                clock=time.time,
                chance=lambda: 0.0,
                stopped_rollouts=lambda: self.stopped,
            ),
            self.prepared,
            CauseFinder(CommitSource(self.repository.line, self.render)),
            lambda _: None,
        )

    async def run(self) -> Event:
        """The first event that it emits."""
        emitted = asyncio.Event()

        def emit(event: Event) -> None:
            self.events.append(event)
            emitted.set()

        writer = self.writer(emit)
        task = asyncio.create_task(writer.run())
        try:
            await emitted.wait()
        finally:
            await ended(task)
        return self.events[0]


def play(
    script: Callable[[gitservers.Upstream, Writer, Writer], Awaitable[None]],
    tmp_path: Path,
    **more: Any,
) -> None:
    async def main() -> None:
        upstream = gitservers.Upstream(tmp_path / "fleet.git")
        where = address.parse(str(upstream.path), allow_local=True)
        options = {"push": True, **more}
        settings = RepositorySettings(url=str(upstream.path), allow_local=True, **options)
        async with (
            Repository(where, tmp_path / "one") as one,
            Repository(where, tmp_path / "two") as two,
        ):
            await script(upstream, Writer(one, settings), Writer(two, settings))

    asyncio.run(main())


async def test_two_clusters_write_one_revert(
    upstream: gitservers.Upstream, one: Writer, two: Writer, /, tmp_path: Path
) -> None:
    since = upstream.commit(files(1))
    bad = upstream.commit(files(2), "Agent 2")
    await asyncio.gather(one.halted(bad, since), two.halted(bad, since))
    event = await one.run()
    assert isinstance(event, RevertCommitted)
    assert upstream.git("rev-parse", "main") == event.revert
    assert upstream.git("show", f"main:{FILE}") == upstream.git("show", f"{since}:{FILE}")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await two.run()
    assert upstream.git("log", "--format=%s").splitlines() == [
        'Revert "Agent 2"',
        "Agent 2",
        "change",
    ]


def test_a_pull_request_that_the_forge_refused_is_opened_later(tmp_path: Path) -> None:
    bodies: list[str] = []

    def refuses_the_first(_: object, body: bytes) -> Reply:
        bodies.append(json.loads(body)["body"])
        answer = json.dumps({"html_url": "https://git.example.com/pulls/1"}).encode()
        return Reply(answer, 403 if len(bodies) == 1 else 201)

    async def script(upstream: gitservers.Upstream, one: Writer, two: Writer) -> None:
        since = upstream.commit(files(1))
        bad = upstream.commit(files(2), "Agent 2")
        halt = Halt(1767225600.0, "canary", "![x](https://evil.example.com)")
        how = Revert(after=Duration(60), how="pull-request")
        await one.halted(bad, since, revert=how, halt=halt)
        writer = one.writer(one.events.append)
        assert one.stopped is not None
        (halted,) = one.stopped.halted
        for _ in range(2):
            await writer._attempt(halted)
        failed, proposed = one.events
        assert isinstance(failed, RevertFailed)
        assert isinstance(proposed, RevertProposed)
        assert proposed.url == "https://git.example.com/pulls/1"
        first, *_, last = bodies[1].splitlines()
        assert (first, last) == ("```text", "```")

    (tmp_path / "token").write_text("token")
    with http_server(refuses_the_first) as url:
        forge = ForgeSettings(
            ForgeKind.GITEA, str(tmp_path / "token"), url, "team/fleet", allow_http=True
        )
        play(script, tmp_path, forge=forge)


@pytest.mark.parametrize("same", [True, False])
def test_an_existing_branch_is_a_proposal_only_with_the_same_changes(
    tmp_path: Path, same: bool
) -> None:
    async def script(upstream: gitservers.Upstream, one: Writer, two: Writer) -> None:
        since = upstream.commit(files(1))
        bad = upstream.commit(files(2), "Agent 2")
        branch = f"gitops-ds/revert-{bad[:12]}-agent"
        upstream.git("checkout", "--quiet", "-b", branch)
        upstream.commit(files(1) if same else files(666), 'Revert "Agent 2"')
        upstream.git("checkout", "--quiet", "main")
        await one.halted(bad, since, revert=Revert(after=Duration(60), how="pull-request"))
        event = await one.run()
        if same:
            assert isinstance(event, RevertProposed)
        else:
            assert isinstance(event, RevertFailed)
            assert f"branch {branch} exists with other changes" in event.message

    (tmp_path / "token").write_text("token")
    forge = ForgeSettings(
        ForgeKind.GITEA, str(tmp_path / "token"), "https://127.0.0.1:1", "team/fleet"
    )
    play(script, tmp_path, forge=forge)


EMPTY: dict[str, str | bytes | None] = {"gitops-ds.yaml": "version: v1\n"}


@pytest.mark.parametrize(
    ("before", "after", "settings", "message"),
    [
        (
            files(2),
            files(2, **{"agents/agent/README.md": "new"}),
            {},
            "is known to give the halted template",
        ),
        (EMPTY, files(2), {}, "would delete DaemonSet default/agent"),
        (files(1), files(2), {"tag": "v1"}, "follows a tag or a commit"),
        (files(1), files(2), {"push": False}, "set repository.push"),
    ],
    ids=["same template", "deletion", "no branch", "no right to push"],
)
def test_a_revert_that_cannot_be_pushed_is_an_event_with_the_command(
    tmp_path: Path,
    before: dict[str, str | bytes | None],
    after: dict[str, str | bytes | None],
    settings: dict[str, Any],
    message: str,
) -> None:
    async def script(upstream: gitservers.Upstream, one: Writer, two: Writer) -> None:
        since = upstream.commit(before)
        bad = upstream.commit(after)
        await one.halted(bad, since)
        event = await one.run()
        assert isinstance(event, RevertFailed)
        assert message in event.message
        assert event.command == f"git revert {bad[:12]} && git push origin HEAD:BRANCH"
        assert upstream.git("rev-parse", "main") == bad

    play(script, tmp_path, **settings)


async def test_without_the_previous_commit_the_parent_is_restored(
    upstream: gitservers.Upstream, one: Writer, two: Writer, /, tmp_path: Path
) -> None:
    upstream.commit(files(1))
    bad = upstream.commit(files(2))
    await one.halted(bad, "")
    assert isinstance(await one.run(), RevertCommitted)


async def test_nothing_is_written_by_policy_none_and_on_a_standby(
    upstream: gitservers.Upstream, one: Writer, two: Writer, /, tmp_path: Path
) -> None:
    since = upstream.commit(files(1))
    bad = upstream.commit(files(2))
    await one.halted(bad, since, revert=Revert(after=Duration(0), how="none"))
    two.stopped = None
    for writer in (one, two):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await writer.run()
    assert upstream.git("rev-parse", "main") == bad


def of(name: str, tag: int) -> str:
    return json.dumps(daemonset(name, f"registry.example.com/{name}:{tag}", "default"), indent=2)


POOL = "pools: {gpu: {match: [{key: gpu, in: [a100]}], nodes: 3}}\n"
BESIDE = Key("apps", "DaemonSet", "default", "beside")
BASE: dict[str, str | bytes | None] = {
    **files(1),
    "clusters/main.yaml": "namespace: default\n",
    "agents/beside/ds.yaml": of("beside", 1),
}


@dataclass
class RevertScene:
    """The commits after BASE, of which the last applied one is that before `polled`."""

    commits: list[dict[str, str | bytes | None]]
    left: dict[str, str]  # files that the revert leaves
    reverts: list[int]  # the commits that it takes back, newest first
    part: bool = False


SCENES = {
    "one commit": RevertScene([files(2)], {}, [0]),
    "a pool of another commit": RevertScene(
        [{"clusters/main.yaml": f"namespace: default\n{POOL}"}, files(2)],
        {"clusters/main.yaml": f"namespace: default\n{POOL}"},
        [1],
    ),
    "another agent before": RevertScene(
        [{"agents/beside/ds.yaml": of("beside", 2)}, files(2)],
        {"agents/beside/ds.yaml": of("beside", 2)},
        [1],
    ),
    "another agent later": RevertScene(
        [files(2), {"agents/beside/ds.yaml": of("beside", 2)}],
        {"agents/beside/ds.yaml": of("beside", 2)},
        [0],
    ),
    "a file without effect": RevertScene(
        [{"agents/agent/README.md": "new"}, files(2)], {"agents/agent/README.md": "new"}, [1]
    ),
    "good and bad in one commit": RevertScene(
        [files(2, **{"agents/beside/ds.yaml": of("beside", 2), "README.md": "two"})],
        {"agents/beside/ds.yaml": of("beside", 2), "README.md": "two"},
        [0],
        part=True,
    ),
    "two commits of the agent": RevertScene([files(3), files(2)], {}, [1, 0]),
    "a revert of a revert": RevertScene([files(2), files(1), files(2)], {}, [2]),
}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_a_revert_takes_back_the_commits_of_the_template_and_nothing_else(
    tmp_path: Path, scene: RevertScene
) -> None:
    async def script(upstream: gitservers.Upstream, one: Writer, two: Writer) -> None:
        since = upstream.commit(BASE)
        ids = [upstream.commit(f, f"Change {n}") for n, f in enumerate(scene.commits)]
        tip = ids[-1]
        before = {
            name: upstream.git("show", f"{since}:{name}") for name in BASE if name not in scene.left
        }
        await one.halted(tip, since)
        event = await one.run()
        assert isinstance(event, RevertCommitted), event
        subjects = upstream.git("log", "--format=%s", f"{tip}..main").splitlines()
        what = "Revert a part of" if scene.part else "Revert"
        assert subjects == [f'{what} "Change {n}"' for n in reversed(scene.reverts)]
        now = {name: upstream.git("show", f"main:{name}") for name in {**before, **scene.left}}
        assert now == {**before, **{name: text.strip() for name, text in scene.left.items()}}
        for number in scene.reverts:
            assert f'{ids[number][:12]} "Change {number}" by Ada' in event.taken_back
        assert ("the other changes stay" in event.taken_back) is scene.part
        trailers = upstream.git("log", "-1", "--format=%(trailers:only)", "main").splitlines()
        assert {f"Gitops-Ds-Reverts: {ids[number]}" for number in scene.reverts} <= set(trailers)

    play(script, tmp_path)


async def test_a_merge_is_reverted_by_what_it_brought_to_the_branch(
    upstream: gitservers.Upstream, one: Writer, two: Writer, /, tmp_path: Path
) -> None:
    since = upstream.commit(BASE)
    upstream.git("checkout", "--quiet", "-b", "side")
    upstream.commit(files(2), "Agent 2")
    upstream.git("checkout", "--quiet", "main")
    upstream.commit({"agents/beside/ds.yaml": of("beside", 2)}, "Beside 2")
    upstream.git("merge", "--quiet", "--no-ff", "-m", "Merge side", "side")
    bad = upstream.git("rev-parse", "main")
    await one.halted(bad, since)
    event = await one.run()
    assert isinstance(event, RevertCommitted), event
    assert upstream.git("log", "-1", "--format=%s", "main") == 'Revert "Merge side"'
    assert upstream.git("show", f"main:{FILE}") == upstream.git("show", f"{since}:{FILE}")
    assert upstream.git("show", "main:agents/beside/ds.yaml") == of("beside", 2)


async def test_a_revert_that_takes_back_a_proven_template_needs_a_person(
    upstream: gitservers.Upstream, one: Writer, two: Writer, /, tmp_path: Path
) -> None:
    def both(tag: int) -> dict[str, str | bytes | None]:
        text = "\n---\n".join((of("agent", tag), of("beside", tag)))
        return {"gitops-ds.yaml": "version: v1\n", "agents/agent/both.yaml": text}

    since = upstream.commit(both(1))
    bad = upstream.commit(both(2), "Both 2")
    await one.halted(bad, since, own=frozenset({"agents/agent"}))
    manifests = (await one.prepared(CommitId(bad))).bundle.manifests
    assert one.stopped is not None
    proven = {BESIDE: template_digests.digest(manifests[BESIDE])}
    one.stopped = replace(one.stopped, proven=proven)
    event = await one.run()
    assert isinstance(event, RevertFailed)
    assert "take back the proven template of DaemonSet default/beside" in event.message
    assert upstream.git("rev-parse", "main") == bad
    two.stopped = replace(one.stopped, proven={})  # a failure of both
    event = await two.run()
    assert isinstance(event, RevertCommitted), event
    assert "also changed: DaemonSet default/beside" in event.taken_back
