"""Git and the cluster are independent: one that is unreachable or slow does not block the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.events import deployer
from gitops_ds.core.events.commits import VerificationFailed
from gitops_ds.core.objects import DAEMONSET, NODE, CommitId
from gitops_ds.core.sources.signatures import Unverified, Verified
from gitops_ds.core.sources.source_status import Condition
from gitops_ds.core.values import replace
from gitops_ds.deploy import loop as deployer_loop
from gitops_ds.deploy import state_store
from gitops_ds.deploy.revision_selector import RevisionSource
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.source.git.object_reader import BranchMovement
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import virtual_time
from tests.deploy import test_loop
from tests.deploy.test_loop import AGENT, History, Scene, edit, loop_on
from tests.deploy.test_requests import annotate

play = test_loop.play


async def test_while_git_is_unreachable_drift_is_corrected_and_a_deleted_agent_is_created_again(
    scene: Scene, /
) -> None:
    await scene.settle()
    scene.history.unreachable = True
    await scene.settle()
    await edit(scene.cluster)
    await asyncio.sleep(10)
    assert await scene.image() == "1"
    await scene.cluster.delete(DAEMONSET, "default", "agent")
    await asyncio.sleep(10)
    assert await scene.image() == "1"
    assert len(scene.events_of(deployer.ReconcileFailed)) == 1, "published once"
    scene.history.unreachable = False
    scene.history.push(AGENT.format(tag="2"))
    await asyncio.sleep(600)
    assert await scene.image() == "2", "it is looked for without a wish from outside"


async def test_a_git_server_that_hangs_holds_up_no_correction(scene: Scene, /) -> None:
    await scene.settle()
    answer = scene.history.answers = asyncio.Event()
    scene.loop.request()
    await asyncio.sleep(1)
    await edit(scene.cluster)
    await asyncio.sleep(10)
    assert await scene.image() == "1"
    scene.history.push(AGENT.format(tag="2"))
    answer.set()
    await asyncio.sleep(5)
    assert await scene.image() == "2"


async def test_files_that_git_cannot_read_leave_the_previous_commit_in_force(
    scene: Scene, /
) -> None:
    await scene.settle()
    scene.history.files_away = True
    scene.history.push(AGENT.format(tag="2"))
    await scene.settle()
    await edit(scene.cluster)
    await asyncio.sleep(10)
    assert await scene.image() == "1"
    scene.history.files_away = False
    await asyncio.sleep(400)
    assert await scene.image() == "2"


async def test_changes_in_the_cluster_cause_no_git_requests(scene: Scene, /) -> None:
    await scene.settle()
    looks = scene.history.looks
    for number in range(100):
        patch = {
            "spec": {
                "taints": [{"key": "soon", "value": str(number), "effect": "PreferNoSchedule"}]
            }
        }
        await scene.cluster.client("autoscaler").patch(
            NODE, "", "node-0", patch, type=PatchType.MERGE
        )
        await asyncio.sleep(0.6)
    await edit(scene.cluster)
    await asyncio.sleep(5)
    assert await scene.image() == "1"
    assert scene.history.looks == looks


async def test_a_rewind_waits_for_consent_and_the_last_commit_is_kept_up_meanwhile(
    scene: Scene, /
) -> None:
    scene.history.push(AGENT.format(tag="2"))
    await scene.settle()
    scene.history.at = 0
    await scene.settle()
    (failed,) = scene.events_of(deployer.ReconcileFailed)
    assert "the branch went back" in failed.message
    assert "an older commit" in failed.message
    await edit(scene.cluster)
    await asyncio.sleep(10)
    assert await scene.image() == "2"
    scene.history.push(AGENT.format(tag="3"))
    await scene.settle()
    assert await scene.image() == "3"


class Signed(History):
    """Commits that are signed but for some, on a branch whose movement is `moves`."""

    def __init__(self, *, follows: bool = True) -> None:
        super().__init__()
        self.unsigned, self.moves, self.follows = set[str](), BranchMovement.FORWARD, follows

    async def verify(self, tip: CommitId, _: CommitId | None) -> Verified | Unverified:
        return (
            Unverified(tip, f"{tip} is not signed")
            if tip in self.unsigned
            else Verified("dev@example.com", "key")
        )

    async def verify_kept(self, commit: CommitId) -> Verified | Unverified:
        return await self.verify(commit, None)

    async def movement(self, last: CommitId, tip: CommitId) -> BranchMovement:
        return self.moves if last != tip else BranchMovement.FORWARD

    def source(self, **options: Any) -> RevisionSource:
        return replace(
            super().source(**options),
            verify=self.verify,
            verify_kept=self.verify_kept,
            follows_rewrites=self.follows,
        )


@pytest.mark.parametrize("follows", [True, False])
def test_a_rewrite_waits_for_consent_where_it_is_not_followed(follows: bool) -> None:
    signed = Signed(follows=follows)

    async def script(scene: Scene) -> None:
        await scene.settle()
        signed.moves = BranchMovement.REWRITTEN
        signed.push(AGENT.format(tag="2"))
        await scene.settle()
        applied = "2" if follows else "1"
        assert await scene.image() == applied
        assert len(scene.events_of(deployer.ReconcileFailed)) == (0 if follows else 1)
        await edit(scene.cluster)
        await asyncio.sleep(10)
        assert await scene.image() == applied, "what was applied is kept up"
        signed.moves = BranchMovement.FORWARD  # as after `gitops-ds apply --revision`
        await scene.settle()
        assert await scene.image() == "2"

    play(script, history=signed)


class Tagged(Signed):
    """Commits of a moved tag."""

    def source(self, **options: Any) -> RevisionSource:
        return replace(super().source(**options), followed="tag v1")


@pytest.mark.parametrize(
    ("moves", "words"),
    [
        (BranchMovement.REWOUND, ("tag v1 was moved back from ", "until it is at a newer commit")),
        (BranchMovement.REWRITTEN, ("tag v1 was moved from ", "until it is at a descendant of ")),
    ],
)
def test_a_tag_that_was_moved_is_not_called_a_branch(
    moves: BranchMovement, words: tuple[str, ...]
) -> None:
    tagged = Tagged(follows=False)

    async def script(scene: Scene) -> None:
        await scene.settle()
        tagged.moves = moves
        tagged.push(AGENT.format(tag="2"))
        await scene.settle()
        (failed,) = scene.events_of(deployer.ReconcileFailed)
        assert "branch" not in failed.message
        for word in (*words, "`gitops-ds apply --revision "):
            assert word in failed.message

    play(script, history=tagged)


def test_a_last_good_commit_that_is_not_signed_is_not_applied() -> None:
    signed = Signed()

    async def script(scene: Scene) -> None:
        await scene.settle()
        first = signed.id(0)
        signed.unsigned |= {first, signed.push(AGENT.format(tag="2"))}
        await scene.settle()
        await edit(scene.cluster)
        await scene.settle()
        assert await scene.image() == "9", "nothing that is not signed is applied, not even again"
        assert first in {event.commit for event in scene.events_of(VerificationFailed)}
        signed.unsigned.clear()
        await scene.settle()
        assert await scene.image() == "2"

    play(script, history=signed)


@contextlib.asynccontextmanager
async def restarted(scene: Scene) -> AsyncIterator[deployer_loop.Loop]:
    """Ten seconds after a restart of the service: a new loop on the same cluster."""
    options = ApplyOptions(patience=0.0)
    loop = loop_on(scene.cluster, scene.client, scene.history, scene.events, options)
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(10)
    yield loop
    loop.stop()
    await running


async def ended(scene: Scene) -> None:
    """The first loop stops, and Git becomes unreachable."""
    scene.loop.stop()
    await asyncio.sleep(1)
    scene.history.unreachable = True


async def healed(scene: Scene) -> bool:
    """Whether an agent that is deleted now is there ten seconds later, at the version of the last
    good commit.
    """
    await scene.cluster.delete(DAEMONSET, "default", "agent")
    await asyncio.sleep(10)
    try:
        return await scene.image() == "1"
    except errors.NotFound:
        return False


async def test_a_service_that_starts_while_git_is_away_keeps_the_last_good_commit_applied(
    scene: Scene, /
) -> None:
    await scene.settle()
    await ended(scene)
    async with restarted(scene) as loop:
        assert await healed(scene)
        await edit(scene.cluster)
        await asyncio.sleep(10)
        assert await scene.image() == "1"
        assert loop.status is not None
        assert loop.status.condition is Condition.UNREACHABLE
        assert len(scene.events_of(deployer.ReconcileFailed)) == 1, "published once"
        scene.history.unreachable = False
        await asyncio.sleep(600)
        assert loop.status.condition is Condition.SYNCED, "the same commit is the tip"
        scene.history.push(AGENT.format(tag="2"))
        loop.request()
        await asyncio.sleep(5)
        assert await scene.image() == "2"


async def test_a_commit_that_was_refused_stays_refused_after_a_start_without_git(
    scene: Scene, /
) -> None:
    await scene.settle()
    scene.history.push(AGENT.format(tag="2").replace("containers:", "containerz:"))
    await scene.settle()
    await ended(scene)
    async with restarted(scene) as loop:
        assert await healed(scene)
        scene.history.unreachable = False
        await asyncio.sleep(600)
        assert loop.status is not None
        assert loop.status.condition is Condition.REJECTED


async def test_a_tip_that_is_the_kept_commit_is_judged_as_any_other_when_git_answers(
    scene: Scene, /
) -> None:
    await scene.settle()
    await ended(scene)
    state = await state_store.load(scene.cluster, "gitops-ds", "test")
    later = scene.history.push(AGENT.format(tag="2"))
    await state_store.save(scene.cluster, "gitops-ds", "test", replace(state, last_attempted=later))
    async with restarted(scene) as loop:
        assert loop.status is not None
        assert (loop.status.condition, loop.status.newest) == (Condition.UNREACHABLE, later)
        scene.history.at, scene.history.unreachable = 0, False
        loop.request()
        await asyncio.sleep(5)
        assert loop.status.condition is Condition.REWOUND


async def test_holds_and_suspensions_stay_after_a_start_without_git(scene: Scene, /) -> None:
    await scene.settle()
    good, place = scene.history.id(0), (scene.cluster, "gitops-ds", "test")
    await ended(scene)
    for name, value in (("suspend", "true"), ("hold", good)):
        await annotate(scene, **{name: value})
        async with restarted(scene):
            assert not await healed(scene), name
            await annotate(scene, **{name: None})
            await asyncio.sleep(30)
            assert await scene.image() == "1", f"as soon as {name} is withdrawn"
    assert (await state_store.load(*place)).last_good == good


def test_the_last_good_commit_is_verified_before_it_is_kept_after_a_start_without_git() -> None:
    signed = Signed()

    async def script(scene: Scene) -> None:
        await scene.settle()
        await ended(scene)
        signed.unsigned.add(signed.id(0))
        async with restarted(scene):
            assert not await healed(scene)
            assert scene.events_of(VerificationFailed)
            signed.unsigned.clear()
            await asyncio.sleep(600)
            assert await scene.image() == "1"

    play(script, history=signed)


async def test_a_start_without_git_and_a_last_good_commit_reports_that_nothing_is_corrected(
    scene: Scene, /
) -> None:
    await scene.settle()
    await ended(scene)
    scene.history.files_away = True
    async with restarted(scene) as loop:
        assert not await healed(scene)
        assert loop.status is not None
        assert loop.status.condition is Condition.UNREACHABLE
        assert (
            f"commit {scene.history.id(0)[:12]}, which was applied last, is not in the local copy"
            in loop.status.message
        )
        assert "no drift is corrected" in loop.status.message


def test_the_end_of_a_loop_leaves_no_task_behind() -> None:
    async def main() -> None:
        async with simulator.SimulatedCluster() as cluster:
            history, options = History(), ApplyOptions(patience=0.0)
            history.push(AGENT.format(tag="1"))
            before = asyncio.all_tasks()
            for history.answers in (None, asyncio.Event()):
                loop = loop_on(cluster, cluster.client(), history, [], options)
                running = asyncio.create_task(loop.run())
                await asyncio.sleep(30)
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running
                assert asyncio.all_tasks() == before, "cancelled and over, not only cancelled"

    virtual_time.run(main())
