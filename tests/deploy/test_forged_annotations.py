"""Who may write DaemonSets copies the field manager of gitops-ds too: the annotations that a
rollout reads count only as the deployer announced them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping

import pytest

from gitops_ds.core import names
from gitops_ds.core.decision import Powers
from gitops_ds.core.events.rollouts import RolloutHeld
from gitops_ds.core.objects import CONFIG_MAP, CONTROLLER_REVISION, DAEMONSET, POD, Body
from gitops_ds.core.rollouts.proven_templates import ProofKind, TemplateProof
from gitops_ds.core.rollouts.staged_rollout import HoldKind
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.kube.apimachinery import daemonsets, revisions
from gitops_ds.kube.client.owned_bodies import OwnedBodies
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.rollouts.state import announced_daemonsets, keys, proofs, rollout_ledger
from gitops_ds.rollouts.state.announced_daemonsets import DaemonSetWrite
from gitops_ds.rollouts.state.daemonset_statements import RolloutPhase
from gitops_ds.status import agent_lists, agents
from gitops_ds.testing.simulator import PodFault, Trouble
from gitops_ds.testing.simulator import faults as simulator_faults
from gitops_ds.testing.simulator.faults import RequestFault, Silence, SimulatedRequest
from tests.deploy import rollout_scene
from tests.deploy.rollout_scene import NODES, POLICY, FileHistory, Scene, both, ends, spoil
from tests.deploy.test_forged_templates import DependentHistory, start
from tests.plan.world import daemonset

play = rollout_scene.play
CANARIES = 2
AT_ONCE = '{"policy": {"stages": [{"name": "all"}]}, "pools": []}'
REPORTED = ApplyOptions(patience=0.0, drift=DriftPolicy.REPORT)


async def forge(scene: Scene, annotations: Mapping[str, str | None]) -> None:
    """A tenant writes annotations of the DaemonSet under our name."""
    mallory = scene.cluster.client(names.FIELD_MANAGER)
    patch = {"metadata": {"annotations": dict(annotations)}}
    await mallory.patch(DAEMONSET, "default", "agent", patch)


def test_the_commit_beside_an_announcement_of_an_earlier_version_counts() -> None:
    body = daemonset()
    body["metadata"] |= {"uid": "u", "labels": {names.OWNER_LABEL: "test"}}
    body["metadata"]["annotations"] = {names.COMMIT: "a" * 40, keys.ROLLOUT_POLICY: AT_ONCE}
    write = DaemonSetWrite("u", announced_daemonsets.stated_on(body, ""))
    announced = write.announcement({})
    earlier = frozenset(text for text in announced if not text.startswith("commit="))
    body["metadata"]["annotations"][names.COMMIT] = "b" * 40
    live = daemonsets.daemonset_of(body)
    shown = [
        announced_daemonsets.as_announced(live, (), {write.key: known}).annotations[names.COMMIT]
        for known in (announced, earlier)
    ]
    assert shown == ["a" * 40, "b" * 40]


async def at_canary(scene: Scene) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == CANARIES)
    await asyncio.sleep(10)


def proof_of(template: Body) -> str:
    identity = proofs.identity(template)
    return proofs.encoded(TemplateProof(identity, "f" * 40, time.time(), ProofKind.ROLLOUT))


@both
@pytest.mark.play(options=REPORTED)
@pytest.mark.parametrize(
    ("forged", "named"),
    [
        ({keys.ROLLOUT_POLICY: AT_ONCE}, keys.ROLLOUT_POLICY),
        ({keys.ROLLOUT_POLICY: None}, keys.ROLLOUT_POLICY),
        ({keys.ROLLOUT_POLICY: None, keys.TARGET: None}, keys.ROLLOUT_POLICY),
        ({keys.ROLLOUT_POLICY: "unreadable"}, keys.ROLLOUT_POLICY),
        ({keys.TARGET: "nowhere"}, keys.TARGET),
        ({keys.TARGET: None, keys.PHASE: RolloutPhase.COMPLETE}, keys.TARGET),
        ({keys.TARGET: ""}, keys.TARGET),
        ({keys.PROVEN: proof_of({})}, keys.PROVEN),
    ],
)
async def test_a_forged_annotation_changes_no_node_and_is_named(
    scene: Scene, /, powers: Powers, forged: Mapping[str, str | None], named: str
) -> None:
    await at_canary(scene)
    canaries = {pod.uid for tag, pod in scene.pods().values() if tag == "2"}
    await forge(scene, forged)
    for _ in range(60):
        await asyncio.sleep(5)
        assert {pod.uid for tag, pod in scene.pods().values() if tag == "2"} == canaries
    rollout = scene.observed()
    hold = scene.decision.hold if rollout is None else rollout.stages.hold
    assert hold is not None
    assert (hold.kind, named in hold.reason) == (HoldKind.EDITED, True)
    now = scene.cluster.server.now()
    (agent,) = await agent_lists.list_agents(scene.cluster.client("person"), "gitops-ds", now)
    assert agent.hold == hold
    assert agent.owner == "test"


@both
@pytest.mark.parametrize(
    ("forged", "text"),
    [
        (keys.ROLLOUT_POLICY, AT_ONCE),
        (keys.ROLLOUT_POLICY, None),
        (keys.PROVEN, AT_ONCE),
        (keys.TARGET, AT_ONCE),
    ],
)
async def test_a_forged_annotation_is_corrected_and_the_rollout_ends(
    scene: Scene, /, powers: Powers, forged: str, text: str | None
) -> None:
    await at_canary(scene)
    await forge(scene, {forged: text})
    await asyncio.sleep(20)
    assert len(scene.on("2")) == CANARIES
    await ends(scene, "2")


@both
@pytest.mark.play(options=REPORTED)
@pytest.mark.parametrize("label", [None, "other"])
async def test_a_rollout_whose_owner_label_was_edited_ends(
    scene: Scene, /, powers: Powers, label: str | None
) -> None:
    assert scene.controller is not None
    scene.controller.claim("test")
    await at_canary(scene)
    patch = {"metadata": {"labels": {names.OWNER_LABEL: label}}}
    await scene.cluster.client("mallory").patch(DAEMONSET, "default", "agent", patch)
    now = scene.cluster.server.now()
    (agent,) = await agent_lists.list_agents(scene.cluster.client("person"), "gitops-ds", now)
    assert (agent.owner, agents.is_copy(agent)) == ("test", False)
    assert agent.state.inventory
    await scene.until(lambda: len(scene.on("2")) == NODES, minutes=15)


class OrderedHistory(FileHistory):
    """A rollout that waits for a second agent."""

    policy = f"{POLICY}after: [{{agent: second}}]\n"

    def files(self, text: str) -> dict[str, str]:
        second = text.partition("---")[0].replace("agent", "second")
        return {**super().files(text), "agents/second/second-ds.yaml": second}


@pytest.mark.parametrize("powers", [Powers.PACE, Powers.FULL])
def test_a_copy_of_an_agent_holds_no_rollout_that_waits_for_the_agent(powers: Powers) -> None:
    async def script(scene: Scene) -> None:
        scene.powers = powers
        scene.start()
        await scene.until(lambda: len(scene.cluster.server.store.all(POD)) == 2 * NODES)
        await asyncio.sleep(60)
        assert scene.controller is not None
        scene.controller.claim("test")
        scene.controller.own(OwnedBodies(scene.controller.observer.keys))
        ours = await scene.cluster.get(DAEMONSET, "default", "second")
        metadata = {name: ours["metadata"][name] for name in ("labels", "annotations")}
        metadata |= {"name": "copy", "namespace": "default"}
        spec = json.dumps(ours["spec"]).replace("second", "copy")
        copy = {**ours, "metadata": metadata, "spec": json.loads(spec), "status": {}}
        spoil(scene, PodFault("*:1", Trouble.NEVER_PULLED))
        await scene.cluster.client(names.FIELD_MANAGER).create(DAEMONSET, copy)
        await asyncio.sleep(10)
        scene.push("2")
        for _ in range(120):
            await asyncio.sleep(10)
        assert await scene.tag() == "2"

    start(script, OrderedHistory())


@both
async def test_a_policy_that_leaves_git_ends_the_rollout_without_a_hold(
    scene: Scene, /, powers: Powers
) -> None:
    await at_canary(scene)
    scene.history.policy = ""
    scene.push("3")
    await scene.until(lambda: len(scene.on("3")) == NODES)
    assert not any(isinstance(event, RolloutHeld) for event in scene.events)
    known = await rollout_ledger.read(scene.cluster, "gitops-ds")
    assert known is not None
    body = await scene.daemonset()
    stated = announced_daemonsets.stated_on(body, "")
    write = DaemonSetWrite(body["metadata"]["uid"], stated)
    assert known[write.key] == write.announcement({})


@pytest.mark.play(options=REPORTED)
async def test_a_policy_on_a_daemonset_that_git_gives_none_is_not_read(scene: Scene, /) -> None:
    scene.history.policy = ""
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == NODES)
    await asyncio.sleep(10)
    await forge(scene, {keys.ROLLOUT_POLICY: AT_ONCE})
    await asyncio.sleep(10)
    assert scene.controller is not None
    seen = scene.controller.observer.observe(scene.controller.observer.keys[0])
    assert seen is not None
    assert scene.controller.observer.rollouts.inputs(seen) is None


@pytest.mark.play(options=REPORTED)
async def test_a_forged_proof_at_rest_becomes_no_proof_of_its_revision(scene: Scene, /) -> None:
    patch = {"spec": {"template": {"spec": {"schedulerName": "mallory"}}}}
    await scene.cluster.client("mallory").patch(DAEMONSET, "default", "agent", patch)
    await asyncio.sleep(10)
    await forge(scene, {keys.PROVEN: proof_of((await scene.daemonset())["spec"]["template"])})
    await asyncio.sleep(600)
    known = map(revisions.revision_of, scene.cluster.server.store.all(CONTROLLER_REVISION))
    proven = [one for one in known if one is not None and proofs.proof_in(one) is not None]
    assert not any("mallory" in str(one.template) for one in proven)


async def test_a_restart_at_any_write_of_a_daemonset_or_of_its_digests_stops_no_rollout(
    scene: Scene, /
) -> None:
    """Each process ends at such a write, which happens or does not."""
    killed = [0]

    def kill(request: SimulatedRequest) -> RequestFault | None:
        writes = request.verb in ("patch", "apply", "create") and not request.dry_run
        if request.resource in (CONFIG_MAP, DAEMONSET) and writes and killed[0] < 8:
            killed[0] += 1
            asyncio.get_running_loop().call_later(1, scene.kill)
            return Silence(done=killed[0] % 2 == 0)
        return None

    scene.faults = scene.of_deployer = kill
    scene.kill()
    await scene.cluster.delete(DAEMONSET, "default", "agent")
    for _ in range(12):
        scene.kill()
        scene.start()
        await asyncio.sleep(20)
    assert killed[0] == 8
    await scene.until(lambda: len(scene.on("1")) == NODES)
    killed[0] = 0
    scene.push("2")
    for _ in range(12):
        scene.kill()
        scene.start()
        await asyncio.sleep(20)
    assert killed[0] == 8
    await ends(scene, "2")


async def test_annotations_of_a_version_without_digests_are_adopted_once(scene: Scene, /) -> None:
    """While Git is away too, so that no deployer announces them."""
    await at_canary(scene)
    scene.kill()
    await scene.cluster.delete(CONFIG_MAP, "gitops-ds", rollout_ledger.CONFIG_MAP_NAME)
    scene.history.unreachable = scene.history.files_away = True
    scene.start()
    await scene.until(lambda: len(scene.on("2")) == NODES, minutes=15)


@both
async def test_a_created_daemonset_is_at_rest_as_soon_as_its_digests_are_stored(
    scene: Scene, /, powers: Powers
) -> None:
    """Also if the first write of them fails, and no other event follows."""
    until = asyncio.get_running_loop().time() + 60

    def refuse(request: SimulatedRequest) -> RequestFault | None:
        is_early = asyncio.get_running_loop().time() < until
        is_of_ledger = request.resource == CONFIG_MAP and request.verb == "patch"
        return simulator_faults.failure(503) if is_of_ledger and is_early else None

    scene.kill()
    scene.faults = refuse
    scene.start()
    await scene.cluster.delete(DAEMONSET, "default", "agent")
    await asyncio.sleep(50)
    assert len(scene.on("1")) == NODES
    hold = scene.decision.hold
    assert hold is not None
    assert hold.kind is HoldKind.EDITED
    await asyncio.sleep(50)
    assert scene.decision.hold is None


def test_nothing_waits_between_a_creation_and_its_digests() -> None:
    """The second agent waits for the first one, whose pods are not ready."""

    async def script(scene: Scene) -> None:
        scene.options = ApplyOptions(patience=300.0)
        spoil(scene, PodFault("*:1", Trouble.NEVER_PULLED))
        scene.start()
        await asyncio.sleep(30)
        assert scene.cluster.server.store.get(DAEMONSET, "default", "second") is None
        assert scene.decision.hold is None

    start(script, DependentHistory())


async def test_the_digests_of_a_deleted_daemonset_are_removed(scene: Scene, /) -> None:
    uid = (await scene.daemonset())["metadata"]["uid"]
    await scene.cluster.delete(DAEMONSET, "default", "agent")
    await scene.until(lambda: len(scene.on("1")) == NODES)
    await at_canary(scene)
    known = await rollout_ledger.read(scene.cluster, "gitops-ds")
    assert known is not None
    assert not any(key.startswith(uid) for key in known)
    assert any(key.endswith(".rollout") for key in known)
