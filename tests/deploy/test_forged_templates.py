"""Who may write DaemonSets, with any names of field managers, labels, annotations and generations,
proves no template: only the state, and the API server's answers about the template in Git, do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.decision import Powers
from gitops_ds.core.objects import CONFIG_MAP, CONTROLLER_REVISION, DAEMONSET, POD, Body, Resource
from gitops_ds.core.rollouts.proven_templates import ProofKind, TemplateHistory
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.deploy import state_store
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.rollouts.state import keys, proofs
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import NodeSpec, PodFault, Trouble, virtual_time
from gitops_ds.testing.simulator import faults as simulator_faults
from gitops_ds.testing.simulator.faults import RequestFault, SimulatedRequest
from gitops_ds.testing.simulator.server import Mutate
from tests.deploy import rollout_scene
from tests.deploy.rollout_scene import NODES, POLICY, FileHistory, Scene, both, ends, spoil
from tests.deploy.test_loop import AGENT
from tests.deploy.test_proven_templates import canary_only, uids

play = rollout_scene.play
COPIED = ("name", "namespace", "labels", "annotations")


async def forge(
    scene: Scene, tag: str = "evil", annotations: Mapping[str, str] = {}, **pod: Any
) -> Body:
    """A server-side apply under our name of the DaemonSet as it is, with another image, more
    annotations and fields of the pod.
    """
    live = await scene.daemonset()
    return await _apply(scene, live, tag, annotations, pod)


async def recreate(scene: Scene, tag: str = "evil", **pod: Any) -> Body:
    """As `forge`, after the deletion of the DaemonSet and before any other request."""
    live = await scene.daemonset()
    server = scene.cluster.server
    await scene.cluster.client("mallory").delete(DAEMONSET, "default", "agent")
    assert server.store.get(DAEMONSET, "default", "agent") is None
    made = server.apply(DAEMONSET, _copy(live, tag, {}, pod), names.FIELD_MANAGER, True, False)
    assert made["metadata"]["generation"] == 1
    return made


async def _apply(
    scene: Scene, live: Body, tag: str, annotations: Mapping[str, str], pod: Mapping[str, Any]
) -> Body:
    mallory, body = scene.cluster.client("mallory"), _copy(live, tag, annotations, pod)
    done = await mallory.apply(DAEMONSET, body, manager=names.FIELD_MANAGER, force=True)
    return done.body


def _copy(live: Body, tag: str, annotations: Mapping[str, str], pod: Mapping[str, Any]) -> Body:
    template = live["spec"]["template"]
    first, *added = template["spec"]["containers"]
    containers = [{**first, "image": f"example.com/agent:{tag}"}, *added]
    metadata = {name: live["metadata"][name] for name in COPIED if name in live["metadata"]}
    metadata["annotations"] = {**metadata["annotations"], **annotations}
    spec = {**template["spec"], "containers": containers, **pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata,
        "spec": {**live["spec"], "template": {**template, "spec": spec}},
    }


def history(scene: Scene) -> TemplateHistory:
    """What the state has about the templates of the DaemonSet."""
    assert scene.loop is not None
    assert scene.loop.deployer_state is not None
    ((_, found),) = scene.loop.deployer_state.templates.items()
    return found


def evil(body: Body) -> str:
    return proofs.identity(body["spec"]["template"])


async def never_proven(scene: Scene, template: str, seconds: float = 600) -> None:
    """For that time the template is not proven, and no proof names a commit that never had it."""
    for _ in range(int(seconds / 5)):
        await asyncio.sleep(5)
        known = history(scene)
        assert known.proof is not None
        assert template not in {one.template for one in (known.proof, *known.earlier)}
        assert known.target is None or known.target.template != template


@both
async def test_a_daemonset_that_was_created_again_is_an_edit(
    scene: Scene, /, powers: Powers
) -> None:
    before = history(scene)
    assert before.proof is not None
    assert (before.proof.how, before.proof.commit) == (ProofKind.FIRST, scene.history.id(0))
    forged = await recreate(scene)
    await never_proven(scene, evil(forged))
    assert history(scene).proof == before.proof
    assert scene.on("1") == set(scene.pods())
    assert len(scene.pods()) == NODES
    scene.push("2")
    await canary_only(scene, "2", 60)
    await ends(scene, "2")


@both
async def test_a_daemonset_that_was_created_again_with_its_template_keeps_the_proof(
    scene: Scene, /, powers: Powers
) -> None:
    before, uid = history(scene), (await scene.daemonset())["metadata"]["uid"]
    await recreate(scene, "1")
    await asyncio.sleep(120)
    assert (await scene.daemonset())["metadata"]["uid"] != uid
    assert history(scene).proof == before.proof
    assert keys.TARGET not in (await scene.daemonset())["metadata"]["annotations"]
    scene.push("2")
    await ends(scene, "2")


@both
async def test_fields_that_git_does_not_have_become_part_of_no_target(
    scene: Scene, /, powers: Powers
) -> None:
    """Of an update under any name: only a creation shows what admission makes of Git's template."""
    patch = {"spec": {"template": {"spec": {"schedulerName": "mallory"}}}}
    await scene.cluster.client("mallory").patch(DAEMONSET, "default", "agent", patch)
    await asyncio.sleep(60)
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == NODES)
    await asyncio.sleep(300)
    known = history(scene)
    assert known.proof is not None
    assert (known.proof.how, known.proof.commit) == (ProofKind.ROLLOUT, scene.history.id(1))
    assert "mallory" not in str(known.template)
    assert {body["spec"]["schedulerName"] for body in scene.cluster.server.store.all(POD)} == {
        "default-scheduler"
    }


@both
@pytest.mark.parametrize("selects", [{"no": "where"}, {"kubernetes.io/hostname": "node-0"}])
async def test_an_edit_that_removes_nodes_completes_no_rollout(
    scene: Scene, /, selects: Body, powers: Powers
) -> None:
    """Every node that is left has the target, also if none is left."""
    before = history(scene)
    scene.push("2")
    await scene.until(lambda: bool(scene.on("2")))
    patch: Body = {"spec": {"template": {"spec": {"nodeSelector": selects}}}}
    await scene.cluster.client("mallory").patch(DAEMONSET, "default", "agent", patch)
    await asyncio.sleep(5)
    for _ in range(60):
        await asyncio.sleep(5)
        assert history(scene).proof == before.proof
        assert scene.record().passed == {}
        hold = scene.decision.hold
        assert hold is not None
        assert "were edited in the cluster" in hold.reason
    patch = {"spec": {"template": {"spec": {"nodeSelector": None}}}}
    await scene.cluster.client("mallory").patch(DAEMONSET, "default", "agent", patch)
    await canary_only(scene, "2", 60)
    await ends(scene, "2")


def test_a_rollout_of_a_forged_target_proves_no_template() -> None:
    """The DaemonSet names the revision of an edit as its target, with a policy without a soak; its
    drift is only reported.
    """

    async def script(scene: Scene) -> None:
        scene.push("2")
        await ends(scene, "2")
        forged = await forge(scene)
        await asyncio.sleep(10)
        (revision,) = [
            body["metadata"]["name"]
            for body in scene.cluster.server.store.all(CONTROLLER_REVISION)
            if "evil" in str(body["data"])
        ]
        await forge(
            scene,
            annotations={
                keys.TARGET: revision,
                keys.PHASE: "Progressing",
                keys.ROLLOUT_POLICY: '{"policy": {"stages": ["all"]}, "pools": []}',
            },
        )
        await never_proven(scene, evil(forged), 1800)
        scene.push("3")
        await never_proven(scene, evil(forged), 600)

    play(script, options=ApplyOptions(patience=0.0, drift=DriftPolicy.REPORT))


@pytest.mark.parametrize("commit", ["policy", "policy and template"])
@pytest.mark.parametrize("how", ["patch", "recreate", "apply"])
async def test_a_policy_that_is_added_later_adopts_the_applied_template(
    scene: Scene, /, commit: str, how: str
) -> None:
    scene.history.policy = ""
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == NODES)
    await asyncio.sleep(60)
    if how == "patch":
        patch = {"spec": {"template": {"spec": {"schedulerName": "mallory"}}}}
        await scene.cluster.client("mallory").patch(DAEMONSET, "default", "agent", patch)
    elif how == "apply":
        await forge(scene, "2", schedulerName="mallory")
    else:
        await recreate(scene, "2", schedulerName="mallory")
    forged = await scene.daemonset()
    scene.history.policy = POLICY
    scene.push("2" if commit == "policy" else "3")
    await never_proven(scene, evil(forged), 60)
    known = history(scene)
    assert known.proof is not None
    assert (known.proof.how, known.proof.commit) == (ProofKind.ADOPTED, scene.history.id(1))
    assert "mallory" not in str(known.template)


ADDED = {"name": "added", "image": "example.com/proxy:1"}


def adding(on_create: bool, on_update: bool) -> Mutate:
    """A webhook that adds a container to the templates of DaemonSets."""

    def mutate(resource: Resource, body: Body, is_new: bool) -> Body:
        if resource != DAEMONSET or not (on_create if is_new else on_update):
            return body
        template = body["spec"]["template"]
        containers = [c for c in template["spec"]["containers"] if c["name"] != "added"]
        spec = {**template["spec"], "containers": [*containers, ADDED]}
        return {**body, "spec": {**body["spec"], "template": {**template, "spec": spec}}}

    return mutate


def start(
    script: Callable[[Scene], Awaitable[None]], history: FileHistory | None = None, **server: Any
) -> None:
    """Runs a script on a cluster with attributes of its server, before the first commit."""

    async def main() -> None:
        async with simulator.SimulatedCluster() as cluster:
            for name, value in server.items():
                setattr(cluster.server, name, value)
            cluster.add_nodes(NodeSpec(f"node-{n}") for n in range(NODES))
            scene = Scene(cluster, history or FileHistory(), Powers.PACE, simulator_faults.none)
            scene.history.push(AGENT.format(tag="1"))
            await script(scene)
            scene.check()
            scene.kill()

    virtual_time.run(main())


@pytest.mark.parametrize("on_update", [False, True])
def test_what_a_webhook_adds_to_a_created_daemonset_is_proven(on_update: bool) -> None:
    async def script(scene: Scene) -> None:
        scene.start()
        await scene.until(lambda: len(scene.pods()) == NODES)
        await asyncio.sleep(60)
        known, body = history(scene), await scene.daemonset()
        assert known.proof is not None
        assert (known.proof.how, known.proof.template) == (ProofKind.FIRST, evil(body))
        assert "proxy" in str(known.template)
        before = uids(scene)
        await asyncio.sleep(600)
        assert uids(scene) == before
        scene.push("2")
        await scene.until(lambda: history(scene).proof != known.proof)
        await asyncio.sleep(120)
        known = history(scene)
        assert known.proof is not None
        assert known.proof.commit == scene.history.id(1)
        assert "proxy" in str(known.template)

    start(script, mutate=adding(True, on_update))


def dies_after_creation(scene: Scene) -> Callable[[SimulatedRequest], RequestFault | None]:
    """The process ends before it writes the answer about the created DaemonSet to the state."""
    created = False

    def fault(request: SimulatedRequest) -> RequestFault | None:
        nonlocal created
        if request.resource == DAEMONSET and request.verb == "apply" and not request.dry_run:
            created = True
        elif created and request.resource == CONFIG_MAP and request.verb == "patch":
            scene.kill()
            return simulator_faults.failure(503)
        return None

    return fault


class DependentHistory(FileHistory):
    """A second agent, which waits for the first one."""

    def files(self, text: str) -> dict[str, str]:
        second = text.partition("---")[0].replace("agent", "second")
        return {
            **super().files(text),
            "agents/second/second-ds.yaml": second,
            "agents/second/agent.yaml": "dependsOn: [agent]\n",
        }


def test_the_answer_to_a_creation_is_stored_before_anything_waits_for_its_pods() -> None:
    async def script(scene: Scene) -> None:
        scene.options = ApplyOptions(patience=300.0)
        spoil(scene, PodFault("*:1", Trouble.NEVER_PULLED))
        scene.start()
        await asyncio.sleep(30)
        body = await scene.daemonset()
        assert scene.cluster.server.store.get(DAEMONSET, "default", "second") is None
        state = await state_store.load(scene.cluster, "gitops-ds", "test")
        ((_, known),) = state.templates.items()
        assert known.proof is not None
        assert (known.proof.template, known.uid) == (evil(body), body["metadata"]["uid"])

    start(script, DependentHistory(), mutate=adding(True, True))


@pytest.mark.parametrize("mutates", [False, True])
@pytest.mark.parametrize("meanwhile", ["nothing", "recreate", "apply"])
def test_after_a_crash_the_created_template_is_what_admission_makes_of_git(
    mutates: bool, meanwhile: str
) -> None:
    async def script(scene: Scene) -> None:
        scene.of_deployer = dies_after_creation(scene)
        scene.start()
        await asyncio.sleep(10)
        body = created = await scene.daemonset()
        assert all(task.done() for task in scene.tasks)
        if meanwhile == "recreate":
            body = await recreate(scene)
        elif meanwhile == "apply":
            body = await forge(scene)
        scene.of_deployer = simulator_faults.none
        scene.start()
        await asyncio.sleep(60)
        known = history(scene)
        assert known.proof is not None
        assert known.proof.template == evil(created)
        assert (known.proof.how, known.proof.commit) == (ProofKind.FIRST, scene.history.id(0))
        if meanwhile != "nothing":
            await never_proven(scene, evil(body))
        await scene.until(lambda: scene.on("evil") == set() and len(scene.pods()) == NODES)

    start(script, mutate=adding(mutates, mutates))
