"""Only a completed rollout proves a template: edits, deletions and undos by people during a rollout
and at rest.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from gitops_ds.core import names
from gitops_ds.core.cluster import Propagation
from gitops_ds.core.decision import Powers
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, NODE, POD, Body
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.rollouts.state import keys
from gitops_ds.testing.simulator import NodeSpec, PodFault, Trouble
from tests.deploy import test_template_commits
from tests.deploy.rollout_scene import NODES, POLICY, Scene, both, ends, play, spoil
from tests.deploy.test_loop import AGENT, edit
from tests.deploy.test_template_commits import FIRST, Folder
from tests.plan.world import daemonset

CANARY = 2


async def restart(scene: Scene) -> None:
    """As `kubectl rollout restart`."""
    annotations = {"kubectl.kubernetes.io/restartedAt": "2026-11-28T00:00:00Z"}
    body: Body = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    await scene.cluster.client("kubectl-rollout").patch(DAEMONSET, "default", "agent", body)


async def cordon(scene: Scene, node: str, is_cordoned: bool = True) -> None:
    await scene.cluster.patch(NODE, "", node, {"spec": {"unschedulable": is_cordoned}})


async def fail(scene: Scene, node: str) -> None:
    """The node is unreachable."""
    now = scene.cluster.server.now()
    condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    condition["lastTransitionTime"] = timestamps.text(now)
    patch = {"status": {"conditions": [condition]}}
    await scene.cluster.patch(NODE, "", node, patch, subresource="status")


def uids(scene: Scene) -> set[str]:
    return {pod.uid for _, pod in scene.pods().values()}


def waiting(scene: Scene) -> set[str]:
    return {pod.uid for _, pod in scene.pods().values() if not pod.bound}


async def canary_only(scene: Scene, tag: str, seconds: float = 110) -> None:
    """For that time at most the canary runs the template."""
    for _ in range(int(seconds / 5)):
        await asyncio.sleep(5)
        assert len(scene.on(tag)) <= CANARY


@both
async def test_a_template_that_was_tried_in_the_cluster_starts_at_the_canary(
    scene: Scene, /, powers: Powers
) -> None:
    await edit(scene.cluster, "2")
    await asyncio.sleep(60)
    assert scene.on("2") == set()
    assert await scene.tag() == "1", "the drift is corrected"
    scene.push("2")
    await canary_only(scene, "2")
    assert len(scene.on("2")) == CANARY
    await ends(scene, "2")


@both
async def test_an_edit_to_the_templates_target_in_the_canary_opens_no_stage(
    scene: Scene, /, powers: Powers
) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == CANARY, 2)
    await edit(scene.cluster, "2")
    await canary_only(scene, "2", 60)
    await ends(scene, "2")


@both
async def test_a_bad_unstaged_template_from_before_the_policy_starts_at_the_canary(
    scene: Scene, /, powers: Powers
) -> None:
    scene.history.policy = ""
    scene.push("1")
    await asyncio.sleep(60)
    spoil(scene, PodFault("*:2", Trouble.NEVER_PULLED))
    scene.push("2")
    await asyncio.sleep(120)
    scene.push("1")
    await scene.until(lambda: len(scene.on("1")) == NODES)
    await asyncio.sleep(120)
    scene.history.policy = POLICY
    scene.push("1")
    await asyncio.sleep(120)
    scene.push("2")
    await asyncio.sleep(1200)
    assert len(scene.on("2")) <= CANARY
    assert scene.decision.halt is not None


@both
async def test_broken_agents_are_healed_by_the_next_good_commit(
    scene: Scene, /, powers: Powers
) -> None:
    scene.history.policy = ""
    spoil(scene, PodFault("*:2", Trouble.NEVER_PULLED))
    scene.push("2")
    await asyncio.sleep(60)
    for _, pod in list(scene.pods().values()):
        await scene.cluster.delete(POD, pod.namespace, pod.name)
    await scene.until(lambda: len(scene.on("2")) == NODES)
    await asyncio.sleep(120)
    scene.history.policy = POLICY
    scene.push("2")
    await asyncio.sleep(60)
    scene.push("3")
    await ends(scene, "3")


async def delete(scene: Scene, policy: Propagation) -> None:
    await scene.cluster.delete(DAEMONSET, "default", "agent", propagation=policy)


@both
@pytest.mark.parametrize("propagation", [Propagation.BACKGROUND, Propagation.ORPHAN])
async def test_a_daemonset_deleted_in_a_rollout_is_created_with_the_proven_template(
    scene: Scene, /, powers: Powers, propagation: Propagation
) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == CANARY, 2)
    await delete(scene, propagation)
    await canary_only(scene, "2")
    await scene.until(lambda: len(scene.on("2")) == CANARY)
    await ends(scene, "2")


@both
async def test_a_daemonset_deleted_in_a_halt_returns_without_the_halted_template(
    scene: Scene, /, powers: Powers
) -> None:
    spoil(scene, PodFault("*:2", Trouble.NEVER_PULLED))
    scene.push("2")
    await scene.until(lambda: scene.on("2") != set() and scene.decision.halt is not None)
    await delete(scene, Propagation.BACKGROUND)
    await asyncio.sleep(1800)
    assert scene.on("1") == set(scene.pods()), "the template stays halted"
    assert len(scene.pods()) == NODES
    assert "halted before" in _hold(scene)
    scene.push("1")
    await ends(scene, "1")
    scene.push("3")
    await ends(scene, "3")


def _hold(scene: Scene) -> str:
    return scene.decision.hold.reason if scene.decision.hold is not None else ""


@both
async def test_a_return_does_not_wait_for_unrelated_nodes(scene: Scene, /, powers: Powers) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == 5)
    touched = scene.on("2")
    others = sorted(scene.on("1"))[:4]
    for node in others:
        await fail(scene, node)
    await asyncio.sleep(20)
    scene.push("1")
    await scene.until(lambda: not scene.on("2") & touched, 3)


@both
def test_a_return_ignores_windows_and_pauses_between_groups(powers: Powers) -> None:
    label = "topology.kubernetes.io/zone"
    rest = f"{{name: rest, oneAtATime: {label}, soakBetween: 1h, soak: 30s}}"
    policy = POLICY.replace("{name: rest, soak: 30s}", rest)

    async def script(scene: Scene) -> None:
        scene.push("2")
        await scene.until(lambda: len(scene.on("2")) >= 4, 600)
        scene.push("1")
        await scene.until(lambda: scene.on("2") == set(), 3)

    zones = [NodeSpec(f"n{n}", {"topology.kubernetes.io/zone": f"z{n % 2}"}) for n in range(NODES)]
    play(script, powers, policy=policy, nodes=zones)


@both
async def test_the_pod_of_an_abandoned_target_is_returned_when_its_node_is_well(
    scene: Scene, /, powers: Powers
) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == CANARY, 2)
    node = min(scene.on("2"))
    await cordon(scene, node)
    scene.push("3")
    await scene.until(lambda: len(scene.on("3")) >= NODES - 1)
    await asyncio.sleep(300)
    await cordon(scene, node, False)
    await ends(scene, "3")


@both
async def test_a_restart_in_the_canary_and_a_revert_leave_no_abandoned_pod(
    scene: Scene, /, powers: Powers
) -> None:
    scene.push("2")
    await scene.until(lambda: len(scene.on("2")) == CANARY, 2)
    await restart(scene)
    await asyncio.sleep(10)
    scene.push("1")
    await scene.until(lambda: scene.on("2") == set(), 3)
    await scene.until(lambda: len(scene.on("1")) == NODES)
    before = uids(scene)
    await asyncio.sleep(1200)
    assert uids(scene) == before


@both
@pytest.mark.parametrize("annotation", ["", "suspend", "drift"])
async def test_an_edit_at_rest_restarts_no_pod(
    scene: Scene, /, powers: Powers, annotation: str
) -> None:
    values = {"suspend": {names.SUSPEND: "true"}, "drift": {names.DRIFT: "hold"}}
    before = uids(scene)
    if annotation:
        patch: Body = {"metadata": {"annotations": values[annotation]}}
        await scene.cluster.patch(DAEMONSET, "default", "agent", patch)
    await edit(scene.cluster, "9")
    await asyncio.sleep(600)
    assert uids(scene) == before


@pytest.mark.parametrize("change", ["policy", "powers", "policy and powers", "newer policy"])
async def test_no_pod_waits_after_its_rollout(scene: Scene, /, change: str) -> None:
    kubelets = scene.cluster.kubelets
    kubelets.behaviour = replace(kubelets.behaviour, stop=20.0)
    scene.push("2")
    await scene.until_exactly(lambda: waiting(scene) != set())
    before = waiting(scene)
    if "powers" in change:
        scene.kill()
        scene.powers = Powers.FULL
        scene.start()
    if change.startswith("policy"):
        scene.history.policy = ""
        scene.push("2")
    if change == "newer policy":
        unreadable = {keys.ROLLOUT_POLICY: '{"policy": {"stages": [{"later": 1}]}}'}
        scene.kill()
        patch: Body = {"metadata": {"annotations": unreadable}}
        await scene.cluster.patch(DAEMONSET, "default", "agent", patch)
        scene.start()
    await asyncio.sleep(60)
    assert not waiting(scene) & before
    await ends(scene, "2")
    if change.startswith("policy"):
        body = await scene.daemonset()
        assert body["spec"]["updateStrategy"]["type"] == "RollingUpdate"
        assert keys.ROLLOUT_POLICY not in body["metadata"]["annotations"]


@both
def test_a_canary_whose_node_is_gone_takes_another(powers: Powers) -> None:
    policy = POLICY.replace("count: 2", "count: 1")

    async def script(scene: Scene) -> None:
        scene.push("2")
        await scene.until(lambda: len(scene.on("2")) == 1, 2)
        node = min(scene.on("2"))
        await fail(scene, node)
        await scene.until(lambda: len(scene.on("2")) >= NODES - 1)

    play(script, powers, policy=policy)


@pytest.mark.parametrize("claims", [("test",), ("other",), ("other", "test"), ()])
async def test_a_service_paces_the_rollouts_of_its_own_owners_only(
    scene: Scene, /, claims: tuple[str, ...]
) -> None:
    """A second service would measure gates and write records by its own settings."""
    assert scene.controller is not None
    assert scene.loop is not None
    owner = {"test": scene.loop.owner}
    scene.controller.claim(*(owner.get(claim, claim) for claim in claims))
    scene.push("2")
    await asyncio.sleep(300)
    assert bool(scene.on("2")) == ("test" in claims)
    scene.controller.claim(scene.loop.owner)
    await ends(scene, "2")


def test_a_daemonset_that_was_deleted_under_drift_report_is_created_by_the_next_commit() -> None:
    async def script(scene: Scene) -> None:
        await delete(scene, Propagation.BACKGROUND)
        await asyncio.sleep(120)
        assert scene.pods() == {}
        scene.push("2")
        await canary_only(scene, "2")
        assert len(scene.on("1")) == NODES - CANARY
        await ends(scene, "2")

    options = ApplyOptions(patience=0.0, drift=DriftPolicy.REPORT)
    play(script, options=options)


def test_a_daemonset_replaced_for_another_selector_is_created_with_proven_content() -> None:
    """The API server refuses a template that the selector does not match (DS103)."""

    async def script(scene: Scene) -> None:
        changed = AGENT.format(tag="2").replace("app: agent", "app: other")
        scene.history.push(changed)
        scene.request()
        await asyncio.sleep(120)
        await scene.cluster.client("kubectl").delete(
            DAEMONSET, "default", "agent", propagation=Propagation.ORPHAN
        )
        await scene.until(lambda: bool(scene.cluster.server.store.all(DAEMONSET)))
        scene.kill()
        scene.start()
        for pod in scene.cluster.server.store.all(POD):
            if pod["metadata"]["labels"]["app"] == "agent":
                await scene.cluster.delete(POD, "default", pod["metadata"]["name"])
        await scene.until(lambda: len(scene.on("2")) == CANARY and len(scene.pods()) == NODES)
        daemonset = await scene.daemonset()
        assert daemonset["spec"]["template"]["metadata"]["labels"] == {"app": "other"}
        assert await scene.tag() == "1"
        await ends(scene, "2")

    play(script)


def test_a_daemonset_that_is_created_in_a_rollout_has_the_config_of_its_proven_template() -> None:
    body = daemonset()
    volume = {"name": "config", "configMap": {"name": "agent"}}
    body["spec"]["template"]["spec"]["volumes"] = [volume]
    config = "agents/agent/config/agent.conf"
    base = {**test_template_commits.BASE, FIRST: json.dumps(body), config: "level: info"}

    async def script(scene: Scene, history: Folder) -> None:
        history.change({config: "level: debug"})
        scene.request()
        await scene.until(lambda: bool(scene.decision.at_risk))
        scene.kill()
        await scene.cluster.client("kubectl").delete(DAEMONSET, "default", "agent")
        await asyncio.sleep(120)
        scene.start()
        await scene.until(lambda: len(scene.cluster.server.store.all(DAEMONSET)) == 2)
        await asyncio.sleep(5)
        created = (await scene.daemonset())["spec"]["template"]["spec"]["volumes"]
        known = {one["metadata"]["name"] for one in scene.cluster.server.store.all(CONFIG_MAP)}
        assert created[0]["configMap"]["name"] in known

    test_template_commits.play(script, base=base)
