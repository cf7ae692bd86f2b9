"""Who may write DaemonSets copies the field manager of gitops-ds too: views that watch count only
what the deployer announced, as those that list do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from gitops_ds.cli.wait import by_health, watched_agents
from gitops_ds.cli.wait.watched_agents import WatchOptions
from gitops_ds.controller.controller import Controller
from gitops_ds.core import errors, names
from gitops_ds.core.cluster import ClusterReader
from gitops_ds.core.decision import Powers
from gitops_ds.core.leadership import Leadership
from gitops_ds.core.objects import CONFIG_MAP, NODE
from gitops_ds.core.rollouts.staged_rollout import HoldKind
from gitops_ds.rollouts.state import keys, rollout_ledger
from gitops_ds.rollouts.state.daemonset_statements import RolloutPhase
from gitops_ds.rollouts.state.rollout_ledger import RolloutLedger
from gitops_ds.status import agent_lists, agents
from gitops_ds.status.agents import Agent
from gitops_ds.status.tracker import StatusTracker
from gitops_ds.testing.simulator.faults import failure
from tests.deploy import rollout_scene
from tests.deploy.rollout_scene import Scene, both
from tests.deploy.test_forged_annotations import AT_ONCE, REPORTED, at_canary, forge

play = rollout_scene.play

ENDED = {keys.TARGET: None, keys.PHASE: RolloutPhase.COMPLETE}
NO_ROLLOUT = {keys.ROLLOUT_POLICY: None, keys.TARGET: None, keys.PHASE: None}


async def waited(scene: Scene, cluster: ClusterReader | None = None) -> list[str]:
    """The messages of a wait that ends by its time limit alone."""
    messages: list[str] = []
    options = by_health.WaitOptions("agent", "default", "", 300.0, clock=scene.cluster.server.now)
    person = cluster or scene.cluster.client("person")
    with pytest.raises(errors.TimedOut):
        await by_health.wait_for_rollout(person, "gitops-ds", options, messages.append)
    return messages


async def listed_agents(scene: Scene) -> tuple[Agent, ...]:
    now = scene.cluster.server.now()
    return await agent_lists.list_agents(scene.cluster.client("person"), "gitops-ds", now)


async def shown(scene: Scene) -> Agent:
    """The agent as `get --watch` shows it."""
    seen: list[Agent] = []
    person, now = scene.cluster.client("person"), scene.cluster.server.now
    options = WatchOptions("gitops-ds", now, lambda _: None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await watched_agents.follow(person, options, seen.extend)
    return seen[-1]


@both
@pytest.mark.play(options=REPORTED)
@pytest.mark.parametrize("forged", [ENDED, NO_ROLLOUT, {keys.ROLLOUT_POLICY: AT_ONCE}])
async def test_a_wait_does_not_end_by_an_annotation_that_the_deployer_did_not_announce(
    scene: Scene, /, powers: Powers, forged: Mapping[str, str | None]
) -> None:
    await at_canary(scene)
    await forge(scene, forged)
    messages = await waited(scene)
    assert "edited" in messages[-1] or "changed" in messages[-1], messages


@both
@pytest.mark.play(options=REPORTED)
async def test_a_view_that_watches_shows_what_a_list_shows(scene: Scene, /, powers: Powers) -> None:
    await at_canary(scene)
    (before,) = await listed_agents(scene)
    await forge(scene, ENDED | dict.fromkeys((names.REPOSITORY, names.PATH, names.COMMIT), "other"))
    watched = await shown(scene)
    (listed,) = await listed_agents(scene)
    assert agents.commit_of(watched) == agents.commit_of(listed) == agents.commit_of(before)
    assert watched.hold == listed.hold
    assert watched.hold is not None
    assert watched.hold.kind is HoldKind.EDITED
    assert watched.seen.daemonset.annotations == listed.seen.daemonset.annotations
    assert watched.owner == listed.owner == "test"


@both
@pytest.mark.play(options=REPORTED)
async def test_a_wait_without_nodes_does_not_end_by_a_forged_annotation(
    scene: Scene, /, powers: Powers
) -> None:
    await at_canary(scene)
    await forge(scene, ENDED)
    refused = failure(403)
    viewer = scene.cluster.client(
        "viewer", lambda request: refused if request.resource == NODE else None
    )
    await waited(scene, viewer)


@both
@pytest.mark.play(options=REPORTED)
async def test_a_replica_that_does_not_lead_shows_what_a_list_shows(
    scene: Scene, /, powers: Powers
) -> None:
    replica = Controller(
        scene.cluster.client("replica"),
        powers,
        lambda _: None,
        clock=scene.cluster.server.now,
        chance=lambda: 0.5,
    )
    replica.attest(RolloutLedger(scene.cluster.client("replica"), "gitops-ds"))
    replica.claim("test")
    replica.follow(Leadership(leads=False))
    tracker = StatusTracker(replica.observer, dict, scene.cluster.server.now)
    running = [asyncio.create_task(one.run()) for one in (replica, tracker)]
    await at_canary(scene)
    await forge(scene, ENDED)
    await asyncio.sleep(10)
    (listed,) = await listed_agents(scene)
    assert tracker.agents()[0].hold == listed.hold
    for one in running:
        one.cancel()


@both
@pytest.mark.parametrize("readable", ["the ConfigMap", "nothing"])
async def test_without_the_announcements_a_view_that_watches_shows_the_annotations(
    scene: Scene, /, powers: Powers, readable: str
) -> None:
    scene.kill()
    refused = failure(403)
    if readable == "the ConfigMap":
        await scene.cluster.delete(CONFIG_MAP, "gitops-ds", rollout_ledger.CONFIG_MAP_NAME)
    person = scene.cluster.client(
        "person",
        lambda request: (
            refused if readable == "nothing" and request.resource == CONFIG_MAP else None
        ),
    )
    options = by_health.WaitOptions("agent", "default", "", 300.0, clock=scene.cluster.server.now)
    agent = await by_health.wait_for_rollout(person, "gitops-ds", options, lambda _: None)
    assert agent.seen.daemonset.unannounced == ()
