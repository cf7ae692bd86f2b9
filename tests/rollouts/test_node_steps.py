"""The problems of a node that are not of its pod."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.daemonset import Pod
from gitops_ds.core.decision import Observation, RelabelPod
from gitops_ds.core.rollouts.staged_rollout import Halt, NodeProgress, NodeStep, StageInputs
from gitops_ds.core.values import replace
from gitops_ds.daemonset import decide
from gitops_ds.kube.apimachinery import nodes, pod_contents, pods, timestamps
from gitops_ds.rollouts.decisions import failures, node_steps, pinned_pods
from gitops_ds.rollouts.decisions.node_steps import NodeSteps
from gitops_ds.rollouts.decisions.staged_nodes import StagedNodes
from gitops_ds.rollouts.state import keys
from tests.daemonset.world import OWNER, node
from tests.rollouts.rollout_world import SECOND, RolloutWorld


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        ({"ready": False, "unschedulable": True}, "NodeNotReady"),
        ({"deleting": True, "troubles": ("MemoryPressure",)}, "NodeDeleting"),
        ({"troubles": ("MemoryPressure",), "unschedulable": True}, "MemoryPressure"),
        ({"troubles": ("DiskPressure", "PIDPressure")}, "DiskPressure"),
        ({"unschedulable": True}, "NodeCordoned"),
    ],
)
def test_a_node_has_its_worst_problem(changes: dict[str, Any], expected: str) -> None:
    healthy = nodes.node_of(node("a"))
    assert node_steps.node_problem(replace(healthy, **changes)) == expected


def seconds_to_halt(reasons: list[str] | None) -> float:
    """The simulated time from the commit of an image that never starts to the halt."""
    policy = {"stages": [{"name": "canary", "nodes": {"count": 2}, "soak": "60s"}, "rest"]}
    gates = {} if reasons is None else {"gates": {"pods": {"reasons": reasons}}}
    world = RolloutWorld({**policy, **gates}, 6)
    world.bad_images.add(SECOND)
    world.commit(SECOND)
    began = world.now
    for _ in range(300):
        world.pass_time()
        if world.last is not None and world.stages.halt is not None:
            return world.now - began
    raise AssertionError(world.last)


def test_a_reason_of_the_template_fails_a_pod_at_once_unless_the_gate_allows_it() -> None:
    assert seconds_to_halt(None) < 30
    assert seconds_to_halt(["CrashLoopBackOff"]) < 30
    assert 180 <= seconds_to_halt(["ImagePullBackOff", "ErrImagePull"]) < 240


def test_the_clock_of_a_node_does_not_shorten_the_soak() -> None:
    world = RolloutWorld({"stages": [{"name": "canary", "soak": "1h"}, "rest"]}, 6)
    world.commit(SECOND)
    for _ in range(20):
        world.pass_time()
        for body in world.pods.values():
            for condition in (body.get("status") or {}).get("conditions") or ():
                condition["lastTransitionTime"] = timestamps.text(world.now - 86_400)
    assert len(world.on(SECOND)) == 1
    world.now += 3_600
    world.pass_time()
    assert "canary" in world.stages.record.passed


CANARY: dict[str, Any] = {
    "stages": [{"name": "canary", "nodes": {"count": 2}, "soak": "1h"}, "rest"]
}


def edited_to_the_target(
    owned: bool, policy: dict[str, Any] = CANARY
) -> tuple[RolloutWorld, set[str]]:
    """A rollout with its canary, and a pod on another node that an edit to the target made."""
    world = RolloutWorld(policy, 6, owned=owned)
    canary = world.canary()
    edited = copy.deepcopy(
        next(revision for revision in world.revisions.values() if revision["revision"] == 0)
    )
    edited["metadata"] |= {
        "name": "agent-edited",
        "labels": {"app": "agent", names.REVISION_HASH: "edited"},
        "ownerReferences": [OWNER],
    }
    world.revisions["agent-edited"] = world._born(edited) | {"revision": 2}
    pod = next(body for body in world.pods.values() if pods.pod_of(body).node not in canary)
    pod["metadata"]["labels"][names.REVISION_HASH] = "edited"
    pod["metadata"]["creationTimestamp"] = timestamps.text(world.now)
    pod["spec"]["containers"][0]["image"] = SECOND
    world.start(pod)
    return world, canary


@pytest.mark.parametrize("owned", [False, True])
def test_a_pod_of_an_edit_to_the_target_is_returned_before_its_stage(owned: bool) -> None:
    world, canary = edited_to_the_target(owned)
    assert len(world.on(SECOND)) == 3
    for _ in range(20):
        world.pass_time()
    assert world.on(SECOND) == canary


@pytest.mark.parametrize(
    ("halt", "held", "is_returned"),
    [
        (None, "", False),  # it is updated in its stage
        (Halt(1.0, "wide", "no"), "", True),
        (None, "its template was halted before", True),
    ],
)
def test_a_pod_of_an_edit_to_the_target_is_returned_when_the_rollout_is_halted(
    halt: Halt | None, held: str, is_returned: bool
) -> None:
    pace = {"start": 2, "factor": 1}
    wide = {"name": "wide", "nodes": {"count": 6}, "soak": "1h", "pace": pace}
    policy = {"stages": [wide], "limits": {"atRisk": {"cluster": 2}}}
    world, canary = edited_to_the_target(owned=False, policy=policy)
    (edited,) = world.on(SECOND) - canary
    inputs = world.inputs()
    assert inputs is not None
    inputs = replace(inputs, record=replace(inputs.record, halt=halt), held=held)
    returned = pinned_pods.decide_pinned(world.observe(), inputs).stages.returned
    assert returned == ((edited,) if is_returned else ())


@pytest.mark.parametrize("owned", [False, True])
def test_a_pod_under_the_hash_of_another_revision_keeps_it_until_the_target_is_promoted(
    owned: bool,
) -> None:
    world, _ = edited_to_the_target(owned)
    decided = world.staged_turn()
    assert decided is not None
    assert not any(isinstance(one, RelabelPod) for one in decided.decision.actions)


def test_canary_nodes_that_are_replaced_by_machines_with_their_names_halt_nothing() -> None:
    policy = {"stages": [{"name": "canary", "nodes": {"count": 2}, "soak": "1h"}, "rest"]}
    world = RolloutWorld(policy, 6)
    canary = world.canary()
    for body in world.nodes:
        if body["metadata"]["name"] in canary:
            body["metadata"]["creationTimestamp"] = timestamps.text(world.now + 5)
            body["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    world.now += 10
    world.pass_time()
    assert world.stages.halt is None
    reasons = {one.reason for one in world.stages.nodes if one.node in canary}
    assert reasons == {"NodeReplaced"}


@pytest.mark.parametrize(("per_node", "seconds"), [("10m", 120.0), ("30s", 30.0)])
def test_a_node_starts_until_its_pod_has_had_its_time(per_node: str, seconds: float) -> None:
    """`readyWithin` of its gate, and at most `perNode`."""
    policy: dict[str, Any] = {"stages": [{"name": "canary", "soak": "1m"}, "rest"]}
    gates = {"pods": {"readyWithin": "2m"}}
    world = RolloutWorld({**policy, "gates": gates, "progress": {"perNode": per_node}}, 3)
    (name,) = world.canary(nodes=1)
    world.until(lambda: any(pods.pod_of(body).bound for body in world.pods.values()))
    (body,) = (one for one in world.pods.values() if pods.pod_of(one).node == name)
    world.start(body, ready=False)
    del body["status"]["containerStatuses"]
    pod, inputs = pods.pod_of(body), world.inputs()
    assert inputs is not None
    found = StagedNodes.of(decide.layout(world.observe()), inputs).nodes[name]
    assert found.step is NodeStep.STARTING
    assert found.until == failures.started(pod) + seconds


def canary() -> tuple[str, Observation, StageInputs, Pod]:
    """The node of a canary that soaks, and its pod."""
    world = RolloutWorld({"stages": [{"name": "canary", "soak": "1h"}, "rest"]}, 3)
    (name,) = world.canary(nodes=1)
    world.pass_time()
    seen, inputs = world.observe(), world.inputs()
    assert inputs is not None
    (pod,) = (pod for pod in seen.pods if pod.node == name)
    return name, seen, inputs, pod


@pytest.mark.parametrize(
    ("seconds", "reason"), [(-1.0, "NodeNotReady"), (0.0, "NodeNotReady"), (1.0, "NodeReplaced")]
)
def test_a_node_is_another_machine_if_it_is_newer_than_the_pod_that_it_runs(
    seconds: float, reason: str
) -> None:
    name, seen, inputs, pod = canary()
    created = failures.touched(pod) + seconds
    changed = (
        replace(one, created=created, ready=False) if one.name == name else one
        for one in seen.nodes
    )
    layout = decide.layout(replace(seen, nodes=tuple(changed)))
    assert StagedNodes.of(layout, inputs).nodes[name].reason == reason


@pytest.mark.parametrize(
    ("message", "step", "cause"),
    [
        ("dial tcp: i/o timeout", NodeStep.SET_ASIDE, "the registry"),
        ("manifest unknown", NodeStep.FAILED, ""),
    ],
)
def test_a_pull_that_fails_by_the_registry_is_not_a_failure_of_the_template(
    message: str, step: NodeStep, cause: str
) -> None:
    world = RolloutWorld({"stages": [{"name": "canary", "soak": "1h"}, "rest"]}, 3)
    world.bad_images.add(SECOND)
    (name,) = world.canary(nodes=1)
    world.kubelets()
    world.kubelets()
    (body,) = (one for one in world.pods.values() if pods.pod_of(one).node == name)
    (status,) = body["status"]["containerStatuses"]
    waiting = {"reason": "ErrImagePull", "message": f'Pulling image "{SECOND}": {message}'}
    status["state"]["waiting"] = waiting
    inputs = world.inputs()
    assert inputs is not None
    found = StagedNodes.of(decide.layout(world.observe()), inputs).nodes[name]
    assert (found.step, found.reason, found.cause) == (step, "ErrImagePull", cause)


@pytest.mark.parametrize("owned", [False, True])
def test_pods_under_the_hash_of_a_deleted_revision_count_as_updated(owned: bool) -> None:
    world = RolloutWorld({"stages": ["rest"]}, 3, owned=owned)
    (hash,) = {pod["metadata"]["labels"][names.REVISION_HASH] for pod in world.pods.values()}
    proof = json.loads(world.body["metadata"]["annotations"][keys.PROVEN])
    world.body["metadata"]["annotations"][keys.PROVEN] = json.dumps({**proof, "hash": hash})
    (revision,) = world.revisions.values()
    world.revisions.clear()
    again = copy.deepcopy(revision)
    again["metadata"]["name"] = "agent-again"
    again["metadata"]["labels"][names.REVISION_HASH] = "again"
    world.revisions["agent-again"] = again
    uids = set(world.pods)
    for _ in range(4):
        world.pass_time()
    hashes = {pod["metadata"]["labels"][names.REVISION_HASH] for pod in world.pods.values()}
    assert hashes == {"again"}
    assert set(world.pods) == uids


@pytest.mark.parametrize(("image", "most"), [("agent:1", 1), ("agent:0", 6)])
def test_only_pods_that_certainly_run_another_template_are_returned_at_once(
    image: str, most: int
) -> None:
    """A policy that is applied again finds pods of a rollout whose revision was deleted."""
    world = RolloutWorld({"stages": ["rest"], "limits": {"atRisk": {"nodes": 1}}}, 6)
    for pod in world.pods.values():
        labels = pod["metadata"]["labels"]
        labels |= {names.REVISION_HASH: "deleted", names.ROLLOUT: "deleted"}
        del labels["pod-template-generation"]
        pod["spec"]["containers"][0]["image"] = image
    world.prove("1", world.now)
    inputs = world.inputs()
    assert inputs is not None
    contents = (pod_contents.of_template(inputs.target.template),)
    inputs = replace(inputs, target=replace(inputs.target, contents=contents))
    assert len(pinned_pods.decide_pinned(world.observe(), inputs).stages.take) == most


@pytest.mark.parametrize(("was_ready", "at_risk"), [(False, 0), (True, 1)])
def test_a_node_that_is_down_when_its_stage_passes_is_at_risk_only_after_its_proof(
    was_ready: bool, at_risk: int
) -> None:
    rest: dict[str, Any] = {"name": "rest", "approval": {"from": ["team"]}}
    world = RolloutWorld({"stages": [{"name": "canary", "nodes": {"count": 2}}, rest]}, 6)
    canary = sorted(world.canary())
    down = next(body for body in world.nodes if body["metadata"]["name"] == canary[0])
    world.until(lambda: "canary" in world.stages.record.passed)
    down["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    pod = next(body for body in world.pods.values() if pods.pod_of(body).node == canary[0])
    ready = {"type": "Ready", "status": "False"}
    created = pod["metadata"]["creationTimestamp"]
    ready["lastTransitionTime"] = timestamps.text(world.now) if was_ready else created
    pod["status"]["conditions"] = [ready]
    world.now += 5
    inputs = world.inputs()
    assert inputs is not None
    decided = pinned_pods.decide_pinned(world.observe(), inputs).stages
    assert decided.at_risk == at_risk
    step = next(one for one in decided.nodes if one.node == canary[0])
    assert step.reason == "NodeNotReady"
    assert (step.step is NodeStep.PROVED) == was_ready


@pytest.mark.parametrize(
    ("change", "step"),
    [
        ({}, NodeStep.SOAKING),
        ({"unschedulable": True}, NodeStep.SOAKING),
        ({"ready": False}, NodeStep.SET_ASIDE),
        ({"troubles": ("DiskPressure",)}, NodeStep.SET_ASIDE),
    ],
)
def test_a_cordon_does_not_end_the_soak_of_a_node(change: dict[str, Any], step: NodeStep) -> None:
    world = RolloutWorld({"stages": [{"name": "canary", "soak": "1h"}, "rest"]}, 3)
    (name,) = world.canary(nodes=1)
    world.pass_time()
    seen, inputs = world.observe(), world.inputs()
    assert inputs is not None
    seen = replace(
        seen,
        nodes=tuple(replace(one, **change) if one.name == name else one for one in seen.nodes),
    )
    found = StagedNodes.of(decide.layout(seen), inputs).nodes[name]
    assert (found.step, bool(found.reason)) == (step, step is NodeStep.SET_ASIDE)


@pytest.mark.parametrize(("arch", "cause"), [("amd64", "node"), ("arm64", "template")])
def test_a_failure_is_compared_with_nodes_of_its_platform_alone(arch: str, cause: str) -> None:
    platforms = [*["amd64"] * 3, arch]
    nodes = [node(f"node-{i}", {"kubernetes.io/arch": one}) for i, one in enumerate(platforms)]
    world = RolloutWorld({"stages": ["rest"]}, nodes)
    world.commit(SECOND)
    inputs = world.inputs()
    assert inputs is not None
    steps = [*[NodeStep.PROVED] * 3, NodeStep.FAILED]
    progress = {
        one.name: NodeProgress(one.name, "rest", step)
        for one, step in zip(world.observe().nodes, steps, strict=True)
    }
    found = NodeSteps(decide.layout(world.observe()), inputs).attributed(progress)
    assert found.template == (frozenset({"node-3"}) if cause == "template" else frozenset())


@pytest.mark.parametrize(("seconds", "is_abandoned"), [(-1.0, False), (0.0, False), (1.0, True)])
def test_a_pinned_pod_of_an_earlier_template_is_returned_if_it_is_newer_than_the_proof(
    seconds: float, is_abandoned: bool
) -> None:
    """Times of objects have whole seconds: one of the same second may be older."""
    world = RolloutWorld({"stages": [{"name": "all", "soak": "1s"}]}, 3)
    world.commit(SECOND)
    world.run()
    seen, inputs = world.observe(), world.inputs()
    assert inputs is not None
    earlier = next(one.hash for one in seen.revisions if one.hash not in inputs.target.proven)
    steps = NodeSteps(decide.layout(seen), replace(inputs, halted=frozenset({earlier})))
    since = inputs.target.since
    pod = replace(seen.pods[0], hash=earlier, labels={names.ROLLOUT: earlier})
    assert steps.is_abandoned(replace(pod, created=since + seconds)) is is_abandoned


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_node_that_was_touched_after_its_stage_passed_soaks(seconds: float) -> None:
    name, seen, inputs, pod = canary()
    touched = failures.touched(pod)
    pod = replace(pod, created=touched)
    seen = replace(seen, pods=(*(one for one in seen.pods if one.uid != pod.uid), pod))
    passed = {"canary": touched - seconds}
    inputs = replace(inputs, record=replace(inputs.record, passed=passed))
    layout = decide.layout(seen)
    node_pods = next(one for one in layout.nodes if one.node == name)
    found = NodeSteps(layout, inputs).of(node_pods, inputs.policy.stages[0], is_passed=True)
    assert found.step is (NodeStep.SOAKING if seconds else NodeStep.PROVED)


def test_a_proved_node_whose_pod_lost_its_readiness_has_its_time_to_get_it_back() -> None:
    world = RolloutWorld({"stages": [{"name": "canary", "soak": "1m"}, "rest"]}, 3)
    (name,) = world.canary(nodes=1)
    world.until(lambda: "canary" in world.stages.record.passed)
    world.now += 10
    (body,) = (one for one in world.pods.values() if pods.pod_of(one).node == name)
    world.start(body, ready=False)
    del body["status"]["containerStatuses"]
    lost_at, inputs = world.now, world.inputs()
    assert inputs is not None
    found = StagedNodes.of(decide.layout(world.observe()), inputs).nodes[name]
    assert (found.step, found.reason) == (NodeStep.PROVED, "NotReady")
    assert (found.until, found.ran) == (lost_at + 180.0, 0.0)


@pytest.mark.parametrize("owned", [False, True])
def test_a_rollout_is_decided_again_at_the_end_of_a_soak(owned: bool) -> None:
    world = RolloutWorld({"stages": [{"name": "canary", "soak": "1h"}, "rest"]}, 3, owned=owned)
    (name,) = world.canary(nodes=1)
    world.pass_time()
    world.one_turn()
    (step,) = (one for one in world.stages.nodes if one.node == name)
    assert step.until is not None
    world.now = step.until - 0.25
    staged = world.staged_turn()
    assert staged is not None
    assert staged.decision.wake_after == 0.25
