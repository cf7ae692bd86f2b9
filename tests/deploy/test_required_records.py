"""The record of the agents that nodes wait for: what was applied, without what others wrote."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.objects import DAEMONSET, Key
from gitops_ds.core.required_in_git import AgentRecord
from gitops_ds.core.values import replace
from gitops_ds.deploy import state_store
from tests.deploy import test_loop
from tests.deploy.test_loop import AGENT, Scene

play = test_loop.play
KEY = Key("apps", "DaemonSet", "default", "agent")
REQUIRED = AGENT.replace(
    "namespace: default}}\nspec:",
    f'namespace: default, annotations: {{{{{names.REQUIRED_FOR_WORK}: "true"}}}}}}}}\nspec:',
    1,
).replace("      containers:", "      tolerations: [{{operator: Exists}}]\n      containers:")


async def push(scene: Scene, manifest: str) -> None:
    scene.history.push(manifest)
    await scene.settle()


async def record(scene: Scene) -> AgentRecord | None:
    """The stored one, which is that of the loop."""
    stored = await state_store.load(scene.cluster, "gitops-ds", "test")
    assert scene.loop.deployer_state is not None
    assert scene.loop.deployer_state.required == stored.required
    assert await state_store.load_all(scene.cluster, "gitops-ds") == {"test": stored}
    assert stored.required is not None
    return stored.required.get(KEY)


async def tags(scene: Scene) -> list[str]:
    found = await record(scene)
    assert found is not None
    return [content.containers[0].image.rpartition(":")[2] for content in found.contents]


async def patch(scene: Scene, body: dict[str, Any]) -> None:
    person = scene.cluster.client("tenant")
    await person.patch(DAEMONSET, "default", "agent", body, type=PatchType.STRATEGIC)


async def test_each_applied_template_is_recorded_newest_first(scene: Scene, /) -> None:
    await push(scene, REQUIRED.format(tag="1"))
    await push(scene, REQUIRED.format(tag="2"))
    assert await tags(scene) == ["2", "1"]
    await push(scene, REQUIRED.format(tag="1"))
    assert await tags(scene) == ["1", "2"]


async def test_an_agent_that_is_not_required_is_not_recorded(scene: Scene, /) -> None:
    await push(scene, REQUIRED.format(tag="1"))
    await push(scene, AGENT.format(tag="2"))
    assert await record(scene) is None


EDITS: list[dict[str, Any]] = [
    {"nodeSelector": {"no": "where"}},
    {"containers": [{"name": "agent", "command": ["true"]}]},
    {"containers": [{"name": "agent", "image": "pause:3"}]},
    {"initContainers": [{"name": "init", "image": "init:1"}]},
]


@pytest.mark.parametrize("edit", EDITS, ids=str)
async def test_an_edit_is_not_recorded_also_by_the_next_apply(
    scene: Scene, /, edit: dict[str, Any]
) -> None:
    await push(scene, REQUIRED.format(tag="1"))
    before = await record(scene)
    assert before is not None
    await patch(scene, {"spec": {"minReadySeconds": 9, "template": {"spec": edit}}})
    await scene.settle()
    assert await record(scene) == before
    await push(scene, REQUIRED.format(tag="2"))
    after = await record(scene)
    assert after is not None
    assert (after.placement, after.min_ready_seconds) == (before.placement, 0)
    assert after.contents[1:] == before.contents


async def test_a_template_that_is_not_applied_is_not_recorded(scene: Scene, /) -> None:
    await push(scene, REQUIRED.format(tag="1"))
    await patch(scene, {"metadata": {"annotations": {names.SUSPEND: "true"}}})
    await push(scene, REQUIRED.format(tag="2"))
    assert await tags(scene) == ["1"]
    found = await record(scene)
    assert found is not None
    assert not found.suspended


async def test_a_state_of_an_earlier_version_has_no_records_until_the_next_apply(
    scene: Scene, /
) -> None:
    await push(scene, REQUIRED.format(tag="1"))
    stored = await state_store.load(scene.cluster, "gitops-ds", "test")
    await state_store.save(scene.cluster, "gitops-ds", "test", replace(stored, required=None))
    earlier = await state_store.load(scene.cluster, "gitops-ds", "test")
    assert earlier.required is None
    assert not earlier.knows_required
    await push(scene, REQUIRED.format(tag="2"))
    assert "2" in await tags(scene)
