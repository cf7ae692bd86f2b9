"""The cause of injected faults in a staged rollout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from gitops_ds.core.decision import Powers
from gitops_ds.core.objects import NODE
from gitops_ds.core.rollouts.staged_rollout import NodeStep, StageState
from gitops_ds.core.values import replace
from gitops_ds.testing.simulator import NodeSpec, PodFault, SimulatedRequest, Trouble
from gitops_ds.testing.simulator import faults as simulator_faults
from gitops_ds.testing.simulator.faults import RequestFault, failure
from tests.deploy.rollout_scene import Scene, both, play, spoil

NODES = 12
SECONDS = 15  # from the moment at which a fault is visible
POLICY = """\
stages:
  - {name: canary, nodes: {count: 3}, soak: 2m}
  - {name: rest, soak: 30s, pace: {start: 2, factor: 2, max: 50%}}
limits: {atRisk: {cluster: 50%}}
gates: {pods: {readyWithin: 2m}}
"""
CANARY = ("node-00", "node-01", "node-02")
Injection = Callable[[Scene], Awaitable[float]]  # returns the seconds until the fault is visible


def specs() -> list[NodeSpec]:
    return [NodeSpec(f"node-{n:02}") for n in range(NODES)]


async def status(scene: Scene, node: str, type: str, value: str) -> None:
    """A condition of a node changes."""
    body = await scene.cluster.get(NODE, "", node)
    listed = [one for one in body["status"]["conditions"] if one["type"] != type]
    conditions = [*listed, {"type": type, "status": value}]
    patch = {"status": {"conditions": conditions}}
    await scene.cluster.patch(NODE, "", node, patch, subresource="status")


async def cordon(scene: Scene, node: str, cordoned: bool = True) -> None:
    patch = {"spec": {"unschedulable": cordoned}}
    await scene.cluster.patch(NODE, "", node, patch)


def image(trouble: Trouble, nodes: str = "*", visible: float = 20.0) -> Injection:
    """The new image has a trouble, on some nodes."""

    async def inject(scene: Scene) -> float:
        spoil(scene, PodFault("*:2", trouble, nodes))
        scene.push("2")
        return visible

    return inject


def on_a_touched_node(fault: Callable[[Scene, str], Awaitable[float]]) -> Injection:
    """The canary soaks when something happens to one of its nodes."""

    async def inject(scene: Scene) -> float:
        scene.push("2")
        await scene.until(lambda: len(scene.on("2")) == 3, 2)
        await asyncio.sleep(20)
        return await fault(scene, CANARY[0])

    return inject


async def die(scene: Scene, node: str) -> float:
    scene.cluster.kill_node(node)
    return 50.0


async def press(scene: Scene, node: str) -> float:
    await status(scene, node, "MemoryPressure", "True")
    return 0.0


async def cordon_touched(scene: Scene, node: str) -> float:
    await cordon(scene, node)
    return 0.0


async def cordon_first(scene: Scene) -> float:
    await cordon(scene, CANARY[0])
    scene.push("2")
    return 10.0


async def kill_first(scene: Scene) -> float:
    scene.cluster.kill_node(CANARY[0])
    await asyncio.sleep(60)
    scene.push("2")
    return 10.0


async def join(scene: Scene, _: str) -> float:
    scene.cluster.add_nodes([NodeSpec("a-new-node")])
    return 10.0


async def start_slowly(scene: Scene) -> float:
    scene.cluster.kubelets.behaviour = replace(scene.cluster.kubelets.behaviour, start=90.0)
    scene.push("2")
    return 20.0


@dataclass
class Refusal:
    """Every pod of the rollouts' client is refused, once `active`."""

    status: int
    message: str
    active: bool = False

    def __call__(self, request: SimulatedRequest) -> RequestFault | None:
        is_pod = request.resource is not None and request.resource.kind == "Pod"
        creates = request.verb == "create" or (request.verb == "apply" and request.dry_run)
        return failure(self.status, self.message) if self.active and is_pod and creates else None

    async def inject(self, scene: Scene) -> float:
        self.active = True
        scene.push("2")
        return 5.0


@dataclass(frozen=True)
class Case:
    """A fault, and what must be known of it: the step of the first node, its reason, a halt, a
    hold.
    """

    name: str
    inject: Injection
    step: NodeStep
    reason: str = ""
    halts: bool = False
    holds: str = ""
    refusal: Refusal | None = None
    node: str = CANARY[0]


QUOTA = Refusal(403, "pods is forbidden: exceeded quota: agents")
DENIED = Refusal(400, 'admission webhook "images.example.com" denied the request')
CASES = (
    Case("dead node", on_a_touched_node(die), NodeStep.SET_ASIDE, "NodeNotReady"),
    Case("dead node before", kill_first, NodeStep.PARKED, "NodeNotReady", node="node-00"),
    Case("cordon before", cordon_first, NodeStep.PARKED, "NodeCordoned"),
    Case("cordon of a touched node", on_a_touched_node(cordon_touched), NodeStep.SOAKING),
    Case("joining node", on_a_touched_node(join), NodeStep.WAITING, node="a-new-node"),
    Case("image pull", image(Trouble.NEVER_PULLED), NodeStep.FAILED, "ImagePullBackOff", True),
    Case("image pull on one node", image(Trouble.NEVER_PULLED, "node-00"), NodeStep.SET_ASIDE),
    Case("crash loop", image(Trouble.CRASHES), NodeStep.FAILED, "CrashLoopBackOff", True),
    Case("failed probe", image(Trouble.NEVER_READY, "*", 130), NodeStep.FAILED, "NotReady", True),
    Case("out of memory", image(Trouble.OUT_OF_MEMORY), NodeStep.FAILED, "OOMKilled", True),
    Case("quota", QUOTA.inject, NodeStep.WAITING, holds="exceeded quota", refusal=QUOTA),
    Case("admission", DENIED.inject, NodeStep.WAITING, holds="denied the request", refusal=DENIED),
    Case("slow start", start_slowly, NodeStep.STARTING),
    Case("node pressure", on_a_touched_node(press), NodeStep.SET_ASIDE, "MemoryPressure"),
    Case("flapping", image(Trouble.FLAPS, "*", 800), NodeStep.FAILED, "Unstable", True),
)


@pytest.mark.sampled
@both
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fault_is_attributed_within_seconds_and_stays_in_its_stage(
    powers: Powers, case: Case
) -> None:
    async def script(scene: Scene) -> None:
        before = {pod.uid for _, pod in scene.pods().values()}
        visible = await case.inject(scene)
        await asyncio.sleep(visible + SECONDS)
        outlook = scene.step(case.node)
        assert outlook.step is case.step, scene.decision
        assert case.reason in outlook.reason
        if case.halts and scene.decision.halt is None:  # one more node decides
            assert scene.decision.hold is not None
            assert "still starting" in scene.decision.hold.reason
            await asyncio.sleep(120 + SECONDS)
        assert (scene.decision.halt is not None) == case.halts
        if case.halts:
            assert scene.decision.halt is not None
            assert scene.decision.halt.stage == "canary"
            assert set(CANARY) >= {node.node for node in scene.decision.halt.nodes}
        hold = scene.decision.hold
        assert case.holds in (hold.reason if hold else "")
        if case.holds:
            await asyncio.sleep(1800)
            assert not scene.on("2")
            assert {pod.uid for _, pod in scene.pods().values()} == before
        if case.halts:
            await asyncio.sleep(1800)
            assert scene.on("2") <= set(CANARY)
            assert scene.decision.stages[1].state is StageState.PENDING

    if case.refusal:
        case.refusal.active = False
    play(script, powers, nodes=specs(), policy=POLICY, faults=case.refusal or simulator_faults.none)
