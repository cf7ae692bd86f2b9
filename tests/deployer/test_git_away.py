"""Git and the cluster are independent: one that is unreachable or slow does not block the other."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from gitops_ds import errors, simulator
from gitops_ds.deployer import loop as deployer_loop
from gitops_ds.deployer import revision_selector, state_store
from gitops_ds.deployer.target import DeployTarget
from gitops_ds.git.object_reader import BranchMovement
from gitops_ds.model.cluster import PatchType
from gitops_ds.model.events import deployer
from gitops_ds.model.events.base import Event
from gitops_ds.model.events.commits import VerificationFailed
from gitops_ds.model.objects import DAEMONSET, NODE, CommitId
from gitops_ds.model.sources.signatures import Unverified, Verified
from gitops_ds.model.sources.source_status import Condition
from gitops_ds.model.values import replace
from gitops_ds.pipeline import prepare
from gitops_ds.plan.options import ApplyOptions
from gitops_ds.simulator import NodeSpec, virtual_time
from tests.deployer import test_loop
from tests.deployer.test_drift import changed
from tests.deployer.test_loop import AGENT, History, Scene
from tests.deployer.test_requests import annotate

play = test_loop.play


async def test_while_git_is_unreachable_drift_is_corrected_and_a_deleted_agent_is_created_again(
    scene: Scene, /
) -> None:
    await scene.settle()
    scene.history.unreachable = True
    await scene.settle()
    await changed(scene)
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
    await changed(scene)
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
    await changed(scene)
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
    await changed(scene)
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
    assert any(
        "went back" in event.message
        for event in scene.events
        if isinstance(event, deployer.ReconcileFailed)
    )
    await changed(scene)
    await asyncio.sleep(10)
    assert await scene.image() == "2"
    scene.history.push(AGENT.format(tag="3"))
    await scene.settle()
    assert await scene.image() == "3"


class Signed:
    """A source whose commits are signed but for some."""

    def __init__(self) -> None:
        self.history, self.unsigned, self.movement = History(), set[str](), BranchMovement.FORWARD

    async def verify(self, tip: CommitId, _: CommitId | None) -> Verified | Unverified:
        return (
            Unverified(tip, f"{tip} is not signed")
            if tip in self.unsigned
            else Verified("dev@example.com", "key")
        )

    async def verify_kept(self, commit: CommitId) -> Verified | Unverified:
        return await self.verify(commit, None)

    async def moved(self, last: CommitId, tip: CommitId) -> BranchMovement:
        return self.movement if last != tip else BranchMovement.FORWARD


async def loop_of(
    signed: Signed, cluster: simulator.SimulatedCluster, events: list[Event], *, follows: bool
) -> deployer_loop.Loop:
    history = signed.history
    source = revision_selector.RevisionSource(
        history.tip,
        history.snapshot,
        signed.moved,
        revision_selector.prepare_directly(prepare.prepare),
        signed.verify,
        signed.verify_kept,
        follows_rewrites=follows,
    )
    place, timing = (
        DeployTarget(cluster.client(), "gitops-ds", "test", "memory"),
        deployer_loop.LoopTiming(5.0, cluster.server.now, random.Random(1).random),
    )
    return deployer_loop.Loop(source, place, ApplyOptions(patience=0.0), events.append, timing)


@pytest.mark.parametrize("follows", [True, False])
def test_a_rewrite_waits_for_consent_where_it_is_not_followed(follows: bool) -> None:
    async def main() -> None:
        async with simulator.SimulatedCluster() as cluster:
            cluster.add_nodes([NodeSpec("node-0")])
            signed, events = Signed(), list[Event]()
            signed.history.push(AGENT.format(tag="1"))
            loop = await loop_of(signed, cluster, events, follows=follows)
            running = asyncio.create_task(loop.run())
            scene = Scene(cluster, cluster.client(), signed.history, loop, events)
            await scene.settle()
            signed.movement = BranchMovement.REWRITTEN
            signed.history.push(AGENT.format(tag="2"))
            await scene.settle()
            assert await scene.image() == ("2" if follows else "1")
            failed = [event for event in events if isinstance(event, deployer.ReconcileFailed)]
            assert len(failed) == (0 if follows else 1)
            await changed(scene)
            await asyncio.sleep(10)
            assert await scene.image() == ("2" if follows else "1"), "what was applied is kept up"
            signed.movement = BranchMovement.FORWARD  # as after `gitops-ds apply --revision`
            await scene.settle()
            assert await scene.image() == "2"
            loop.stop()
            await running

    virtual_time.run(main())


def test_a_last_good_commit_that_is_not_signed_is_not_applied() -> None:
    async def main() -> None:
        async with simulator.SimulatedCluster() as cluster:
            cluster.add_nodes([NodeSpec("node-0")])
            signed, events = Signed(), list[Event]()
            first = signed.history.push(AGENT.format(tag="1"))
            loop = await loop_of(signed, cluster, events, follows=True)
            running = asyncio.create_task(loop.run())
            scene = Scene(cluster, cluster.client(), signed.history, loop, events)
            await scene.settle()
            signed.unsigned |= {first, signed.history.push(AGENT.format(tag="2"))}
            await scene.settle()
            await changed(scene)
            await scene.settle()
            assert await scene.image() == "9", (
                "nothing that is not signed is applied, not even again"
            )
            assert any(
                isinstance(event, VerificationFailed) and event.commit == first for event in events
            )
            signed.unsigned.clear()
            await scene.settle()
            assert await scene.image() == "2"
            loop.stop()
            await running

    virtual_time.run(main())


def restarted(
    scene: Scene, signed: Signed | None = None
) -> tuple[deployer_loop.Loop, asyncio.Task[None]]:
    """As after a restart of the service: a new loop on the same cluster."""
    history = scene.history
    source = revision_selector.RevisionSource(
        history.tip,
        history.snapshot,
        history.movement,
        revision_selector.prepare_directly(prepare.prepare),
    )
    if signed is not None:
        source = replace(source, verify=signed.verify, verify_kept=signed.verify_kept)
    timing = deployer_loop.LoopTiming(5.0, scene.cluster.server.now, random.Random(1).random)
    loop = deployer_loop.Loop(
        source,
        DeployTarget(scene.client, "gitops-ds", "test", "memory"),
        ApplyOptions(patience=0.0),
        scene.events.append,
        timing,
    )
    return loop, asyncio.create_task(loop.run())


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
    loop, running = restarted(scene)
    await asyncio.sleep(10)
    assert await healed(scene)
    await changed(scene)
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
    loop.stop()
    await running


async def test_a_commit_that_was_refused_stays_refused_after_a_start_without_git(
    scene: Scene, /
) -> None:
    await scene.settle()
    scene.history.push(AGENT.format(tag="2").replace("containers:", "containerz:"))
    await scene.settle()
    await ended(scene)
    loop, running = restarted(scene)
    await asyncio.sleep(10)
    assert await healed(scene)
    scene.history.unreachable = False
    await asyncio.sleep(600)
    assert loop.status is not None
    assert loop.status.condition is Condition.REJECTED
    loop.stop()
    await running


async def test_a_tip_that_is_the_kept_commit_is_judged_as_any_other_when_git_answers(
    scene: Scene, /
) -> None:
    await scene.settle()
    await ended(scene)
    state = await state_store.load(scene.cluster, "gitops-ds", "test")
    later = scene.history.push(AGENT.format(tag="2"))
    await state_store.save(scene.cluster, "gitops-ds", "test", replace(state, last_attempted=later))
    loop, running = restarted(scene)
    await asyncio.sleep(10)
    assert loop.status is not None
    assert (loop.status.condition, loop.status.newest) == (Condition.UNREACHABLE, later)
    scene.history.at, scene.history.unreachable = 0, False
    loop.request()
    await asyncio.sleep(5)
    assert loop.status.condition is Condition.REWOUND
    loop.stop()
    await running


async def test_holds_and_suspensions_stay_after_a_start_without_git(scene: Scene, /) -> None:
    await scene.settle()
    good, place = scene.history.id(0), (scene.cluster, "gitops-ds", "test")
    await ended(scene)
    for name, value in (("suspend", "true"), ("hold", good)):
        await annotate(scene, **{name: value})
        loop, running = restarted(scene)
        await asyncio.sleep(10)
        assert not await healed(scene), name
        await annotate(scene, **{name: None})
        await asyncio.sleep(30)
        assert await scene.image() == "1", f"as soon as {name} is withdrawn"
        loop.stop()
        await running
    assert (await state_store.load(*place)).last_good == good


async def test_the_last_good_commit_is_verified_before_it_is_kept_after_a_start_without_git(
    scene: Scene, /
) -> None:
    await scene.settle()
    await ended(scene)
    signed = Signed()
    signed.unsigned.add(scene.history.id(0))
    loop, running = restarted(scene, signed)
    await asyncio.sleep(10)
    assert not await healed(scene)
    assert any(isinstance(event, VerificationFailed) for event in scene.events)
    signed.unsigned.clear()
    await asyncio.sleep(600)
    assert await scene.image() == "1"
    loop.stop()
    await running


async def test_a_start_without_git_and_a_last_good_commit_reports_that_nothing_is_corrected(
    scene: Scene, /
) -> None:
    await scene.settle()
    await ended(scene)
    scene.history.files_away = True
    loop, running = restarted(scene)
    await asyncio.sleep(10)
    assert not await healed(scene)
    assert loop.status is not None
    assert loop.status.condition is Condition.UNREACHABLE
    assert (
        f"commit {scene.history.id(0)[:12]}, which was applied last, is not in the local copy"
        in loop.status.message
    )
    assert "no drift is corrected" in loop.status.message
    loop.stop()
    await running


def test_the_end_of_a_loop_leaves_no_task_behind() -> None:
    async def main() -> None:
        async with simulator.SimulatedCluster() as cluster:
            history = History()
            history.push(AGENT.format(tag="1"))
            before = asyncio.all_tasks()
            place = DeployTarget(cluster.client(), "gitops-ds", "test", "memory")
            timing = deployer_loop.LoopTiming(5.0, cluster.server.now, random.Random(1).random)
            source = revision_selector.RevisionSource(
                history.tip,
                history.snapshot,
                history.movement,
                revision_selector.prepare_directly(prepare.prepare),
            )
            for history.answers in (None, asyncio.Event()):
                loop = deployer_loop.Loop(
                    source, place, ApplyOptions(patience=0.0), lambda _: None, timing
                )
                running = asyncio.create_task(loop.run())
                await asyncio.sleep(30)
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running
                assert asyncio.all_tasks() == before, "cancelled and over, not only cancelled"

    virtual_time.run(main())
