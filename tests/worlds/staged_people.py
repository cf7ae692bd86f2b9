"""What people do with kubectl and the command line in a world with staged rollouts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from gitops_ds.cli.requests import held_rollouts
from gitops_ds.core import names
from gitops_ds.core.cluster import Propagation
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, POD, Body
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.kube.apimachinery import revisions
from gitops_ds.rollouts.state import keys
from tests.worlds.staged_git import BAD, GOOD, NAME, SPACE, image, template_id
from tests.worlds.staged_oracle import RESTARTED_AT
from tests.worlds.staged_world import OWNER, StagedWorld


async def patch_daemonset(world: StagedWorld, patch: dict[str, Any]) -> None:
    """Changes the DaemonSet, if it exists."""
    world.edited()
    if world.live() is not None:
        await world.people.patch(DAEMONSET, SPACE, NAME, patch)
    world.edited()


async def set_image(world: StagedWorld, tag: str) -> None:
    """As `kubectl set image`."""
    world.record(f"  edit to {tag}")
    containers = [{"name": "agent", "image": image(tag)}]
    await patch_daemonset(world, {"spec": {"template": {"spec": {"containers": containers}}}})


def own_revisions(world: StagedWorld) -> list[Body]:
    """The ControllerRevisions of the DaemonSet, oldest first, without targets."""
    every = world.cluster.server.store.all(CONTROLLER_REVISION)
    own = [one for one in every if names.REVISION_HASH in (one["metadata"].get("labels") or {})]
    return sorted(own, key=lambda body: int(body["revision"]))


async def edits_the_image(world: StagedWorld) -> None:
    """To an image that Git never had."""
    await set_image(world, world.fresh(world.chance.choice((GOOD, GOOD, BAD))))


async def edits_to_the_target(world: StagedWorld) -> None:
    """To the image that is being rolled out."""
    await set_image(world, world.history.wanted.tag)


async def edits_and_commits_the_same(world: StagedWorld) -> None:
    """The edit is put back; the same change comes by Git."""
    tag = world.fresh(world.chance.choice((GOOD, BAD)))
    await set_image(world, tag)
    await asyncio.sleep(world.chance.uniform(1, 90))
    world.push(tag)


async def restarts(world: StagedWorld) -> None:
    """As `kubectl rollout restart`."""
    world.oracle.restarted_at = world.now
    stamp = {RESTARTED_AT: str(int(world.now))}
    await patch_daemonset(world, {"spec": {"template": {"metadata": {"annotations": stamp}}}})


async def takes_back_restarts(world: StagedWorld) -> None:
    """The deployer keeps the annotation of a restart, so that the template stays an edited one."""
    if world.oracle.restarted_at:
        world.oracle.restarted_at = world.now
        stamp = {RESTARTED_AT: None}
        await patch_daemonset(world, {"spec": {"template": {"metadata": {"annotations": stamp}}}})


async def restarts_and_reverts(world: StagedWorld) -> None:
    """`kubectl rollout restart` in a rollout, then its revert."""
    await restarts(world)
    await asyncio.sleep(world.chance.uniform(5, 60))
    if world.oracle.in_force in {content.tag for content in world.history.contents}:
        world.push(world.oracle.in_force)


async def undoes(world: StagedWorld) -> None:
    """As `kubectl rollout undo`: the template of the revision before."""
    own = own_revisions(world)
    if len(own) < 2:
        return
    template = revisions.template_of(own[-2]) or {}
    world.record(f"  undo to {template_id(template)}")
    await set_image(world, template_id(template))


async def deletes_a_pod(world: StagedWorld) -> None:
    await _delete_pods(world, 1)


async def deletes_all_pods(world: StagedWorld) -> None:
    await _delete_pods(world, 1000)


async def _delete_pods(world: StagedWorld, most: int) -> None:
    pods = sorted(pod.name for pod in world.oracle.pods.values() if not pod.terminating)
    world.chance.shuffle(pods)
    for name in pods[:most]:
        await world.people.delete(POD, SPACE, name)


async def deletes_the_daemonset(world: StagedWorld) -> None:
    world.edited()
    await world.people.delete(DAEMONSET, SPACE, NAME, propagation=Propagation.BACKGROUND)


async def orphans_the_pods(world: StagedWorld) -> None:
    world.edited()
    await world.people.delete(DAEMONSET, SPACE, NAME, propagation=Propagation.ORPHAN)


async def deletes_the_halted_daemonset(world: StagedWorld) -> None:
    """A bad commit is halted, and a user deletes the DaemonSet."""
    tag = world.fresh(BAD)
    world.push(tag)
    if await world.until(lambda: tag in world.oracle.halted, 240, 2.0):
        await asyncio.sleep(world.chance.uniform(1, 30))
        if world.situation.suspended is None:  # otherwise the halt is not noted yet
            await world.chance.choice((deletes_the_daemonset, orphans_the_pods))(world)


async def deletes_revisions(world: StagedWorld) -> None:
    """All but the newest, or all."""
    world.edited()
    own = own_revisions(world)
    for body in own if world.chance.random() < 0.3 else own[:-1]:
        await world.people.delete(CONTROLLER_REVISION, SPACE, body["metadata"]["name"])


async def deletes_the_target_revision(world: StagedWorld) -> None:
    world.edited()
    world.oracle.pending.clear()
    name = target_of(world)
    await world.people.delete(CONTROLLER_REVISION, SPACE, name)


def target_of(world: StagedWorld) -> str:
    """The name of the target revision; empty without a rollout."""
    live = world.live()
    return str(
        ((live or {"metadata": {}})["metadata"].get("annotations") or {}).get(keys.TARGET) or ""
    )


def is_rolled_out(world: StagedWorld) -> bool:
    """Whether a rollout is in progress."""
    return bool(target_of(world))


async def releases(world: StagedWorld) -> None:
    """A halted template, by its commit."""
    history, oracle = world.history, world.oracle
    for index, content in enumerate(history.contents):
        if content.tag in oracle.halted:
            oracle.halted.discard(content.tag)
            oracle.edited_at = world.now
            await held_rollouts.release(world.people, OWNER, history.id(index))
            world.record(f"  release of {content.tag}")


# --- requests to the service


async def suspends_the_agent(world: StagedWorld) -> None:
    await patch_daemonset(world, _annotated({names.SUSPEND: "true"}))
    if world.live() is not None:
        world.situation.suspended = world.oracle.blocked["agent"] = world.now
    try:
        await _while_paused(world)
    finally:
        await patch_daemonset(world, _annotated({names.SUSPEND: None}))
        world.oracle.unblock("agent", world.now)
        world.situation.suspended = None


async def suspends_the_repository(world: StagedWorld) -> None:
    await _blocked(world, names.SUSPEND, "true")


async def holds_the_commit(world: StagedWorld) -> None:
    await _blocked(world, names.HOLD, world.history.id(world.history.at))


async def _blocked(world: StagedWorld, annotation: str, value: str) -> None:
    oracle, situation = world.oracle, world.situation
    oracle.blocked[annotation] = situation.repository_suspended = world.now
    await world.steer(annotation, value)
    try:
        await asyncio.sleep(5)
        await _while_paused(world)
    finally:
        await world.steer(annotation, None)
        oracle.unblock(annotation, world.now)
        situation.repository_suspended = None


async def _while_paused(world: StagedWorld) -> None:
    """A pause, with an edit in half of the cases."""
    if world.chance.random() < 0.5:
        await asyncio.sleep(world.chance.uniform(0, 30))
        await set_image(world, world.fresh())
    await asyncio.sleep(world.chance.uniform(10, 120))


async def edits_under_drift_hold(world: StagedWorld) -> None:
    """Break-glass: the drift of the DaemonSet is not corrected for a while."""
    world.situation.annotated_drift = True
    await patch_daemonset(world, _annotated({names.DRIFT: "hold"}))
    await asyncio.sleep(2)
    await set_image(world, world.fresh())
    await asyncio.sleep(world.chance.uniform(30, 150))
    await patch_daemonset(world, _annotated({names.DRIFT: None}))
    world.situation.annotated_drift = False


async def corrects_drift(world: StagedWorld) -> None:
    """What the tenant wrote stays under the drift policies `report` and `hold` until a person has
    it corrected.
    """
    if world.drift is not DriftPolicy.CORRECT:
        await patch_daemonset(world, _annotated({names.DRIFT: "correct"}))


async def has_a_policy_of_a_later_version(world: StagedWorld) -> None:
    """While the repository is suspended, so that the deployer writes no other one."""
    oracle, live = world.oracle, world.live()
    text = ((live or {"metadata": {}})["metadata"].get("annotations") or {}).get(
        keys.ROLLOUT_POLICY
    )
    if not text:
        return
    oracle.blocked[names.SUSPEND] = world.situation.repository_suspended = world.now
    await world.steer(names.SUSPEND, "true")
    await asyncio.sleep(5)
    policy = json.loads(text)
    policy["policy"]["future"] = {"of": "a later version"}
    try:
        await patch_daemonset(world, _annotated({keys.ROLLOUT_POLICY: json.dumps(policy)}))
        await asyncio.sleep(world.chance.uniform(20, 150))
    finally:
        await world.steer(names.SUSPEND, None)
        oracle.unblock(names.SUSPEND, world.now)
        world.situation.repository_suspended = None


def _annotated(annotations: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}}
