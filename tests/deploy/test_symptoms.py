"""What others do to the pods of a rollout: it holds, is neither halted nor reverted, and continues
by itself. A template that demands too much halts as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from gitops_ds.core.daemonset import Pod
from gitops_ds.core.decision import Powers
from gitops_ds.core.events.base import ActionFailed
from gitops_ds.core.events.rollouts import RolloutHalted, RolloutHeld
from gitops_ds.core.objects import NAMESPACE, NODE, POD, Body
from gitops_ds.core.rollouts.staged_rollout import HoldKind
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import pods
from gitops_ds.rollouts.state import keys
from gitops_ds.testing.simulator import NodeSpec, PodFault, SimulatedRequest, Trouble
from gitops_ds.testing.simulator.faults import RequestFault, failure
from tests.deploy.rollout_scene import Scene, both, play, spoil

NODES = 4
HOUR = 3600.0
POLICY = """\
stages: [canary, rest]
gates: {pods: {readyWithin: 15s}}
progress: {perNode: 2m}
"""
POLICY_OF_TWO = """\
stages:
  - {name: canary, nodes: {count: 2}, soak: 30s, pace: {start: 2}}
  - {name: rest, soak: 10s}
limits: {atRisk: {cluster: 100%}}
gates: {pods: {readyWithin: 15s}}
progress: {perNode: 2m}
"""


def agent(tag: str, cpu: str = "2", port: int = 9999, image: str = "example.com/agent") -> str:
    """The DaemonSet with a host port and a request."""
    return f"""\
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: agent, namespace: default}}
spec:
  selector: {{matchLabels: {{app: agent}}}}
  template:
    metadata: {{labels: {{app: agent}}}}
    spec:
      containers:
        - name: agent
          image: "{image}:{tag}"
          resources: {{requests: {{cpu: "{cpu}"}}}}
          ports: [{{containerPort: 80, hostPort: {port}, protocol: TCP}}]
"""


def specs() -> list[NodeSpec]:
    return [NodeSpec(f"node-{n}") for n in range(NODES)]


async def neighbours(scene: Scene, spec: dict[str, Any], priority: int = 0) -> None:
    """A pod of a tenant for each node, pinned to it as by a DaemonSet."""
    for one in specs():
        fields = [{"key": "metadata.name", "operator": "In", "values": [one.name]}]
        term = {"nodeSelectorTerms": [{"matchFields": fields}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": term}
        container = {"name": "web", "image": "example.com/web:1", **spec}
        pod = {
            "metadata": {"namespace": "tenant", "name": f"blocker-{one.name}"},
            "spec": {
                "containers": [container],
                "affinity": {"nodeAffinity": required},
                "priority": priority,
            },
        }
        await scene.cluster.create(POD, pod)


async def leave(scene: Scene) -> None:
    """The tenant deletes the pods."""
    for spec in specs():
        await scene.cluster.delete(POD, "tenant", f"blocker-{spec.name}")


@dataclass
class Nominations:
    """The pods that the service tried to nominate, in the order."""

    permitted: bool = True
    tried: list[str] = field(default_factory=list)

    def __call__(self, request: SimulatedRequest) -> RequestFault | None:
        if (request.verb, request.resource, request.subresource) != ("patch", POD, "status"):
            return None
        self.tried.append(request.name)
        return None if self.permitted else failure(403, "pods is forbidden: cannot patch status")


PORT: dict[str, Any] = {"ports": [{"containerPort": 80, "hostPort": 9999}]}
CPU: dict[str, Any] = {"resources": {"requests": {"cpu": "7"}}}
COMPETITORS = pytest.mark.parametrize(
    ("spec", "message"),
    [(PORT, "didn't have free ports"), (CPU, "Insufficient cpu")],
    ids=["host port", "CPU"],
)


def commit(scene: Scene, text: str) -> None:
    scene.history.push(text)
    scene.request()


def pods_of(scene: Scene) -> dict[str, tuple[str, Pod]]:
    """By node, the tag of the agent's pod that is not ending, and the pod."""
    bodies = [one for one in scene.cluster.server.store.all(POD) if own_of(one)]
    named = [(str(body["spec"]["containers"][0]["image"]), pods.pod_of(body)) for body in bodies]
    return {pod.node: (image.rpartition(":")[2], pod) for image, pod in named}


def own_of(body: Body) -> bool:
    metadata = body["metadata"]
    return metadata["namespace"] == "default" and "deletionTimestamp" not in metadata


def own(scene: Scene, tag: str) -> set[str]:
    """The nodes with a ready pod of the agent."""
    return {node for node, (one, pod) in pods_of(scene).items() if one == tag and pod.ready}


def is_held(scene: Scene) -> bool:
    hold = scene.decision.hold
    return hold is not None and hold.kind is HoldKind.OTHERS


async def completes(scene: Scene) -> None:
    """The rollout ends by itself."""
    await scene.until(lambda: len(own(scene, "2")) == NODES)
    await asyncio.sleep(180)
    assert await scene.tag() == "2"
    assert keys.TARGET not in (await scene.daemonset())["metadata"]["annotations"]


async def never_halted(scene: Scene) -> None:
    """No halt is recorded, nor announced, nor known to the deployer, which reverts by it."""
    assert scene.record().halt is None
    assert not [event for event in scene.events if isinstance(event, RolloutHalted)]
    assert keys.HALTED not in (await scene.daemonset())["metadata"]["annotations"]


def played(
    script: Callable[[Scene], Awaitable[None]],
    powers: Powers = Powers.PACE,
    policy: str = POLICY,
    faults: Callable[[SimulatedRequest], RequestFault | None] = lambda _: None,
) -> None:
    """A script after the agent runs on all nodes with its port and request."""

    async def main(scene: Scene) -> None:
        await scene.cluster.create(NAMESPACE, {"metadata": {"name": "tenant"}})
        commit(scene, agent("1"))
        await asyncio.sleep(HOUR)
        assert keys.TARGET not in (await scene.daemonset())["metadata"]["annotations"]
        assert len(own(scene, "1")) == NODES
        await script(scene)

    play(main, powers, nodes=specs(), policy=policy, faults=faults)


@COMPETITORS
@pytest.mark.parametrize("policy", [POLICY, POLICY_OF_TWO], ids=["one canary", "two canaries"])
def test_who_takes_the_place_of_a_canary_causes_a_hold_and_no_halt(
    spec: dict[str, Any], message: str, policy: str
) -> None:
    nominations = Nominations(permitted=False)

    async def script(scene: Scene) -> None:
        await neighbours(scene, spec)
        await asyncio.sleep(30)
        commit(scene, agent("2"))
        await scene.until(lambda: is_held(scene), 5)
        hold = scene.decision.hold
        assert hold is not None
        assert message in hold.reason
        assert "the other pods of the node (tenant/blocker-node-" in hold.reason
        assert "not by the template" in hold.reason
        lost = NODES - len(own(scene, "1"))
        await asyncio.sleep(HOUR)
        assert is_held(scene)
        assert NODES - len(own(scene, "1")) == lost <= 2
        assert len([event for event in scene.events if isinstance(event, RolloutHeld)]) == 1
        await never_halted(scene)
        await leave(scene)
        await completes(scene)
        await never_halted(scene)
        reported = [event for event in scene.events if isinstance(event, ActionFailed)]
        assert len(reported) == len(nominations.tried) <= 4  # once an hour, of more than two

    played(script, policy=policy, faults=nominations)


@COMPETITORS
@pytest.mark.parametrize("policy", [POLICY, POLICY_OF_TWO], ids=["one canary", "two canaries"])
def test_no_pod_of_the_same_priority_takes_the_place_of_a_canary(
    spec: dict[str, Any], message: str, policy: str
) -> None:
    nominations = Nominations()

    async def script(scene: Scene) -> None:
        nominations.tried.clear()
        await neighbours(scene, spec)
        await asyncio.sleep(30)
        commit(scene, agent("2"))
        await completes(scene)
        assert not [event for event in scene.events if isinstance(event, RolloutHeld)], message
        placed = [one for one in scene.cluster.server.store.all(POD) if "nodeName" in one["spec"]]
        assert all(one["metadata"]["namespace"] == "default" for one in placed)
        assert len(nominations.tried) == len(set(nominations.tried)) == NODES

    played(script, policy=policy, faults=nominations)


@COMPETITORS
def test_a_pod_of_a_higher_priority_takes_the_place_and_the_rollout_holds(
    spec: dict[str, Any], message: str
) -> None:
    async def script(scene: Scene) -> None:
        await neighbours(scene, spec, priority=1000)
        await asyncio.sleep(30)
        commit(scene, agent("2"))
        await scene.until(lambda: is_held(scene), 5)
        assert message in scene.decision.hold.reason  # type: ignore[union-attr]
        await leave(scene)
        await completes(scene)

    played(script)


@COMPETITORS
def test_killed_after_the_create_the_next_one_nominates(spec: dict[str, Any], message: str) -> None:
    nominations = Nominations()

    async def script(scene: Scene) -> None:
        nominations.permitted = False
        await neighbours(scene, spec)
        await asyncio.sleep(30)
        commit(scene, agent("2"))
        nominations.tried.clear()
        await scene.until_exactly(lambda: bool(nominations.tried))
        scene.kill()
        nominations.permitted = True
        scene.start()
        await completes(scene)
        assert not [event for event in scene.events if isinstance(event, RolloutHeld)], message

    played(script, faults=nominations)


@COMPETITORS
def test_a_commit_during_the_hold_replaces_the_target(spec: dict[str, Any], message: str) -> None:
    async def script(scene: Scene) -> None:
        await neighbours(scene, spec)
        commit(scene, agent("2"))
        await scene.until(lambda: is_held(scene), 5)
        commit(scene, agent("1"))
        await asyncio.sleep(120)
        await leave(scene)
        await scene.until(lambda: len(own(scene, "1")) == NODES, 5)
        await never_halted(scene)

    played(script, faults=Nominations(permitted=False))


@pytest.mark.parametrize(
    ("text", "message"),
    [(agent("2", cpu="64"), "Insufficient cpu"), (agent("2", port=7777), "free ports")],
    ids=["a larger request", "another port"],
)
def test_a_template_that_demands_more_halts(text: str, message: str) -> None:
    async def script(scene: Scene) -> None:
        await neighbours(scene, {"ports": [{"containerPort": 80, "hostPort": 7777}]})
        await asyncio.sleep(30)
        commit(scene, text)
        await scene.until(lambda: scene.decision.halt is not None, 5)
        assert scene.decision.halt is not None
        assert message in scene.decision.halt.message
        assert NODES - len(own(scene, "1")) == 1

    played(script)


@both
def test_a_registry_that_is_down_holds_until_it_is_back(powers: Powers) -> None:
    async def script(scene: Scene) -> None:
        behaviour = replace(scene.cluster.kubelets.behaviour, start=10.0)
        scene.cluster.kubelets.behaviour = behaviour
        spoil(scene, PodFault("*:2", Trouble.REGISTRY_DOWN))
        commit(scene, agent("2"))
        await scene.until(lambda: is_held(scene), 5)
        await asyncio.sleep(HOUR)
        assert is_held(scene)
        assert "caused by the registry" in scene.decision.hold.reason  # type: ignore[union-attr]
        await never_halted(scene)
        spoil(scene)
        await completes(scene)
        await never_halted(scene)

    played(script, powers)


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        (agent("typo"), Trouble.NEVER_PULLED),
        (agent("2", image="exmaple.com/agent"), Trouble.REGISTRY_DOWN),
    ],
    ids=["tag", "registry"],
)
def test_an_image_that_does_not_exist_halts(text: str, trouble: Trouble) -> None:
    async def script(scene: Scene) -> None:
        spoil(scene, PodFault("*:typo", trouble), PodFault("exmaple.com/*", trouble))
        commit(scene, text)
        await scene.until(lambda: scene.decision.halt is not None, 5)
        assert len(own(scene, "1")) == NODES - 1

    played(script)


async def evict(scene: Scene, node: str) -> None:
    """The kubelet evicts the pod of a node."""
    _, pod = pods_of(scene)[node]
    status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource"}
    await scene.cluster.patch(
        POD, pod.namespace, pod.name, {"status": status}, subresource="status"
    )


async def preempt(scene: Scene, node: str) -> None:
    """The scheduler deletes the pod of a node for one of a higher priority, which takes its
    place.
    """
    await neighbours(scene, PORT)
    _, pod = pods_of(scene)[node]
    await scene.cluster.delete(POD, pod.namespace, pod.name)


@both
@pytest.mark.parametrize("act", [evict, preempt])
def test_an_evicted_and_a_preempted_pod_say_nothing_about_the_template(
    powers: Powers, act: Callable[[Scene, str], Awaitable[None]]
) -> None:
    async def script(scene: Scene) -> None:
        commit(scene, agent("2"))
        await scene.until(lambda: bool(own(scene, "2")), 5)
        [node] = own(scene, "2")
        await act(scene, node)
        await asyncio.sleep(HOUR if act is preempt else 300)
        assert len(own(scene, "1") | own(scene, "2")) >= NODES - 1
        await never_halted(scene)
        if act is preempt:
            await leave(scene)
        await completes(scene)
        await never_halted(scene)

    played(script, powers)


@dataclass
class Refusal:
    """Every new pod is refused, once `active`."""

    error: RequestFault
    active: bool = False

    def __call__(self, request: SimulatedRequest) -> RequestFault | None:
        creates = request.verb == "create" or (request.verb == "apply" and request.dry_run)
        return self.error if self.active and request.resource == POD and creates else None


@pytest.mark.parametrize(
    "error",
    [
        failure(403, "pods is forbidden: exceeded quota: agents"),
        failure(403, "pods is forbidden: maximum cpu usage per Container is 1, but limit is 2"),
        failure(400, 'admission webhook "pods.example.com" denied the request'),
        failure(500, 'failed calling webhook "pods.example.com": connection refused'),
    ],
    ids=["quota", "limit range", "webhook", "webhook down"],
)
@pytest.mark.parametrize("begun", [False, True], ids=["before", "in mid-rollout"])
def test_pods_that_the_api_server_refuses_hold_the_rollout(
    error: RequestFault, begun: bool
) -> None:
    refusal = Refusal(error)

    async def script(scene: Scene) -> None:
        refusal.active = not begun
        commit(scene, agent("2"))
        if begun:
            await scene.until(lambda: bool(own(scene, "2")), 5)
            refusal.active = True
        await asyncio.sleep(HOUR)
        assert len(own(scene, "1") | own(scene, "2")) >= NODES - 1
        await never_halted(scene)
        refusal.active = False
        await completes(scene)
        await never_halted(scene)

    played(script, faults=refusal)


def test_a_node_that_shrinks_after_the_touch_causes_no_halt() -> None:
    async def script(scene: Scene) -> None:
        commit(scene, agent("2"))
        await scene.until_exactly(lambda: len(own(scene, "1")) == NODES - 1)
        [node] = {spec.name for spec in specs()} - own(scene, "1")
        await scene.cluster.patch(
            NODE, "", node, {"status": {"allocatable": {"cpu": "1"}}}, subresource="status"
        )
        await asyncio.sleep(HOUR)
        await never_halted(scene)
        await scene.cluster.patch(
            NODE, "", node, {"status": {"allocatable": {"cpu": "8"}}}, subresource="status"
        )
        await completes(scene)

    played(script)
