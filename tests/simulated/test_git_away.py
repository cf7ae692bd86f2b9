"""Git and the cluster are looked at apart: one that is away or slow holds up nothing of the other."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from gitops_ds.cluster import simulated
from gitops_ds.cluster.simulated import NodeSpec, virtual_time
from gitops_ds.controller import choosing, sync
from gitops_ds.controller.deploy import Asked, Place
from gitops_ds.model import deployment
from gitops_ds.model.cluster import PatchType
from gitops_ds.model.objects import DAEMONSET, NODE, CommitId
from gitops_ds.model.record import Record
from gitops_ds.model.trust import Unverified, VerificationFailed, Verified
from gitops_ds.pipeline import prepare
from gitops_ds.source.reading import Movement
from tests.simulated.test_deployer_drift import changed
from tests.simulated.test_deployer_loop import AGENT, History, Scene, play


def test_while_git_is_away_drift_is_corrected_and_a_deleted_agent_is_made_anew() -> None:
    async def script(scene: Scene) -> None:
        await scene.settle()
        scene.history.unreachable = True
        await scene.settle()
        await changed(scene)
        await asyncio.sleep(10)
        assert await scene.image() == "1"
        await scene.cluster.delete(DAEMONSET, "default", "agent")
        await asyncio.sleep(10)
        assert await scene.image() == "1"
        assert len(scene.told(deployment.PassFailed)) == 1, "told once"
        scene.history.unreachable = False
        scene.history.push(AGENT.format(tag="2"))
        await asyncio.sleep(600)
        assert await scene.image() == "2", "it is looked for without a wish from outside"

    play(script)


def test_a_git_server_that_hangs_holds_up_no_correction() -> None:
    async def script(scene: Scene) -> None:
        await scene.settle()
        answer = scene.history.answers = asyncio.Event()
        scene.loop.ask()
        await asyncio.sleep(1)
        await changed(scene)
        await asyncio.sleep(10)
        assert await scene.image() == "1"
        scene.history.push(AGENT.format(tag="2"))
        answer.set()
        await asyncio.sleep(5)
        assert await scene.image() == "2"

    play(script)


def test_files_that_git_does_not_give_leave_the_commit_before_in_force() -> None:
    async def script(scene: Scene) -> None:
        await scene.settle()
        scene.history.files_away = True
        scene.history.push(AGENT.format(tag="2"))
        await scene.settle()
        await changed(scene)
        await asyncio.sleep(10)
        assert await scene.image() == "1"
        scene.history.files_away = False
        await asyncio.sleep(400)
        assert await scene.image() == "2"

    play(script)


def test_changes_in_the_cluster_do_not_ask_git() -> None:
    async def script(scene: Scene) -> None:
        await scene.settle()
        looks = scene.history.looks
        for number in range(100):
            patch = {"spec": {"taints": [{"key": "soon", "value": str(number), "effect": "PreferNoSchedule"}]}}
            await scene.cluster.client("autoscaler").patch(NODE, "", "node-0", patch, type=PatchType.MERGE)
            await asyncio.sleep(0.6)
        await changed(scene)
        await asyncio.sleep(5)
        assert await scene.image() == "1"
        assert scene.history.looks == looks

    play(script)


def test_a_rewind_waits_for_consent_and_the_last_commit_is_kept_up_meanwhile() -> None:
    async def script(scene: Scene) -> None:
        scene.history.push(AGENT.format(tag="2"))
        await scene.settle()
        scene.history.at = 0
        await scene.settle()
        assert any("went back" in told.message for told in scene.heard if isinstance(told, deployment.PassFailed))
        await changed(scene)
        await asyncio.sleep(10)
        assert await scene.image() == "2"
        scene.history.push(AGENT.format(tag="3"))
        await scene.settle()
        assert await scene.image() == "3"

    play(script)


class Signed:
    """A source whose commits are signed but for some."""

    def __init__(self) -> None:
        self.history, self.unsigned, self.movement = History(), set[str](), Movement.FORWARD

    async def verify(self, tip: CommitId, _: CommitId | None) -> Verified | Unverified:
        return Unverified(tip, f"{tip} is not signed") if tip in self.unsigned else Verified("dev@example.com", "key")

    async def verify_kept(self, commit: CommitId) -> Verified | Unverified:
        return await self.verify(commit, None)

    async def moved(self, last: CommitId, tip: CommitId) -> Movement:
        return self.movement if last != tip else Movement.FORWARD


async def loop_of(signed: Signed, cluster: simulated.Cluster, heard: list[Record], *, follows: bool) -> sync.Loop:
    history = signed.history
    source = choosing.Source(
        history.tip,
        history.snapshot,
        signed.moved,
        choosing.at_once(prepare.prepare),
        signed.verify,
        signed.verify_kept,
        follows_rewrites=follows,
    )
    place, timing = (
        Place(cluster.client(), "gitops-ds", "test", "memory"),
        sync.Timing(5.0, cluster.server.now, random.Random(1).random),
    )
    return sync.Loop(source, place, Asked(patience=0.0), heard.append, timing)


@pytest.mark.parametrize("follows", [True, False])
def test_a_rewrite_waits_for_consent_where_it_is_not_followed(follows: bool) -> None:
    async def main() -> None:
        async with simulated.Cluster() as cluster:
            cluster.add_nodes([NodeSpec("node-0")])
            signed, heard = Signed(), list[Record]()
            signed.history.push(AGENT.format(tag="1"))
            loop = await loop_of(signed, cluster, heard, follows=follows)
            running = asyncio.create_task(loop.run())
            scene = Scene(cluster, cluster.client(), signed.history, loop, heard)
            await scene.settle()
            signed.movement = Movement.REWRITTEN
            signed.history.push(AGENT.format(tag="2"))
            await scene.settle()
            assert await scene.image() == ("2" if follows else "1")
            failed = [told for told in heard if isinstance(told, deployment.PassFailed)]
            assert len(failed) == (0 if follows else 1)
            await changed(scene)
            await asyncio.sleep(10)
            assert await scene.image() == ("2" if follows else "1"), "what was applied is kept up"
            signed.movement = Movement.FORWARD  # as after `gitops-ds apply --revision`
            await scene.settle()
            assert await scene.image() == "2"
            loop.stop()
            await running

    virtual_time.run(main())


def test_a_last_good_commit_that_is_not_signed_is_not_applied() -> None:
    async def main() -> None:
        async with simulated.Cluster() as cluster:
            cluster.add_nodes([NodeSpec("node-0")])
            signed, heard = Signed(), list[Record]()
            first = signed.history.push(AGENT.format(tag="1"))
            loop = await loop_of(signed, cluster, heard, follows=True)
            running = asyncio.create_task(loop.run())
            scene = Scene(cluster, cluster.client(), signed.history, loop, heard)
            await scene.settle()
            signed.unsigned |= {first, signed.history.push(AGENT.format(tag="2"))}
            await scene.settle()
            await changed(scene)
            await scene.settle()
            assert await scene.image() == "9", "nothing that is not signed is applied, not even again"
            assert any(isinstance(told, VerificationFailed) and told.commit == first for told in heard)
            signed.unsigned.clear()
            await scene.settle()
            assert await scene.image() == "2"
            loop.stop()
            await running

    virtual_time.run(main())


def test_the_end_of_a_loop_leaves_no_task_behind() -> None:
    async def main() -> None:
        async with simulated.Cluster() as cluster:
            history = History()
            history.push(AGENT.format(tag="1"))
            before = asyncio.all_tasks()
            place = Place(cluster.client(), "gitops-ds", "test", "memory")
            timing = sync.Timing(5.0, cluster.server.now, random.Random(1).random)
            source = choosing.Source(history.tip, history.snapshot, history.movement, choosing.at_once(prepare.prepare))
            for history.answers in (None, asyncio.Event()):
                loop = sync.Loop(source, place, Asked(patience=0.0), lambda _: None, timing)
                running = asyncio.create_task(loop.run())
                await asyncio.sleep(30)
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running
                assert asyncio.all_tasks() == before, "cancelled and over, not only cancelled"

    virtual_time.run(main())
