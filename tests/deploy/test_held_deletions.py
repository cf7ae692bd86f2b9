"""A commit that takes all or most objects out of what is read deletes nothing and is not Synced."""

from __future__ import annotations

import asyncio
import json

import pytest

from gitops_ds.core.sources.source_status import Condition
from gitops_ds.ownership.options import ApplyOptions, Guards
from gitops_ds.status import agent_lists, agents
from gitops_ds.testing.simulator import virtual_time
from tests.deploy.test_loop import AGENT, History, Scene, play

NAMES = [f"agent-{number}" for number in range(6)]
SETTINGS = 'version: v1\nname: fleet\nmanifests: ["{}"]\n'


class Files(History):
    """A repository whose commits are written as JSON: texts by path."""

    def files(self, text: str) -> dict[str, str]:
        return dict(json.loads(text))


def manifest(name: str) -> str:
    return AGENT.format(tag="1").replace("agent", name)


FLAT = {f"{name}.yaml": manifest(name) for name in NAMES}
BELOW = {"gitops-ds.yaml": SETTINGS.format("apps/**")} | {
    f"apps/{path}": text for path, text in FLAT.items()
}
AGENTS = {"gitops-ds.yaml": "version: v1\nname: fleet\n"} | {
    f"agents/{name}/{name}-ds.yaml": manifest(name) for name in NAMES
}
# What is read before, what the commit leaves, and the condition.
LEAVING = {
    "no object is left": (FLAT, {"README.md": "empty"}, Condition.DELETIONS_HELD),
    "fewer than half are left": (
        FLAT,
        {name: FLAT[name] for name in list(FLAT)[:2]},
        Condition.DELETIONS_HELD,
    ),
    "a gitops-ds.yaml without manifests is added": (
        FLAT,
        FLAT | {"gitops-ds.yaml": "version: v1\nname: fleet\n"},
        Condition.REJECTED,
    ),
    "the folder is renamed": (
        BELOW,
        {path.replace("apps/", "all/"): text for path, text in BELOW.items()},
        Condition.DELETIONS_HELD,
    ),
    "manifests are narrowed": (
        BELOW,
        BELOW | {"gitops-ds.yaml": SETTINGS.format("apps/agent-0.yaml")},
        Condition.DELETIONS_HELD,
    ),
    "agents are moved": (
        AGENTS,
        {path.replace("agents/", "daemonsets/"): text for path, text in AGENTS.items()},
        Condition.REJECTED,
    ),
}


@pytest.mark.parametrize("case", LEAVING)
def test_a_commit_that_leaves_most_objects_out_is_held_and_deletes_nothing(case: str) -> None:
    before, after, condition = LEAVING[case]

    async def script(scene: Scene) -> None:
        await scene.settle()
        assert scene.loop.status is not None
        assert scene.loop.status.condition is Condition.SYNCED
        scene.history.push(json.dumps(after))
        await scene.settle()
        await asyncio.sleep(60)
        assert scene.loop.status.condition is condition, scene.loop.status.message
        listed = await agent_lists.list_agents(scene.cluster, "gitops-ds", virtual_time.clock()())
        assert sorted(agent.key.name for agent in listed) == NAMES
        left = {agent.key.name: agents.sync_of(agent) for agent in listed}
        assert "Held" in {sync for sync, _ in left.values()} or condition is Condition.REJECTED
        scene.history.push(json.dumps(before))
        await scene.settle()
        assert scene.loop.status.condition is Condition.SYNCED

    play(script, ApplyOptions(Guards(prune=True), patience=0.0), Files([json.dumps(before)], 0))
