"""A cluster with staged rollouts for tests: a simulated cluster, a repository, the deployer, the
rollouts, and the DaemonSet controller, each a process that can be killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest

from gitops_ds.controller.controller import Controller
from gitops_ds.core import errors
from gitops_ds.core.cluster import Cluster
from gitops_ds.core.daemonset import Pod
from gitops_ds.core.decision import Action, Observation, Powers
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.rollouts import RolloutProgressed
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, POD, Body, CommitId
from gitops_ds.core.rollouts.staged_rollout import (
    NodeProgress,
    RolloutRecord,
    RolloutTarget,
    StageInputs,
    StagesDecision,
)
from gitops_ds.core.values import replace
from gitops_ds.deploy.loop import Loop
from gitops_ds.kube.apimachinery import pods, revisions
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.rollouts.inputs.rollout_memory import RolloutMemory
from gitops_ds.rollouts.state import keys, target_revisions
from gitops_ds.rollouts.state.rollout_ledger import RolloutLedger
from gitops_ds.rollouts.views import staged_rollouts
from gitops_ds.rollouts.views.staged_rollouts import StagedRollout
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import Faults, NodeSpec, PodFault, virtual_time
from gitops_ds.testing.simulator import faults as simulator_faults
from gitops_ds.testing.simulator.client import Habits
from gitops_ds.testing.simulator.faults import RequestFault, SimulatedRequest
from tests.deploy.test_loop import AGENT, History, loop_on
from tests.simulator.setup import strict

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
    agent = ""  # agent.yaml

    def subject(self, commit: CommitId) -> str:
        return "A change"

    def files(self, text: str) -> dict[str, str]:
        found = {"gitops-ds.yaml": "version: v1\n", "agents/agent/agent-ds.yaml": text}
        if self.policy:
            found["agents/agent/rollout.yaml"] = self.policy
        if self.agent:
            found["agents/agent/agent.yaml"] = self.agent
        return found


class NoRollouts(RolloutMemory):
    """The rollouts of the built-in controller, which ignores policies."""

    def inputs(self, seen: Observation) -> StageInputs | None:
        return None

    def gated(self, seen: Observation) -> tuple[Action, ...]:
        return ()


@dataclass(kw_only=True)
class Processes:
    """The processes of a simulated world: the tasks that `begin` started last."""

    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def begin(self, *runs: Coroutine[Any, Any, None]) -> None:
        """Starts them."""
        self.tasks = [asyncio.ensure_future(run) for run in runs]

    def kill(self) -> None:
        """Ends all of them at once, at any point."""
        for task in self.tasks:
            task.cancel()

    def check(self) -> None:
        """Raises the error that ended one of them."""
        for task in self.tasks:
            if task.done() and not task.cancelled():
                task.result()


async def led(ledger: RolloutLedger, *runs: Coroutine[Any, Any, None]) -> None:
    """Runs after the ledger has begun, as a service that leads."""
    while not ledger.is_begun:
        with contextlib.suppress(errors.ClusterError):
            await ledger.begin()
        await asyncio.sleep(0 if ledger.is_begun else 1)
    await asyncio.gather(*runs)


@dataclass
class Scene(Processes):
    """The cluster, the repository, and all emitted events."""

    cluster: simulator.SimulatedCluster
    history: FileHistory
    powers: Powers
    faults: Faults = simulator_faults.none
    of_deployer: Faults = simulator_faults.none
    events: list[Event] = field(default_factory=list)
    request: Callable[[], None] = lambda: None
    controller: Controller | None = None
    options: ApplyOptions = field(default_factory=lambda: ApplyOptions(patience=0.0))
    loop: Loop | None = None
    ledger: RolloutLedger | None = None
    account: Callable[[simulator.Client], Any] = lambda client: client  # of the rollouts

    def start(self) -> None:
        """Starts the deployer, the controller with rollouts, and with powers pace another DaemonSet
        controller.
        """
        client = self.cluster.client("gitops-ds", self._fault)
        ledger = RolloutLedger(self.cluster.client("gitops-ds", self.faults), "gitops-ds")
        self.ledger = ledger
        loop = loop_on(
            self.cluster,
            client,
            self.history,
            self.events,
            self.options,
            ledger=ledger,
        )
        self.loop = loop
        self.request = loop.request
        client = self.account(self.cluster.client("gitops-ds", self.faults))
        ours = self._controller(self.powers, client)
        ours.attest(ledger)
        if self.options.approvers:
            ours.claim("test", approvers=self.options.approvers)
        self.controller = ours
        runs = [led(ledger, loop.run(), ours.run())]
        if self.powers is Powers.PACE:
            built_in = self._controller(Powers.FULL, self.cluster.client("gitops-ds"))
            built_in.observer.rollouts = NoRollouts(lambda _: None, self.cluster.server.now)
            runs.append(built_in.run())
        self.begin(*runs)

    def _fault(self, request: SimulatedRequest) -> RequestFault | None:
        return self.of_deployer(request)

    def _controller(self, powers: Powers, client: Cluster) -> Controller:
        return Controller(
            client,
            powers,
            strict(self.events.append if powers is self.powers else lambda _: None),
            clock=self.cluster.server.now,
            chance=random.Random(2).random,
        )

    @property
    def decision(self) -> StagesDecision:
        """The last decision about the rollout."""
        return next(e.stages for e in reversed(self.events) if isinstance(e, RolloutProgressed))

    def observed(self) -> StagedRollout | None:
        """The rollout in progress, as the service shows it."""
        assert self.controller is not None
        seen = self.controller.observer.observe(self.controller.observer.keys[0])
        assert seen is not None
        return staged_rollouts.read(seen, self.controller.observer.rollouts.inputs)

    def record(self) -> RolloutRecord:
        """The record of the rollout in the cluster; empty when it is complete."""
        existing = (
            revisions.revision_of(one) for one in self.cluster.server.store.all(CONTROLLER_REVISION)
        )
        stored = [one for one in existing if one is not None]
        records = [
            target_revisions.record_of(stored, RolloutTarget("", {}, one.name, one.uid))
            for one in stored
        ]
        return max(records, key=lambda record: record.began)

    def step(self, node: str) -> NodeProgress:
        """The step of a node."""
        return next(one for one in self.decision.nodes if one.node == node)

    def push(self, tag: str) -> None:
        """A commit with another image."""
        self.history.push(AGENT.format(tag=tag))
        self.request()

    def pods(self) -> dict[str, tuple[str, Pod]]:
        """By node, the tag of its pod that is not ending, and the pod."""
        result = {}
        for body in self.cluster.server.store.all(POD):
            pod = pods.pod_of(body)
            if not pod.terminating:
                result[pod.node] = (
                    str(body["spec"]["containers"][0]["image"]).rpartition(":")[2],
                    pod,
                )
        return result

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
        self._fail()

    async def until_exactly(self, holds: Callable[[], bool]) -> None:
        """Waits, with a poll each tenth of a second."""
        for _ in range(600):
            if holds():
                return
            await asyncio.sleep(0.1)
        self._fail()

    def _fail(self) -> NoReturn:
        raise AssertionError(
            [(node, tag, pod.trouble) for node, (tag, pod) in sorted(self.pods().items())]
        )


both = pytest.mark.parametrize("powers", [Powers.PACE, Powers.FULL])


def play(
    script: Callable[[Scene], Awaitable[None]],
    powers: Powers = Powers.PACE,
    *,
    nodes: Iterable[NodeSpec] = (),
    policy: str = POLICY,
    faults: Faults = simulator_faults.none,
    latency: float = 0.0,
    options: ApplyOptions | None = None,
) -> None:
    """Runs a script on a cluster in which every node has the first image. `faults` are those of the
    rollouts' client; `latency` is that of every request, in seconds.
    """

    async def main() -> None:
        async with simulator.SimulatedCluster() as cluster:
            cluster.habits = Habits(latency=latency)
            specs = tuple(nodes) or tuple(NodeSpec(f"node-{n}") for n in range(NODES))
            cluster.add_nodes(specs)
            scene = Scene(cluster, FileHistory(), powers, faults)
            scene.history.policy = policy
            scene.options = options or scene.options
            scene.history.push(AGENT.format(tag="1"))
            scene.start()
            await scene.until(lambda: len(scene.on("1")) == len(specs))
            await asyncio.sleep(60)
            await script(scene)
            scene.check()
            scene.kill()

    virtual_time.run(main())


def spoil(scene: Scene, *faults: PodFault) -> None:
    """From now on images behave so."""
    scene.cluster.kubelets.behaviour = replace(scene.cluster.kubelets.behaviour, faults=faults)


async def delete(scene: Scene, node: str) -> None:
    """The pod of a node is deleted, as by an eviction."""
    _, pod = scene.pods()[node]
    await scene.cluster.delete(POD, pod.namespace, pod.name)


async def ends(scene: Scene, tag: str, nodes: int = NODES) -> None:
    """Waits until the rollout is complete, and the DaemonSet has its template."""
    await scene.until(lambda: len(scene.on(tag)) == nodes)
    await asyncio.sleep(120)
    assert await scene.tag() == tag
    daemonset = await scene.daemonset()
    assert keys.TARGET not in daemonset["metadata"]["annotations"]
    assert daemonset["status"]["updatedNumberScheduled"] == nodes
    uids = {pod.uid for _, pod in scene.pods().values()}
    await asyncio.sleep(1200)
    assert {pod.uid for _, pod in scene.pods().values()} == uids
