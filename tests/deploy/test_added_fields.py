"""A field that a person adds to the template of a staged agent: named, taken back, never rolled
out.
"""

from __future__ import annotations

import asyncio
from typing import Any

from gitops_ds.core.cluster import PatchType
from gitops_ds.core.decision import Powers
from gitops_ds.core.events.drift import DriftCorrected, DriftDetected, DriftEvent
from gitops_ds.core.objects import DAEMONSET, POD
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.ownership.ignore_differences import IgnoreRule
from gitops_ds.ownership.options import AddedFields, ApplyOptions
from tests.deploy import rollout_scene
from tests.deploy.rollout_scene import Scene, both, ends

play = rollout_scene.play
EXTRA = {"name": "EXTRA", "value": "1"}
PATH = "spec.template.spec.containers[agent].env"


async def set_env(scene: Scene, manager: str = "kubectl-set") -> None:
    """As `kubectl set env`."""
    containers = [{"name": "agent", "env": [EXTRA]}]
    await patch(scene, {"spec": {"containers": containers}}, manager)


async def patch(scene: Scene, template: dict[str, Any], manager: str) -> None:
    body = {"spec": {"template": template}}
    client = scene.cluster.client(manager)
    await client.patch(DAEMONSET, "default", "agent", body, type=PatchType.STRATEGIC)


async def has_field(scene: Scene) -> bool:
    daemonset = await scene.daemonset()
    return "env" in daemonset["spec"]["template"]["spec"]["containers"][0]


def with_field(scene: Scene) -> set[str]:
    """The nodes whose pods have the field."""
    return {
        str(body["metadata"]["name"])
        for body in scene.cluster.server.store.all(POD)
        if "env" in body["spec"]["containers"][0]
    }


def drift(scene: Scene) -> list[DriftEvent]:
    return [event for event in scene.events if isinstance(event, DriftEvent)]


@both
async def test_it_is_taken_back_and_named(scene: Scene, /, powers: Powers) -> None:
    await set_env(scene)
    await asyncio.sleep(30)
    assert not await has_field(scene)
    assert [type(event) for event in drift(scene)] == [DriftDetected, DriftCorrected]
    assert "kubectl set env" in drift(scene)[0].text()
    assert PATH in drift(scene)[0].text()
    assert not with_field(scene)
    scene.push("2")
    await ends(scene, "2")
    assert not with_field(scene)


@both
async def test_an_edit_during_a_rollout_is_in_no_pod_of_the_target(
    scene: Scene, /, powers: Powers
) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == 2)
    await set_env(scene)
    await ends(scene, "2")
    assert not await has_field(scene)
    assert not with_field(scene)


async def kept(scene: Scene) -> None:
    """The field stays, and no rollout spreads it."""
    await set_env(scene)
    await asyncio.sleep(60)
    assert await has_field(scene)
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == 10)
    assert not with_field(scene)


def test_under_report_it_stays_until_the_next_commit() -> None:
    async def script(scene: Scene) -> None:
        await set_env(scene)
        await asyncio.sleep(60)
        assert await has_field(scene)
        assert [type(event) for event in drift(scene)] == [DriftDetected]
        scene.push("2")
        await ends(scene, "2")
        assert not with_field(scene)
        assert not await has_field(scene)

    rollout_scene.play(script, options=ApplyOptions(drift=DriftPolicy.REPORT, patience=0.0))


def test_an_ignored_field_stays_and_is_not_rolled_out() -> None:
    rules = (IgnoreRule(managers=("kubectl-set",)),)
    rollout_scene.play(kept, options=ApplyOptions(ignore=rules, patience=0.0))
    rules = (IgnoreRule(paths=("/spec/template/spec/containers/agent/env",)),)
    rollout_scene.play(kept, options=ApplyOptions(ignore=rules, patience=0.0))


async def test_the_field_of_a_controller_stays(scene: Scene, /) -> None:
    await set_env(scene, "vpa-updater")
    await asyncio.sleep(60)
    assert await has_field(scene)
    assert not drift(scene)


async def test_a_restart_by_kubectl_stays(scene: Scene, /) -> None:
    restart = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}
    await patch(scene, restart, "kubectl-rollout")
    await asyncio.sleep(60)
    assert "annotations" in (await scene.daemonset())["spec"]["template"]["metadata"]
    assert not drift(scene)


def test_without_a_policy_it_stays_unless_the_option_is_all() -> None:
    async def script(scene: Scene) -> None:
        await set_env(scene)
        await asyncio.sleep(60)
        stays = scene.options.added_fields is AddedFields.STAGED
        assert await has_field(scene) is stays
        assert bool(drift(scene)) is not stays

    for choice in AddedFields:
        options = ApplyOptions(added_fields=choice, patience=0.0)
        rollout_scene.play(script, Powers.FULL, policy="", options=options)
