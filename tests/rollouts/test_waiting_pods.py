"""A pinned pod that the scheduler binds at the end of the earlier pod: what it waits for, and from
when it is judged.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.daemonset import Phase, Pod
from gitops_ds.core.decision import CreatePod, DeletePod, NominatePod
from gitops_ds.core.rollouts.staged_rollout import Halt, NodeStep, RolloutTarget
from gitops_ds.core.values import replace
from gitops_ds.daemonset import node_pods
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.kube.apimachinery.pods import pod_of
from gitops_ds.rollouts.decisions import failures, pinned_pods, stage_inputs
from gitops_ds.status import health
from tests.rollouts.rollout_world import SECOND, RolloutWorld

POLICY: dict[str, Any] = {"stages": [{"name": "canary", "nodes": {"count": 1}, "soak": "1h"}]}
ALL: dict[str, Any] = {
    "stages": [{"name": "all", "pace": {"start": "100%", "max": "100%"}}],
    "limits": {"atRisk": {"cluster": "100%"}},
}
UNBOUND = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 1 node(s) didn't match pod anti-affinity rules",
}


def begun(grace: int = 30) -> tuple[RolloutWorld, dict[str, Any]]:
    """A rollout that has deleted the pod of its canary, and the body of the pod that waits."""
    world = RolloutWorld(POLICY, 3)
    world.body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = grace
    world.prove("0", at=world.now - 10.0)
    world.commit(SECOND)
    world.one_turn()
    waiting = next(body for body in world.pods.values() if "nodeName" not in body["spec"])
    waiting["status"] = {"phase": "Pending", "conditions": [UNBOUND]}
    return world, waiting


def test_the_earlier_pod_is_marked_before_it_is_deleted_and_the_new_one_is_kept_apart() -> None:
    world = RolloutWorld(POLICY, 3)
    world.commit(SECOND)
    decided = world.one_turn()
    assert decided is not None
    delete, create = (
        action for action in decided.decision.actions if isinstance(action, DeletePod | CreatePod)
    )
    assert isinstance(delete, DeletePod)
    assert isinstance(create, CreatePod)
    assert delete.mark is not None
    assert (delete.mark.uid, delete.mark.daemonset) == (delete.uid, world.observe().daemonset.uid)
    spec = create.body["spec"]
    assert "schedulingGates" not in spec
    terms = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = {"matchLabels": {names.REPLACED: delete.mark.daemonset}}
    assert terms == [{"labelSelector": labels, "topologyKey": "kubernetes.io/hostname"}]


def test_a_pod_that_another_client_deleted_is_marked_before_the_new_one_is_created() -> None:
    world, waiting = begun()
    name = next(n for n, body in world.pods.items() if pod_of(body).node == pod_of(waiting).node)
    del world.pods[waiting["metadata"]["name"]]
    world.pods[name]["metadata"]["labels"].pop(names.REPLACED)
    decided = world.one_turn()
    assert decided is not None
    (create,) = (action for action in decided.decision.actions if isinstance(action, CreatePod))
    assert [one.key.name for one in create.after] == [name]


def test_each_earlier_pod_is_marked_once() -> None:
    """By its delete, or else before the create of the new pod."""
    world = RolloutWorld(POLICY, 3)
    world.commit(SECOND)
    decided = world.one_turn()
    assert decided is not None
    (create,) = (action for action in decided.decision.actions if isinstance(action, CreatePod))
    assert create.after == ()  # the delete of the same turn marks it
    del world.pods[create.body["metadata"]["name"]]
    decided = world.one_turn()
    assert decided is not None
    (create,) = (action for action in decided.decision.actions if isinstance(action, CreatePod))
    assert create.after == ()  # it has its mark


def test_a_pinned_pod_states_the_boot_of_its_node_if_that_is_known() -> None:
    world = RolloutWorld(ALL, 3)
    world.nodes[0]["status"]["nodeInfo"] = {"bootID": "boot-0"}
    world.commit(SECOND)
    decided = world.one_turn()
    assert decided is not None
    stated = {
        pod_of(action.body).node: action.body["metadata"]["annotations"].get(names.BOOT_ID)
        for action in decided.decision.actions
        if isinstance(action, CreatePod)
    }
    assert stated == {"node-000": "boot-0", "node-001": None, "node-002": None}


def test_a_pod_that_waits_is_not_a_failure_as_long_as_the_earlier_one_ends() -> None:
    world, waiting = begun()
    (uid,) = node_pods.waiting(world.observe().pods)
    assert uid == waiting["metadata"]["uid"]
    world.now += 60.0
    decided = world.one_turn()
    assert decided is not None
    (step,) = (node for node in decided.stages.nodes if node.node == pod_of(waiting).node)
    assert (step.step, step.reason) == (NodeStep.REPLACING, "EarlierPodEnds")
    assert decided.stages.halt is None
    (trouble,) = (node for node in health.judge(world.observe()).nodes if node.node == step.node)
    assert (trouble.reason, trouble.message) == ("Terminating", "the earlier pod has not ended yet")


@pytest.mark.parametrize("grace", [2, 30, 600])
def test_a_pod_is_judged_from_the_end_of_the_earlier_one_however_long_that_takes(
    grace: int,
) -> None:
    world, waiting = begun(grace)
    pod = pod_of(waiting)
    assert failures.touched(pod) == pytest.approx(world.now + grace, abs=1.0)
    bound = {**UNBOUND, "status": "True", "lastTransitionTime": timestamps.text(world.now + 1.0)}
    waiting["spec"]["nodeName"] = pod.node
    waiting["status"] = {"phase": "Pending", "conditions": [bound]}
    assert failures.touched(pod_of(waiting)) == pytest.approx(world.now + 1.0, abs=1.0)


def test_a_pod_waits_for_a_bound_one_that_has_not_ended_on_its_node() -> None:
    def pod(name: str, **more: Any) -> Pod:
        return Pod("logging", name, name, node="a", **more)

    def pinned(name: str, **more: Any) -> Pod:
        return pod(name, labels={names.ROLLOUT: "x"}, **more)

    new, old = pinned("new"), pod("old", bound=True)
    assert node_pods.waiting([new, old]) == {"new"}
    assert node_pods.waiting([new, replace(old, terminating=True)]) == {"new"}
    ended = replace(old, terminating=True, phase=Phase.SUCCEEDED)
    assert node_pods.waiting([new, ended]) == frozenset()
    assert node_pods.waiting([new, replace(old, node="b")]) == frozenset()
    assert node_pods.waiting([new, pinned("beside")]) == frozenset()
    assert node_pods.waiting([old, pinned("bound", bound=True)]) == frozenset()


def test_a_pod_of_the_target_without_a_place_is_named_by_its_node() -> None:
    target = RolloutTarget("", {}, "target", "u", hashes=frozenset({"t"}))

    def pod(name: str, **more: Any) -> Pod:
        fields = {"trouble": "Unschedulable", "hash": "t", "created": 5.0, **more}
        return Pod("logging", name, name, node=name, labels={names.ROLLOUT: "x"}, **fields)

    some = [
        pod("a"),
        pod("bound", bound=True),
        pod("ended", phase=Phase.FAILED),
        pod("well", trouble=""),
        pod("other", hash="o"),
        pod("waits"),
        Pod("logging", "earlier", "earlier", node="waits", bound=True),
    ]
    seen = replace(RolloutWorld(POLICY, 3).observe(), pods=tuple(some))
    assert stage_inputs.unplaced(seen, target) == {"a": 5.0}


def test_pods_with_a_gate_of_an_earlier_version_are_deleted_and_no_others() -> None:
    world = RolloutWorld(POLICY, 3)
    assert pinned_pods.ungated(world.observe()) == ()
    gated = next(iter(world.pods.values()))
    gated["spec"]["schedulingGates"] = [{"name": names.SCHEDULING_GATE}]
    (delete,) = pinned_pods.ungated(world.observe())
    assert isinstance(delete, DeletePod)
    assert delete.uid == gated["metadata"]["uid"]


@pytest.mark.parametrize(
    ("halt", "held", "is_deleted"),
    [
        (None, "", False),
        (Halt(1.0, "canary", "no"), "", True),
        (None, "its template was halted before", True),
    ],
)
def test_a_rollout_that_is_halted_starts_no_pod_that_waits(
    halt: Halt | None, held: str, is_deleted: bool
) -> None:
    world, waiting = begun()
    inputs = world.inputs()
    assert inputs is not None
    inputs = replace(inputs, record=replace(inputs.record, halt=halt), held=held)
    actions = pinned_pods.decide_pinned(world.observe(), inputs).decision.actions
    deleted = {action.uid for action in actions if isinstance(action, DeletePod)}
    assert deleted == ({waiting["metadata"]["uid"]} if is_deleted else set())
    del world.pods[waiting["metadata"]["name"]]
    actions = pinned_pods.decide_pinned(world.observe(), inputs).decision.actions
    assert any(isinstance(action, CreatePod) for action in actions) is not is_deleted


@pytest.mark.parametrize(
    ("nominates", "held", "is_nominated"),
    [(True, "", True), (False, "", False), (True, "its template was halted before", False)],
)
def test_a_pod_that_waits_is_nominated_once_unless_its_rollout_is_halted(
    nominates: bool, held: str, is_nominated: bool
) -> None:
    world, waiting = begun()
    inputs = world.inputs()
    assert inputs is not None
    inputs = replace(inputs, nominates=nominates, held=held)

    def nominated() -> list[NominatePod]:
        actions = pinned_pods.decide_pinned(world.observe(), inputs).decision.actions
        return [action for action in actions if isinstance(action, NominatePod)]

    found = nominated()
    assert [(one.uid, one.node) for one in found] == (
        [(waiting["metadata"]["uid"], pod_of(waiting).node)] if is_nominated else []
    )
    for action in found:
        world.perform(action)
    assert nominated() == []
