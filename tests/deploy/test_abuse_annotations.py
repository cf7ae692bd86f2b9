"""Attacks on staged rollouts by an account that may write DaemonSets, but no ControllerRevisions.

The DaemonSet controller copies annotations of a DaemonSet, and labels of its template, to the
revisions that it creates.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import msgspec

from gitops_ds.core import names
from gitops_ds.core.decision import DeletePod, Powers
from gitops_ds.core.events.base import Performed
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, Body
from gitops_ds.core.rollouts.proven_templates import TemplateProof
from gitops_ds.core.rollouts.staged_rollout import FailedNode, Halt, RolloutRecord
from gitops_ds.rollouts.state import keys, proofs
from gitops_ds.testing.simulator import NodeSpec
from tests.deploy import rollout_scene
from tests.deploy.rollout_scene import Scene, both, ends

play = rollout_scene.play
CANARIES = 2


async def edit(scene: Scene, annotations: Mapping[str, str], template: Body) -> None:
    """An edit of the DaemonSet by the attacker, who calls the field manager as ours: so nothing is
    in conflict with the deployer.
    """
    live = await scene.daemonset()
    metadata = {name: live["metadata"][name] for name in ("name", "namespace", "labels")}
    metadata["annotations"] = {**live["metadata"]["annotations"], **annotations}
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata,
        "spec": {**live["spec"], "template": template},
    }
    mallory = scene.cluster.client("mallory")
    await mallory.apply(DAEMONSET, body, manager=names.FIELD_MANAGER, force=True)


def digest(body: Body) -> str:
    """The digest of the template in Git, from the proof of the template in force."""
    proof = proofs.in_force(body["metadata"]["annotations"])
    assert proof is not None
    assert proof.source
    return proof.source


def revision(body: Body, **annotations: str) -> Body:
    """The revision that the built-in controller creates after an edit of the DaemonSet with these
    annotations, and with the label of a target revision in the template.
    """
    metadata = body["metadata"]
    template = dict(body["spec"]["template"])
    labels = {**template["metadata"]["labels"], names.ROLLOUT: "forged"}
    template["metadata"] = {**template["metadata"], "labels": labels}
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": "agent-forged",
            "namespace": "default",
            "labels": {**labels, names.REVISION_HASH: "forged"},
            "annotations": {**metadata["annotations"], **annotations},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "DaemonSet",
                    "name": "agent",
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "revision": 99,
        "data": {"spec": {"template": {**template, "$patch": "replace"}}},
    }


@both
async def test_a_forged_halt_causes_no_revert(scene: Scene, /, powers: Powers) -> None:
    scene.push("2")
    await ends(scene, "2")
    await asyncio.sleep(600)
    body = await scene.daemonset()
    halt = Halt(time.time(), "canary", "forged", (FailedNode("node-0", "Forged"),))
    forged = revision(
        body,
        **{
            keys.ROLLOUT_RECORD: msgspec.json.encode(RolloutRecord(halt=halt)).decode(),
            keys.TEMPLATE_DIGEST: digest(body),
            names.COMMIT: scene.history.id(1),
            keys.SINCE: scene.history.id(0),
        },
    )
    await scene.cluster.client("kube-controller-manager").create(CONTROLLER_REVISION, forged)
    await edit(scene, {keys.TARGET: "agent-forged"}, body["spec"]["template"])
    for _ in range(20):
        await asyncio.sleep(10)
        assert scene.loop is not None
        assert scene.loop.stopped_rollouts is not None
        assert scene.loop.stopped_rollouts.halted == ()
    assert scene.on("2") == set(scene.pods())


@both
async def test_a_forged_proof_proves_no_template(scene: Scene, /, powers: Powers) -> None:
    scene.push("2")
    await ends(scene, "2")
    await asyncio.sleep(600)
    body = await scene.daemonset()
    forged = revision(body)
    template = {**forged["data"]["spec"]["template"]}
    del template["$patch"]
    proof = TemplateProof(proofs.identity(template), "f" * 40, 9e12, since=9e12)
    text = proofs.encoded(proof)
    forged["metadata"]["annotations"][keys.PROOF] = text
    await scene.cluster.client("kube-controller-manager").create(CONTROLLER_REVISION, forged)
    await edit(scene, {keys.TARGET: "agent-forged", keys.PROVEN: text}, template)
    for _ in range(60):
        await asyncio.sleep(10)
        assert scene.loop is not None
        assert scene.loop.deployer_state is not None
        ((_, history),) = scene.loop.deployer_state.templates.items()
        assert history.proof is not None
        assert history.proof.template != proof.template
        assert proof.template not in {one.template for one in history.earlier}


@both
async def test_a_template_with_the_label_of_a_rollout_loses_no_pod_again_and_again(
    scene: Scene, /, powers: Powers
) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == CANARIES)
    labels = {"metadata": {"labels": {names.ROLLOUT: "forged"}}}
    patch = {"spec": {"template": labels}}
    mallory = scene.cluster.client("mallory")
    await mallory.patch(DAEMONSET, "default", "agent", patch)
    await asyncio.sleep(5)
    before = len(scene.events)
    scene.cluster.add_nodes([NodeSpec("node-new")])
    await rollout_scene.delete(scene, "node-9")
    await asyncio.sleep(60)
    deletes = [
        event.action.node
        for event in scene.events[before:]
        if isinstance(event, Performed) and isinstance(event.action, DeletePod)
    ]
    assert not {"node-new", "node-9"} & set(deletes), deletes
    assert all(scene.pods()[node][1].ready for node in ("node-new", "node-9"))
    await scene.until(lambda: len(scene.on("2")) == rollout_scene.NODES + 1)
