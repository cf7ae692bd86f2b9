"""A halt has the cause in Kubernetes' own words: in its message, its nodes, and its revert; it may
wait for the batch.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.daemonset import PodCause
from gitops_ds.core.objects import CommitId, Digest, Key
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.halted_rollout import HaltedRollout
from gitops_ds.core.rollouts.rollout_policy import OnFailure, Revert
from gitops_ds.core.rollouts.staged_rollout import UPDATING, Halt, StageInputs
from gitops_ds.core.values import replace
from gitops_ds.daemonset import decide
from gitops_ds.kube.apimachinery import pod_cause
from gitops_ds.rollouts.decisions import node_selection
from gitops_ds.rollouts.decisions.staged_nodes import StagedNodes
from gitops_ds.rollouts.reverts import revert_message
from gitops_ds.status import health
from tests.apimachinery import kubelet_pods
from tests.apimachinery.kubelet_pods import (
    EXEC,
    MOUNT,
    READINESS,
    back_off,
    container,
    end,
    running,
)
from tests.rollouts.rollout_world import SECOND, RolloutWorld, both

CREATING = kubelet_pods.pod(container(kubelet_pods.waiting("ContainerCreating")), phase="Pending")
# The pod of the second image, its event, and the cause in the halt.
FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any] | None, str]] = {
    "init": (
        kubelet_pods.pod(kubelet_pods.INITIALIZING, init=(kubelet_pods.SETUP,)),
        None,
        "Init:CrashLoopBackOff on node-000: init container setup: exit code 7",
    ),
    "program": (
        kubelet_pods.pod(container(back_off(), end(128, "StartError", message=EXEC))),
        kubelet_pods.BACK_OFF,
        f"StartError on node-000: container agent: exit code 128: {EXEC}",
    ),
    "crash": (
        kubelet_pods.pod(container(back_off(), end(3))),
        kubelet_pods.BACK_OFF,
        "CrashLoopBackOff on node-000: container agent: exit code 3",
    ),
    "Secret": (
        CREATING,
        MOUNT,
        f"FailedMount on node-000: {MOUNT['message']}; containers with unready status: [agent]",
    ),
    "Secret, without the right to list events": (
        CREATING,
        None,
        "NotReady on node-000: containers with unready status: [agent]",
    ),
    "memory": (
        kubelet_pods.pod(container(running(), end(137, "OOMKilled"), restarts=1)),
        None,
        "OOMKilled on node-000: container agent: exit code 137",
    ),
    "readiness": (
        kubelet_pods.pod(container(running())),
        READINESS,
        f"Unhealthy on node-000: {READINESS['message']}; containers with unready status: [agent]",
    ),
}


ONE_AT_RISK: dict[str, Any] = {"limits": {"atRisk": {"cluster": 1}}}
SECRET = kubelet_pods.pod(
    container(back_off(), end(3, message="no connection to https://bot:hunter2@db.example.com"))
)


class FailingWorld(RolloutWorld):
    """A world whose pods of the second image have a status of a failure."""

    def __init__(self, failing: dict[str, Any], event: dict[str, Any] | None) -> None:
        stages = [{"name": "canary", "nodes": {"count": 1}, "soak": "60s"}, "rest"]
        super().__init__({"stages": stages}, 6)
        self.failing, self.event = failing, event
        self.commit(SECOND)

    def start(self, pod: dict[str, Any], ready: bool = True) -> None:
        super().start(pod, ready)
        if pod["spec"]["containers"][0]["image"] == SECOND:
            pod["spec"]["initContainers"] = self.failing["spec"]["initContainers"]
            conditions = self.failing["status"]["conditions"]
            since = pod["status"]["conditions"][0]["lastTransitionTime"]
            pod["status"] = {
                **self.failing["status"],
                "conditions": [
                    {**condition, "lastTransitionTime": since} for condition in conditions
                ],
            }

    def warnings(self) -> dict[str, PodCause]:
        cause = pod_cause.newest_warning([self.event] if self.event else [])
        return {pod.uid: cause for pod in self.parsed() if not pod.ready and cause is not None}

    def inputs(self) -> StageInputs | None:
        inputs = super().inputs()
        return replace(inputs, warnings=self.warnings()) if inputs else None

    def halted(self) -> Halt:
        for _ in range(300):
            self.pass_time()
            if self.last is not None and (halt := self.last.stages.halt) is not None:
                return halt
        raise AssertionError(self.last)


@pytest.mark.parametrize(("failing", "event", "message"), FAULTS.values(), ids=FAULTS)
def test_a_halt_has_the_cause(
    failing: dict[str, Any], event: dict[str, Any] | None, message: str
) -> None:
    halt = FailingWorld(failing, event).halted()
    assert halt.message == message
    (node,) = halt.nodes
    assert message == f"{node.reason} on {node.node}: {node.message}"
    key, commit = Key("apps", "DaemonSet", "logging", "agent"), CommitId("a" * 40)
    halted = HaltedRollout(key, "u", commit, "", Digest("d"), frozenset(), halt, Revert())
    assert message in revert_message.reason(halted)


@pytest.mark.parametrize(("failing", "event", "message"), FAULTS.values(), ids=FAULTS)
def test_an_agent_without_stages_has_the_same_cause(
    failing: dict[str, Any], event: dict[str, Any] | None, message: str
) -> None:
    world = FailingWorld(failing, event)
    world.halted()
    world.body["metadata"]["annotations"].clear()
    world.body["metadata"]["annotations"]["deprecated.daemonset.template.generation"] = "1"
    world.now += 700
    (name,) = world.on(SECOND)
    judged = health.judge(world.observe(), warnings=world.warnings())
    (text,) = (f"{node.reason}: {node.message}" for node in judged.nodes if node.node == name)
    reason, _, cause = message.replace(" on node-000", "").partition(": ")
    assert cause in text
    assert reason in text


def test_the_cause_has_no_secret() -> None:
    world = FailingWorld(SECRET, None)
    halt = world.halted()
    judged = health.judge(world.observe())
    for text in (halt.message, halt.nodes[0].message, *(node.message for node in judged.nodes)):
        assert "hunter2" not in text
    assert "db.example.com" in halt.message


def policy(halt: str) -> dict[str, Any]:
    return {
        "stages": [
            {"name": "wide", "nodes": {"count": 6}, "soak": "60s", "pace": {"start": 6, "max": 6}},
            {"name": "rest"},
        ],
        "limits": {"atRisk": {"cluster": "80%"}},
        "onFailure": {"halt": halt},
    }


def failed(world: RolloutWorld) -> set[str]:
    """Four of six pods fail at once; the two others do not start before they are permitted to."""
    slow = {"node-004", "node-005"}
    world.slow_nodes |= slow
    world.bad_images.add(SECOND)
    world.commit(SECOND)
    for _ in range(6):
        world.pass_time()
    assert slow < world.on(SECOND)
    assert len(world.on(SECOND)) == 6
    return slow


@both
def test_a_halted_rollout_waits_for_starting_pods_and_takes_no_node(owned: bool) -> None:
    world = RolloutWorld(policy("after-batch"), 10, owned=owned)
    slow = failed(world)
    assert world.stages.halt is None
    assert world.hold.startswith("halts after this batch: ImagePullBackOff on ")
    assert world.stages.take == ()
    times = [one.until for one in world.stages.nodes if one.step in UPDATING]
    assert world.stages.hold is not None
    assert world.stages.hold.until == max(time for time in times if time is not None)
    world.slow_nodes -= slow
    for _ in range(60):
        world.pass_time()
        assert len(world.on(SECOND)) <= 6
    halt = world.stages.halt
    assert halt is not None
    assert halt.stage == "wide"


@both
def test_at_once_does_not_wait(owned: bool) -> None:
    world = RolloutWorld(policy("at-once"), 10, owned=owned)
    failed(world)
    assert world.stages.halt is not None


def test_the_default_is_at_once() -> None:
    assert OnFailure().halt == "at-once"


@pytest.mark.parametrize(
    ("at_once", "decides"), [(3, "2 nodes still starting"), (1, "one more decides")]
)
def test_a_hold_names_the_nodes_that_decide_the_cause_of_a_failure(
    at_once: int, decides: str
) -> None:
    pace = {"start": at_once, "max": at_once}
    canary = {"name": "canary", "nodes": {"count": 3}, "soak": "60s", "pace": pace}
    world = RolloutWorld({"stages": [canary, "rest"], "limits": {"atRisk": {"cluster": 3}}}, 6)
    world.bad_images.add(SECOND)
    world.slow_nodes = {f"node-{i:03}" for i in range(1, 6)}
    world.commit(SECOND)
    world.until(lambda: "ImagePullBackOff" in world.hold)
    assert world.hold == f"ImagePullBackOff on node-000; {decides}"


def test_one_more_node_of_the_stage_decides_a_failure_without_peers_unless_it_is_halted() -> None:
    canary = {"name": "canary", "nodes": {"count": 3}, "pace": {"start": 1, "max": 1}}
    world = RolloutWorld({"stages": [canary, "rest"], "limits": {"atRisk": {"cluster": 3}}}, 6)
    world.bad_images.add(SECOND)
    world.commit(SECOND)
    world.one_turn()
    world.kubelets()
    world.kubelets()
    (failed,) = world.on(SECOND)
    inputs = world.inputs()
    assert inputs is not None
    fleet = StagedNodes.of(decide.layout(world.observe()), inputs)
    assert fleet.attributed.alone == {failed}
    (further,) = node_selection.witness(fleet, inputs.policy.stages)
    assert further in fleet.members[0]
    assert node_selection.witness(fleet, inputs.policy.stages[1:]) == ()
    halted = replace(inputs, record=replace(inputs.record, halt=Halt(1.0, "canary", "no")))
    assert node_selection.witness(replace(fleet, inputs=halted), inputs.policy.stages) == ()
    limits = rollout_policy.decode({**ONE_AT_RISK, "stages": [canary, "rest"]})
    capped = replace(fleet, inputs=replace(inputs, policy=limits))
    assert node_selection.witness(capped, limits.stages) == ()
