"""The writes of a staged rollout to the pods of one node: the pinned pod follows the delete of the
earlier pod at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from gitops_ds.core.decision import CreatePod, DeletePod, RecordRollout
from gitops_ds.core.events.base import ActionFailed, Performed
from gitops_ds.core.events.rollouts import RolloutHeld, RolloutProgressed, StageOpened
from gitops_ds.core.objects import POD
from gitops_ds.core.rollouts.staged_rollout import HoldKind, StageHold
from gitops_ds.kube.apimachinery import pods
from gitops_ds.rollouts.inputs.rollout_memory import WRITE_REFUSED_FOR
from gitops_ds.rollouts.views import staged_rollouts
from gitops_ds.status import agent_lists
from gitops_ds.testing.simulator.faults import RequestFault, Silence, SimulatedRequest, failure
from tests.deploy.rollout_scene import NODES, Scene, play

ALL_AT_ONCE = """\
stages: [{name: rest, soak: 1s, pace: {start: 100%, max: 100%}}]
limits: {atRisk: {cluster: 100%}}
onFailure: {revert: {how: none}}
"""


def test_a_slow_api_server_does_not_let_the_builtin_controller_create_a_pod_in_between() -> None:
    async def script(scene: Scene) -> None:
        before = len(scene.events)
        scene.push("2")
        await scene.until(lambda: len(scene.on("2")) == NODES)
        await asyncio.sleep(60)
        writes = Counter(
            type(event.action) for event in scene.events[before:] if isinstance(event, Performed)
        )
        assert [writes[of] for of in (DeletePod, CreatePod)] == [NODES] * 2

    # a pod ends within a second of its delete; one batch after the other takes longer
    play(script, policy=ALL_AT_ONCE, latency=0.3)


def test_a_restart_while_the_earlier_pod_ends_completes_the_replacement() -> None:
    """The DaemonSet controller makes no pod of a node whose pod ends, so its node gets one pod."""
    scenes, killed = list[Scene](), list[str]()

    def kill(request: SimulatedRequest) -> RequestFault | None:
        if request.verb != "delete" or request.resource != POD or killed:
            return None
        (scene,) = scenes
        killed.append(request.name)
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, scene.kill)
        loop.call_later(0.2, scene.start)
        return Silence(5, done=True)

    async def script(scene: Scene) -> None:
        scenes.append(scene)
        made = Counter[tuple[str, str]]()

        def note() -> None:
            for body in scene.cluster.server.store.all(POD):
                made[pods.pod_of(body).node, body["metadata"]["uid"]] += 1

        scene.push("2")
        for _ in range(600):
            note()
            await asyncio.sleep(0.1)
        assert killed
        assert len(scene.on("2")) == NODES
        assert Counter(node for node, _ in made) == dict.fromkeys(scene.on("2"), 2)

    play(script, policy=ALL_AT_ONCE, faults=kill)


def test_refused_creates_cost_one_node_its_earlier_pod_and_not_all_at_once() -> None:
    refuses = False

    def refused(request: SimulatedRequest) -> RequestFault | None:
        is_create = (request.verb, request.dry_run) == ("create", False)
        of_pods = request.resource is not None and request.resource.kind == "Pod"
        return failure(403, "quota") if refuses and is_create and of_pods else None

    async def script(scene: Scene) -> None:
        nonlocal refuses
        refuses, before = True, len(scene.events)
        scene.push("2")
        await scene.until(lambda: any(isinstance(event, ActionFailed) for event in scene.events))
        deleted = {
            event.action.node
            for event in scene.events[before:]
            if isinstance(event, Performed) and isinstance(event.action, DeletePod)
        }
        assert len(deleted) == 1
        refuses = False
        await scene.until(lambda: len(scene.on("2")) == NODES)

    play(script, policy=ALL_AT_ONCE, faults=refused)


def test_refused_pods_are_a_hold_in_the_objects_of_the_cluster_written_once() -> None:
    """The command line reads the same hold as the service."""
    refuses = True

    def refused(request: SimulatedRequest) -> RequestFault | None:
        of_pods = request.resource is not None and request.resource.kind == "Pod"
        return failure(403, "quota") if refuses and request.dry_run and of_pods else None

    async def script(scene: Scene) -> None:
        nonlocal refuses
        scene.push("2")
        await asyncio.sleep(600)  # ten attempts
        assert scene.controller is not None
        seen = scene.controller.observer.observe(scene.controller.observer.keys[0])
        assert seen is not None
        rollout = staged_rollouts.read(seen)
        assert rollout is not None
        hold = rollout.stages.hold
        assert hold is not None
        assert hold.kind is HoldKind.REFUSED
        assert hold.reason.startswith("the API server refuses the pods: ")
        assert scene.on("2") == set()
        assert len([event for event in scene.events if isinstance(event, RolloutHeld)]) == 1
        records = [
            event
            for event in scene.events
            if isinstance(event, Performed) and isinstance(event.action, RecordRollout)
        ]
        refuses = False
        await scene.until(lambda: len(scene.on("2")) == NODES)
        assert scene.record().refused == ""
        assert len(records) <= 3

    play(script, policy=ALL_AT_ONCE, faults=refused)


async def _shown(scene: Scene) -> StageHold | None:
    """The hold that a command reads, beside a service."""
    now = scene.cluster.server.now()
    (agent,) = await agent_lists.list_agents(scene.cluster.client("person"), "gitops-ds", now)
    return agent.hold


REFUSED_WRITES = [
    ("delete", "Pod", "the replacement of pods"),
    ("patch", "Pod", "the replacement of pods"),
    ("patch", "ControllerRevision", "the record of the rollout"),
]


@pytest.mark.parametrize(("verb", "kind", "refuses"), REFUSED_WRITES)
def test_any_refused_write_is_a_hold_with_the_message_and_ends_promptly(
    verb: str, kind: str, refuses: str
) -> None:
    is_refused = True

    def refused(request: SimulatedRequest) -> RequestFault | None:
        is_it = request.verb == verb and not request.subresource
        of_kind = request.resource is not None and request.resource.kind == kind
        return failure(403, "no such writes") if is_refused and is_it and of_kind else None

    async def script(scene: Scene) -> None:
        nonlocal is_refused
        scene.push("2")
        await asyncio.sleep(600)
        hold = next(
            event.stages.hold
            for event in reversed(scene.events)
            if isinstance(event, RolloutProgressed)
        )
        assert hold is not None
        assert hold.kind is HoldKind.REFUSED
        assert hold.reason.startswith(f"the API server refuses {refuses}: ")
        assert "no such writes" in hold.reason
        assert len([event for event in scene.events if isinstance(event, RolloutHeld)]) == 1
        assert len([event for event in scene.events if isinstance(event, StageOpened)]) <= 1
        attempts = [event for event in scene.events if isinstance(event, ActionFailed)]
        assert 600 / WRITE_REFUSED_FOR - 5 <= len(attempts) <= 600 / WRITE_REFUSED_FOR + 5
        assert scene.on("2") == set()
        if kind != "ControllerRevision":
            assert scene.record().refused in hold.reason
        shown = await _shown(scene)
        assert shown is not None
        assert (shown.kind, shown.reason) == (hold.kind, hold.reason)
        is_refused = False
        await asyncio.sleep(WRITE_REFUSED_FOR + 5)
        assert await _shown(scene) is None
        assert any(tag == "2" for tag, _ in scene.pods().values())
        await scene.until(lambda: len(scene.on("2")) == NODES)

    play(script, policy=ALL_AT_ONCE, faults=refused)
