"""Drift in the loop of the service: by its watches, at an interval, and when a hold ends."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import EventType, PatchType
from gitops_ds.core.events import deployer
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.drift import DriftContested, DriftCorrected, DriftDetected, DriftEvent
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, Body, Resource
from gitops_ds.ownership.options import ApplyOptions
from tests.deploy import test_loop
from tests.deploy.test_loop import AGENT, Scene, edit, loop_on, with_image

play = test_loop.play


async def begun(scene: Scene) -> None:
    scene.history.push(AGENT.format(tag=1))
    await scene.settle()
    assert await scene.image() == "1"


async def test_drift_seen_by_the_watch_is_corrected_two_seconds_later(scene: Scene, /) -> None:
    await begun(scene)
    await edit(scene.cluster)
    await asyncio.sleep(2)  # no reconciliation is requested
    assert await scene.image() == "1"
    assert [type(event) for event in scene.events_of(DriftEvent)] == [
        DriftDetected,
        DriftCorrected,
    ]


@pytest.mark.parametrize("which", [DAEMONSET, CONFIG_MAP])
async def test_our_label_is_restored_when_another_writer_removes_it(
    scene: Scene, /, which: Resource
) -> None:
    await begun(scene)
    nothing = {"metadata": {"labels": {names.OWNER_LABEL: None}}}
    await scene.cluster.client("kubectl-label").patch(
        which, "default", "agent", nothing, type=PatchType.MERGE
    )
    await asyncio.sleep(2)
    assert (await scene.cluster.get(which, "default", "agent"))["metadata"]["labels"][
        names.OWNER_LABEL
    ] == "test"


async def test_a_quiet_cluster_is_compared_at_the_interval_and_not_in_between(
    scene: Scene, /
) -> None:
    await begun(scene)
    await scene.settle()
    before = len(scene.events_of(deployer.Reconciled))
    for _ in range(7):
        await scene.settle()
    assert len(scene.events_of(deployer.Reconciled)) == before
    for _ in range(12):
        await scene.settle()
    assert before + 1 <= len(scene.events_of(deployer.Reconciled)) <= before + 2
    scene.client.count.reset()
    for _ in range(12):
        await scene.settle()
    heartbeats = scene.client.count.by["apply", "configmaps"]
    assert scene.client.count.writes == heartbeats <= 2


def _image(body: Body) -> str:
    return str(body["spec"]["template"]["spec"]["containers"][0]["image"])


async def operator(scene: Scene, *, deletes: bool = False) -> None:
    """Another controller, which puts its image back (or deletes the object) as soon as its watch
    shows another.
    """
    client = scene.cluster.client("their-operator")
    while True:  # a watch ends after some minutes
        async for event in client.watch(DAEMONSET, ""):
            if event.type not in (EventType.ADDED, EventType.MODIFIED) or _image(
                event.object
            ).endswith(":9"):
                continue
            with contextlib.suppress(errors.NotFound):
                if deletes:
                    await client.delete(DAEMONSET, "default", "agent")
                else:
                    await client.patch(
                        DAEMONSET, "default", "agent", with_image("9"), type=PatchType.STRATEGIC
                    )


@pytest.mark.parametrize("deletes", [False, True])
async def test_recurring_drift_is_corrected_with_increasing_delay_and_the_other_writer_is_named(
    scene: Scene, /, deletes: bool
) -> None:
    await begun(scene)
    other = asyncio.create_task(operator(scene, deletes=deletes))
    counts = []
    for _ in range(60):
        scene.client.count.reset()
        await scene.settle()
        counts.append(scene.client.count.total - scene.client.count.of("watch"))
    corrections = scene.events_of(DriftCorrected)
    assert max(counts[1:]) <= 20
    assert 5 <= len(corrections) <= 20
    contested = scene.events_of(DriftContested)
    assert 1 <= len(contested) <= len(corrections)
    if not deletes:
        assert any(
            "their-operator" in one.words for one in contested if isinstance(one, DriftContested)
        )
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
    await asyncio.sleep(700)
    assert await scene.image() == "1", "the last word is Git's, at the interval"
    await edit(scene.cluster)
    await asyncio.sleep(700)
    await edit(scene.cluster)
    await asyncio.sleep(2)
    assert await scene.image() == "1", "what is rare is corrected at once again"


async def test_a_writer_that_writes_all_the_time_costs_no_request_while_the_correction_waits(
    scene: Scene, /
) -> None:
    await begun(scene)
    other = asyncio.create_task(operator(scene))
    await asyncio.sleep(1200)
    scene.client.count.reset()
    for number in range(120):
        note = {"metadata": {"annotations": {"their/heartbeat": str(number)}}}
        await scene.cluster.client("their-operator").patch(
            DAEMONSET, "default", "agent", note, type=PatchType.MERGE
        )
        await asyncio.sleep(1)
    assert scene.client.count.total - scene.client.count.of("watch") <= 20
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)


async def test_another_address_of_the_repository_is_not_drift(scene: Scene, /) -> None:
    await begun(scene)
    await scene.settle()
    scene.loop.stop()
    events: list[Event] = []
    address = "https://elsewhere.example.com/agents.git"
    options, client = ApplyOptions(patience=0.0), scene.cluster.client()
    loop = loop_on(scene.cluster, client, scene.history, events, options, repository=address)
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(30)
    loop.stop()
    await running
    live = await scene.cluster.get(DAEMONSET, "default", "agent")
    assert live["metadata"]["annotations"][names.REPOSITORY] == address
    assert [event for event in events if isinstance(event, DriftEvent)] == []
