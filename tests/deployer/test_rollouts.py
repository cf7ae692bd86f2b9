"""A staged rollout from commit to pod on the simulated cluster: deployer, rollouts, and a DaemonSet controller."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

import pytest

from gitops_ds import simulator
from gitops_ds.apimachinery import pods
from gitops_ds.controller.controller import Controller, Powers
from gitops_ds.controller.rollouts import Rollouts
from gitops_ds.deployer import state_store
from gitops_ds.model import names
from gitops_ds.model.daemonset import Pod
from gitops_ds.model.decision import Observation
from gitops_ds.model.events.base import Event
from gitops_ds.model.events.rollouts import StagePassed
from gitops_ds.model.objects import CONTROLLER_REVISION, DAEMONSET, POD, Body, CommitId
from gitops_ds.model.source_tree import CommitInfo, SourceTree
from gitops_ds.model.staged_rollout import StageInputs
from gitops_ds.plan.options import ApplyOptions
from gitops_ds.simulator import NodeSpec, virtual_time
from tests.deployer.test_loop import AGENT, History, loop_on

NODES = 10
POLICY = """\
stages:
  - {name: canary, nodes: {count: 2}, soak: 2m}
  - {name: rest, soak: 30s}
limits: {atRisk: {cluster: 30%}}
"""


class FileHistory(History):
    """A repository with an agent and its rollout policy."""

    policy = POLICY

    async def snapshot(self, commit: CommitId) -> SourceTree:
        text = self.commits[int(commit, 16) - 1]
        info = CommitInfo(
            commit, (), datetime(2026, 1, 1, tzinfo=UTC), "Ann <ann@example.com>", "A change"
        )
        files = {"gitops-ds.yaml": "version: v1\n", "agents/agent/agent-ds.yaml": text}
        if self.policy:
            files["agents/agent/rollout.yaml"] = self.policy
        return SourceTree(
            info, {PurePosixPath(name): data.encode() for name, data in files.items()}
        )


class NoRollouts(Rollouts):
    """The rollouts of the built-in controller: it knows nothing of policies."""

    def inputs(self, seen: Observation) -> StageInputs | None:
        return None


@dataclass
class Scene:
    """The cluster, the repository, and everything that was emitted."""

    cluster: simulator.SimulatedCluster
    history: FileHistory
    events: list[Event] = field(default_factory=list)
    request: Callable[[], None] = lambda: None

    def push(self, tag: str) -> None:
        """A commit with another image."""
        self.history.push(AGENT.format(tag=tag))
        self.request()

    def pods(self) -> dict[str, tuple[str, Pod]]:
        """By node, the tag of its pod that is not ending, and the pod."""
        found = {}
        for body in self.cluster.server.store.all(POD):
            pod = pods.pod_of(body)
            if not pod.terminating:
                found[pod.node] = (
                    str(body["spec"]["containers"][0]["image"]).rpartition(":")[2],
                    pod,
                )
        return found

    def on(self, tag: str) -> set[str]:
        """The nodes that run an image."""
        return {node for node, (one, _) in self.pods().items() if one == tag}

    async def daemonset(self) -> Body:
        return await self.cluster.get(DAEMONSET, "default", "agent")

    async def tag(self) -> str:
        """The image of the DaemonSet's template."""
        body = await self.daemonset()
        return str(body["spec"]["template"]["spec"]["containers"][0]["image"]).rpartition(":")[2]

    async def until(self, holds: Callable[[], bool], minutes: float = 60) -> None:
        for _ in range(int(minutes * 12)):
            if holds():
                return
            await asyncio.sleep(5)
        raise AssertionError(
            [(node, tag, pod.trouble) for node, (tag, pod) in sorted(self.pods().items())]
        )


def play(powers: Powers, script: Callable[[Scene], Awaitable[None]], **kubelets: Any) -> None:
    async def main() -> None:
        async with simulator.SimulatedCluster(**kubelets) as cluster:
            cluster.add_nodes(NodeSpec(f"node-{n}") for n in range(NODES))
            scene = Scene(cluster, FileHistory())
            scene.history.push(AGENT.format(tag="1"))
            loop = loop_on(
                cluster,
                cluster.client("gitops-ds"),
                scene.history,
                scene.events,
                ApplyOptions(patience=0.0),
            )
            scene.request = loop.request
            clock, chance = cluster.server.now, random.Random(2).random
            controllers = [
                Controller(
                    cluster.client("gitops-ds"),
                    powers,
                    scene.events.append,
                    clock=clock,
                    chance=chance,
                )
            ]
            if powers is Powers.PACE:
                built_in = Controller(
                    cluster.client("gitops-ds"),
                    Powers.FULL,
                    lambda _: None,
                    clock=clock,
                    chance=chance,
                )
                built_in.rollouts = NoRollouts(lambda _: None, clock)
                controllers.append(built_in)
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(one.run()) for one in (*controllers, loop)]
                await scene.until(lambda: len(scene.on("1")) == NODES)
                await asyncio.sleep(60)
                await script(scene)
                for task in running:
                    task.cancel()

    virtual_time.run(main())


both = pytest.mark.parametrize("powers", [Powers.PACE, Powers.FULL])


@both
def test_a_commit_rolls_out_in_stages_and_the_template_follows(powers: Powers) -> None:
    async def script(scene: Scene) -> None:
        uids = {pod.uid for _, pod in scene.pods().values()}
        scene.push("2")
        await asyncio.sleep(100)
        assert len(scene.on("2")) == 2
        assert await scene.tag() == "1"
        daemonset = await scene.daemonset()
        assert daemonset["spec"]["updateStrategy"]["type"] == "OnDelete"
        assert names.TARGET in daemonset["metadata"]["annotations"]
        await scene.until(lambda: len(scene.on("2")) == NODES)
        await asyncio.sleep(120)
        assert await scene.tag() == "2"
        daemonset = await scene.daemonset()
        assert names.TARGET not in daemonset["metadata"]["annotations"]
        assert daemonset["status"]["updatedNumberScheduled"] == NODES
        assert not uids & {pod.uid for _, pod in scene.pods().values()}
        known = (await scene.cluster.list(CONTROLLER_REVISION)).items
        assert sorted(one["revision"] for one in known) == [1, 2]
        stages = [event.stage for event in scene.events if isinstance(event, StagePassed)]
        assert stages == ["canary", "rest"]
        state = await state_store.load(scene.cluster, "gitops-ds", "test")
        assert state.last_good == scene.history.id(1)
        first = {pod.uid for _, pod in scene.pods().values()}
        await asyncio.sleep(3600)
        assert first == {pod.uid for _, pod in scene.pods().values()}

    play(powers, script)
