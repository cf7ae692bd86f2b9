"""A pinned pod that the scheduler binds at the end of the earlier pod: what it waits for, and from
when it is judged.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.decision import CreatePod, DeletePod
from gitops_ds.core.rollouts.staged_rollout import NodeStep
from gitops_ds.daemonset import node_pods
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.kube.apimachinery.pods import pod_of
from gitops_ds.rollouts.decisions import failures
from gitops_ds.status import health
from tests.rollouts.rollout_world import SECOND, RolloutWorld

POLICY: dict[str, Any] = {"stages": [{"name": "canary", "nodes": {"count": 1}, "soak": "1h"}]}
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
