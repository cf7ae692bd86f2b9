"""Attacks on staged rollouts by an account that may write ControllerRevisions: the record, the
approvals and the proof of a rollout are annotations of its target revision.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from gitops_ds.core import names
from gitops_ds.core.decision import Powers
from gitops_ds.core.events.rollouts import RolloutHalted
from gitops_ds.core.objects import CONFIG_MAP, CONTROLLER_REVISION, DAEMONSET, POD, Body
from gitops_ds.core.rollouts.proven_templates import ProofKind, TemplateProof
from gitops_ds.core.rollouts.staged_rollout import FailedNode, Halt, HoldKind, RolloutRecord
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import daemonsets, revisions
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.rollouts.state import keys, proofs, rollout_ledger, target_revisions
from gitops_ds.testing.simulator import faults as simulator_faults
from gitops_ds.testing.simulator.faults import RequestFault, Silence, SimulatedRequest
from tests.deploy import rollout_scene
from tests.deploy.rollout_scene import POLICY, Scene, both, ends

play = rollout_scene.play
CANARIES = 2
HALT = Halt(time.time(), "canary", "forged", (FailedNode("node-0", "Forged"),))


async def target_of(scene: Scene) -> Body:
    name = (await scene.daemonset())["metadata"]["annotations"][keys.TARGET]
    return await scene.cluster.get(CONTROLLER_REVISION, "default", name)


async def forge(scene: Scene, **annotations: str | None) -> None:
    """Another writer gives annotations to the target revision."""
    body = await target_of(scene)
    patch = {"metadata": {"annotations": annotations}}
    mallory = scene.cluster.client("mallory")
    await mallory.patch(CONTROLLER_REVISION, "default", body["metadata"]["name"], patch)


async def at_canary(scene: Scene) -> RolloutRecord:
    """A rollout whose canary soaks; its record."""
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == CANARIES)
    await asyncio.sleep(10)
    return scene.record()


async def stays_at_canary(scene: Scene, seconds: int = 60) -> None:
    for _ in range(seconds // 5):
        await asyncio.sleep(5)
        assert len(scene.on("2")) <= CANARIES
        assert await scene.tag() == "1"


async def test_a_forged_halt_does_not_count(scene: Scene, /) -> None:
    record = await at_canary(scene)
    text = target_revisions.encoded(replace(record, halt=HALT))
    await forge(scene, **{keys.ROLLOUT_RECORD: text})
    for _ in range(12):
        await asyncio.sleep(5)
        assert scene.loop is not None
        assert scene.loop.stopped_rollouts is None or scene.loop.stopped_rollouts.halted == ()
    assert not any(isinstance(event, RolloutHalted) for event in scene.events)
    await ends(scene, "2")


@both
async def test_a_forged_passed_stage_opens_none(scene: Scene, /, powers: Powers) -> None:
    record = await at_canary(scene)
    forged = replace(record, passed={"canary": time.time(), "rest": time.time()}, early=True)
    await forge(scene, **{keys.ROLLOUT_RECORD: target_revisions.encoded(forged)})
    await stays_at_canary(scene)
    await ends(scene, "2")


async def test_a_forged_proof_of_the_target_ends_no_rollout(scene: Scene, /) -> None:
    await at_canary(scene)
    revision = revisions.revision_of(await target_of(scene))
    assert revision is not None
    identity = proofs.identity(revision.template)
    proof = TemplateProof(identity, "f" * 40, time.time(), ProofKind.ROLLOUT, since=9e12)
    await forge(scene, **{keys.PROOF: proofs.encoded(proof)})
    await stays_at_canary(scene)
    await ends(scene, "2")


@pytest.mark.play(
    policy=POLICY.replace("name: rest,", "name: rest, approval: {from: [team-a]},"),
    options=ApplyOptions(patience=0.0, approvers=frozenset({"team-a"}), drift=DriftPolicy.REPORT),
)
async def test_a_stage_of_approvers_opens_by_no_annotation_of_others(scene: Scene, /) -> None:
    scene.push("2")
    await asyncio.sleep(1200)
    rollout = scene.observed()
    assert rollout is not None
    text = f'[{{"stage":"rest","hash":"{rollout.target.hash}","from":"team-a","by":"eve"}}]'
    await forge(scene, **{keys.APPROVALS: text})
    await stays_at_canary(scene)
    await forge(scene, **{keys.APPROVERS: None, names.APPROVE: "rest"})
    await stays_at_canary(scene)
    assert scene.controller is not None
    scene.controller.claim("without-approvers")
    patch = {"metadata": {"labels": {names.OWNER_LABEL: "without-approvers"}}}
    await scene.cluster.client("mallory").patch(DAEMONSET, "default", "agent", patch)
    await stays_at_canary(scene)


async def test_a_restart_at_any_write_of_a_record_loses_none(scene: Scene, /) -> None:
    """Each process ends at the write of a digest or of a record, which happens or does not."""
    await at_canary(scene)
    killed = [0]

    def kill(request: SimulatedRequest) -> RequestFault | None:
        of_record = request.resource in (CONFIG_MAP, CONTROLLER_REVISION)
        if of_record and request.verb == "patch" and killed[0] < 6:
            killed[0] += 1
            asyncio.get_running_loop().call_later(1, scene.kill)
            return Silence(done=killed[0] % 2 == 0)
        return None

    scene.faults, seen = kill, list[RolloutRecord]()
    for _ in range(25):
        scene.kill()
        scene.start()
        await asyncio.sleep(20)
        seen.append(scene.record())
    assert killed[0] == 6
    passed = [record.passed.get("canary") for record in seen if record.passed]
    assert len(set(passed)) <= 1, "a passed stage stays passed"
    await ends(scene, "2")


async def test_records_of_a_version_without_digests_are_adopted_once(scene: Scene, /) -> None:
    await at_canary(scene)
    await asyncio.sleep(125)
    before = scene.record()
    assert before.passed.keys() == {"canary"}
    scene.kill()
    name = rollout_ledger.CONFIG_MAP_NAME
    await scene.cluster.delete(CONFIG_MAP, "gitops-ds", name)
    scene.start()
    await asyncio.sleep(5)
    assert scene.record().passed == before.passed
    scene.kill()
    text = target_revisions.encoded(replace(scene.record(), halt=HALT))
    await forge(scene, **{keys.ROLLOUT_RECORD: text})
    scene.start()
    await ends(scene, "2")
    assert not any(isinstance(event, RolloutHalted) for event in scene.events)


async def test_a_pod_with_the_labels_of_the_target_alone_does_not_count(scene: Scene, /) -> None:
    """Another writer replaces the pod of a canary by one that runs something else."""
    await at_canary(scene)
    node = min(scene.on("2"))
    _, pod = scene.pods()[node]
    mallory = scene.cluster.client("mallory")
    body = await mallory.get(POD, pod.namespace, pod.name)
    metadata = {name: body["metadata"][name] for name in ("labels", "annotations", "namespace")}
    metadata |= {"name": "forged", "ownerReferences": body["metadata"]["ownerReferences"]}
    container = {**body["spec"]["containers"][0], "image": "forged:9"}
    spec = {**body["spec"], "containers": [container], "nodeName": node}
    await mallory.delete(POD, pod.namespace, pod.name)
    await mallory.create(
        POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    )
    await asyncio.sleep(60)
    assert scene.pods()[node][0] == "2"
    await ends(scene, "2")


async def test_a_halt_of_a_daemonset_of_others_halts_no_other_rollout(scene: Scene, /) -> None:
    """The controller of Kubernetes copies the annotations of a DaemonSet to its revisions."""
    assert scene.controller is not None
    scene.controller.claim("test")
    record = await at_canary(scene)
    ours = await scene.daemonset()
    policy = ours["metadata"]["annotations"][keys.ROLLOUT_POLICY]
    policy = policy.replace('"stages"', '"onFailure":{"scope":"cluster"},"stages"')
    annotations = {
        **ours["metadata"]["annotations"],
        keys.ROLLOUT_POLICY: policy,
        keys.TARGET: "tenant-1",
    }
    mallory = scene.cluster.client("mallory")
    metadata = {"name": "tenant", "namespace": "default", "annotations": annotations}
    labels = {"matchLabels": {"app": "tenant"}}
    pod = {**ours["spec"]["template"]["spec"], "nodeSelector": {"no": "where"}}
    template = {"metadata": {"labels": labels["matchLabels"]}, "spec": pod}
    made = await mallory.create(
        DAEMONSET,
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": metadata,
            "spec": {"selector": labels, "template": template},
        },
    )
    revision = target_revisions.body_of(daemonsets.daemonset_of(made), template, "")
    text = target_revisions.encoded(replace(record, halt=HALT))
    revision["metadata"] |= {"name": "tenant-1", "annotations": {keys.ROLLOUT_RECORD: text}}
    await mallory.create(CONTROLLER_REVISION, revision)
    await scene.until(lambda: len(scene.on("2")) > CANARIES, minutes=10)


@both
@pytest.mark.parametrize("owned", [False, True])
async def test_a_target_that_another_writer_replaced_gets_no_pod_and_the_rollout_continues(
    scene: Scene, /, powers: Powers, owned: bool
) -> None:
    """Deleted and created again under its name with another template, `owned` as by the DaemonSet
    controller, while the deployer has no answers.
    """
    await at_canary(scene)
    before = await target_of(scene)
    metadata = {
        name: before["metadata"][name]
        for name in ("name", "namespace", "labels", "annotations", "ownerReferences")
    }
    if owned:
        references = [{**one, "controller": True} for one in metadata["ownerReferences"]]
        metadata |= {"ownerReferences": references, "labels": {"app": "agent"}}
    forged = {**before, "metadata": metadata, "data": _with_tag(before["data"], "evil")}
    scene.of_deployer = lambda _: simulator_faults.failure(503)
    server = scene.cluster.server
    server.delete(CONTROLLER_REVISION, "default", metadata["name"])
    server.create(CONTROLLER_REVISION, forged, names.FIELD_MANAGER)
    for _ in range(24):
        await asyncio.sleep(5)
        assert scene.on("evil") == set()
    hold = scene.decision.hold
    assert hold is not None
    assert (hold.kind, keys.TARGET in hold.reason) == (HoldKind.EDITED, True)
    scene.of_deployer = simulator_faults.none
    await scene.until(lambda: len(scene.on("2")) > CANARIES)
    await ends(scene, "2")


def _with_tag(data: Body, tag: str) -> Body:
    template = data["spec"]["template"]
    containers = [{**template["spec"]["containers"][0], "image": f"example.com/agent:{tag}"}]
    return {
        "spec": {"template": {**template, "spec": {**template["spec"], "containers": containers}}}
    }
