"""Pruning during a staged rollout: what a template of the rollout uses is deleted after its end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import orjson

from gitops_ds.core.objects import Key, key_of
from gitops_ds.core.sources.source_status import Condition
from gitops_ds.kube.apimachinery.builtin_resources import RESOURCES
from gitops_ds.ownership.options import ApplyOptions, Guards
from gitops_ds.rollouts.state import keys
from gitops_ds.testing.simulator import NodeSpec, PodFault, Trouble
from tests.deploy import rollout_scene
from tests.deploy.rollout_scene import Scene
from tests.plan.world import config_map, daemonset

_RBAC = "rbac.authorization.k8s.io"
# Enough others, so that the guard of deletions permits those of a test.
OTHERS = [config_map(f"other-{number}") for number in range(16)]
SPECS = [NodeSpec(f"node-{number}") for number in range(5)]
PRUNE = ApplyOptions(Guards(prune=True), patience=0.0)


def body(kind: str, name: str, /, api: str = "v1", **fields: Any) -> dict[str, Any]:
    is_wide = kind.startswith("Cluster") or kind == "PriorityClass"
    place = {} if is_wide else {"namespace": "default"}
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **place}, **fields}


def binding(kind: str, role: str, name: str, account: str) -> dict[str, Any]:
    return body(
        kind, name, f"{_RBAC}/v1",
        roleRef={"apiGroup": _RBAC, "kind": role, "name": name},
        subjects=[{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
    )  # fmt: skip


def used(name: str) -> list[dict[str, Any]]:
    """Every object that the template with this name uses."""
    return [
        body("ServiceAccount", name, imagePullSecrets=[{"name": f"{name}-pull"}]),
        *(body("Secret", f"{name}-{which}") for which in ("pull", "volume", "env", "csi")),
        *(config_map(f"{name}-{which}") for which in ("volume", "projected", "env", "from")),
        body("Role", name, f"{_RBAC}/v1", rules=[]),
        binding("RoleBinding", "Role", name, name),
        body("ClusterRole", name, f"{_RBAC}/v1", rules=[]),
        binding("ClusterRoleBinding", "ClusterRole", name, name),
    ]


def agent(name: str) -> dict[str, Any]:
    """The DaemonSet whose template uses these objects; its image has the same name."""
    env = {"name": "A", "valueFrom": {"configMapKeyRef": {"name": f"{name}-env", "key": "a"}}}
    secret = {"name": "B", "valueFrom": {"secretKeyRef": {"name": f"{name}-env", "key": "b"}}}
    container = {
        "name": "agent",
        "image": f"example.com/agent:{name}",
        "env": [env, secret],
        "envFrom": [{"configMapRef": {"name": f"{name}-from"}}],
    }
    projected = [{"configMap": {"name": f"{name}-projected"}}]
    csi = {"driver": "example.com", "nodePublishSecretRef": {"name": f"{name}-csi"}}
    volumes = [
        {"name": "a", "configMap": {"name": f"{name}-volume"}},
        {"name": "b", "secret": {"secretName": f"{name}-volume"}},
        {"name": "c", "projected": {"sources": projected}},
        {"name": "d", "csi": csi},
    ]
    return daemonset(serviceAccountName=name, volumes=volumes, containers=[container])


def text(name: str, *more: dict[str, Any]) -> str:
    """The file of a commit: an agent with all that it uses, and others."""
    documents: Iterable[Any] = [agent(name), *used(name), *OTHERS, *more]
    return "\n---\n".join(orjson.dumps(document).decode() for document in documents)


def push(scene: Scene, content: str) -> None:
    scene.history.push(content)
    scene.request()


def existing(scene: Scene) -> set[Key]:
    """The objects of the repository in the cluster."""
    kinds = {(one["apiVersion"], one["kind"]) for one in used("")}
    every = (
        one
        for resource in RESOURCES.values()
        if (resource.api_version, resource.kind) in kinds
        for one in scene.cluster.server.store.all(resource)
    )
    return {key_of(one) for one in every}


def keys_of(name: str) -> set[Key]:
    return {key_of(one) for one in used(name)}


async def keeps_what_runs(scene: Scene) -> None:
    """Asserts all the time that what the template of a pod uses exists."""
    while True:
        there = existing(scene)
        for node, (tag, _) in scene.pods().items():
            assert tag == "1" or keys_of(tag) <= there, (node, keys_of(tag) - there)
        await asyncio.sleep(5)


async def rolled_out(scene: Scene, content: str, name: str) -> None:
    """Waits for the end of the rollout and what follows it."""
    push(scene, content)
    await scene.until(lambda: len(scene.on(name)) == len(SPECS))
    await asyncio.sleep(120)
    assert keys.TARGET not in (await scene.daemonset())["metadata"]["annotations"]


def message(scene: Scene) -> str:
    assert scene.loop is not None
    assert scene.loop.status is not None
    assert scene.loop.status.condition is Condition.SYNCED
    return scene.loop.status.message


def test_what_the_proven_template_uses_is_deleted_after_the_rollout() -> None:
    async def script(scene: Scene) -> None:
        await rolled_out(scene, text("one"), "one")
        scene.tasks.append(asyncio.ensure_future(keeps_what_runs(scene)))
        push(scene, text("two"))
        await scene.until(lambda: bool(scene.on("two")))
        await asyncio.sleep(90)
        assert keys_of("one") <= existing(scene)
        assert "used by the proven template of ds/agent until its rollout ends" in message(scene)
        await rolled_out(scene, text("two"), "two")
        assert not keys_of("one") & existing(scene)
        assert keys_of("two") <= existing(scene)
        assert "used by" not in message(scene)

    rollout_scene.play(script, nodes=SPECS, options=PRUNE)


def test_what_no_template_of_the_rollout_uses_is_deleted_at_once() -> None:
    async def script(scene: Scene) -> None:
        await rolled_out(scene, text("one", config_map("free")), "one")
        push(scene, text("two"))
        await scene.until(lambda: bool(scene.on("two")))
        await asyncio.sleep(30)
        assert Key("", "ConfigMap", "default", "free") not in existing(scene)
        assert len(scene.on("one")) == len(SPECS) - len(scene.on("two")) > 0

    rollout_scene.play(script, nodes=SPECS, options=PRUNE)


def test_a_halted_rollout_keeps_the_objects_of_both_templates_until_the_way_back() -> None:
    async def script(scene: Scene) -> None:
        await rolled_out(scene, text("one"), "one")
        scene.tasks.append(asyncio.ensure_future(keeps_what_runs(scene)))
        rollout_scene.spoil(scene, PodFault("*:two", Trouble.CRASHES))
        push(scene, text("two"))
        await scene.until(lambda: scene.record().halt is not None)
        await asyncio.sleep(600)
        assert keys_of("one") | keys_of("two") <= existing(scene)
        push(scene, text("one"))
        await scene.until(lambda: len(scene.on("one")) == len(SPECS))
        await asyncio.sleep(600)
        assert keys_of("one") <= existing(scene)
        assert not keys_of("two") & existing(scene)

    rollout_scene.play(script, nodes=SPECS, options=PRUNE)


def test_a_rollback_in_stages_keeps_the_objects_of_the_template_that_nodes_still_run() -> None:
    async def script(scene: Scene) -> None:
        await rolled_out(scene, text("one"), "one")
        await rolled_out(scene, text("two"), "two")
        scene.tasks.append(asyncio.ensure_future(keeps_what_runs(scene)))
        await rolled_out(scene, text("one"), "one")
        await asyncio.sleep(600)
        assert not keys_of("two") & existing(scene)

    rollout_scene.play(script, nodes=SPECS, options=PRUNE)
