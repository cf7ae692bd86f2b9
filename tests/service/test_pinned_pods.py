"""Pinned pods beside the pods that the built-in DaemonSet controller makes of the same templates
on the same cluster.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
from pathlib import Path
from typing import Any

from gitops_ds.core import names
from gitops_ds.kube.apimachinery import pods
from gitops_ds.rollouts.state import keys
from tests import controlplane
from tests.gitservers import Upstream
from tests.plan.world import daemonset
from tests.service import staged
from tests.service.test_service import running

pytestmark = staged.MARKS
NODES = 3
POLICY = """\
stages: [{name: canary, soak: 1s}, {name: rest, soak: 1s}]
limits: {atRisk: {cluster: 100%}}
"""
# Fields of a pod template's spec, by agent; `metrics` are the ports of its container.
TEMPLATES: dict[str, dict[str, Any]] = {
    "plain": {},
    "host": {"hostNetwork": True, "hostPID": True, "dnsPolicy": "ClusterFirstWithHostNet"},
    "port": {"metrics": [{"name": "metrics", "containerPort": 9100, "hostPort": 9100}]},
    "tolerant": {
        "tolerations": [
            {"operator": "Exists", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
        ],
    },
    "urgent": {"priorityClassName": "system-node-critical", "terminationGracePeriodSeconds": 1},
    "choosy": {
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "preference": {
                            "matchExpressions": [{"key": "pool", "operator": "In", "values": ["x"]}]
                        },
                    }
                ],
            }
        },
    },
    "mounting": {
        "volumes": [{"name": "logs", "hostPath": {"path": "/var/log"}}],
        "initContainers": [{"name": "prepare", "image": "registry.example.com/prepare:1"}],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000},
    },
}


def manifest(agent: str, tag: str) -> dict[str, Any]:
    body = daemonset(agent, staged.image(tag), "default")
    fields = copy.deepcopy(TEMPLATES[agent])
    ports = fields.pop("metrics", [])
    template = body["spec"]["template"]
    template["metadata"]["annotations"] = {"example.com/agent": agent}
    template["spec"]["containers"][0]["ports"] = ports
    template["spec"] |= fields
    return body


def files(tag: str) -> dict[str, str | bytes | None]:
    found: dict[str, str | bytes | None] = {"gitops-ds.yaml": "version: v1\n"}
    for agent in TEMPLATES:
        found[f"agents/{agent}/daemonset.json"] = json.dumps(manifest(agent, tag))
        found[f"agents/{agent}/rollout.yaml"] = POLICY
    return found


def test_a_pinned_pod_equals_the_pod_of_the_built_in_controller(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path / "fleet")
    upstream.commit(files("1"))
    with (
        staged.plane_with(tmp_path, NODES) as plane,
        running(tmp_path, plane, *staged.words(upstream)) as (_, log),
    ):
        asyncio.run(_scene(plane, upstream, log))


async def _scene(plane: controlplane.ControlPlane, upstream: Upstream, log: Path) -> None:
    async with staged.watching(plane, staged.Soaks(1)) as watch:
        total = NODES * len(TEMPLATES)
        await watch.until(lambda: _ready(watch, "1") == total, log)
        upstream.commit(files("2"))
        await watch.until(lambda: _ready(watch, "2") == total, log)
        await staged.until(lambda: _are_complete(plane), log.read_text)
        pinned = _of_node(plane, staged.name_of(0))
        for agent in TEMPLATES:
            other = _of_node(plane, staged.name_of(1))[agent]["metadata"]["name"]
            plane.kubectl("delete", "pod", other, "--wait=false")
        await staged.until(lambda: _are_unpinned(plane, staged.name_of(1)), log.read_text)
    made = _of_node(plane, staged.name_of(1))
    for agent in TEMPLATES:
        assert _is_pinned(pinned[agent])
        assert _plain(pinned[agent]) == _plain(made[agent]), agent


def _ready(watch: staged.PodWatch, tag: str) -> int:
    return sum(one == tag and pod.ready and not pod.terminating for one, pod in watch.pods.values())


def _are_complete(plane: controlplane.ControlPlane) -> bool:
    """Whether every DaemonSet has its target as its template."""
    items = staged.items(plane, "daemonsets")
    return all(
        keys.TARGET not in item["metadata"]["annotations"]
        and item["status"].get("updatedNumberScheduled") == NODES
        for item in items
    )


def _of_node(plane: controlplane.ControlPlane, node: str) -> dict[str, dict[str, Any]]:
    """The pods of a node that are not ending, by agent."""
    return {
        body["metadata"]["ownerReferences"][0]["name"]: body
        for body in staged.items(plane, "pods")
        if pods.pod_of(body).node == node and "deletionTimestamp" not in body["metadata"]
    }


def _are_unpinned(plane: controlplane.ControlPlane, node: str) -> bool:
    pods_of_node = _of_node(plane, node)
    return len(pods_of_node) == len(TEMPLATES) and not any(map(_is_pinned, pods_of_node.values()))


def _is_pinned(body: dict[str, Any]) -> bool:
    return names.ROLLOUT in body["metadata"]["labels"]


def _plain(body: dict[str, Any]) -> Any:
    """A pod without its name, node and times, the labels, annotations and anti-affinity of its
    rollout, and the template generation that only the built-in controller writes.
    """
    metadata = {
        name: value
        for name, value in body["metadata"].items()
        # The API server counts a change of the spec: the removal of the gate is one.
        if name not in ("name", "uid", "resourceVersion", "creationTimestamp", "generation")
    }
    ours = {names.ROLLOUT, names.POD_TEMPLATE_GENERATION}
    metadata["labels"] = {k: v for k, v in metadata["labels"].items() if k not in ours}
    ours = {names.RELEASED, names.BOOT_ID, names.HEALS}
    metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k not in ours}
    spec = copy.deepcopy(body["spec"])
    apart = spec["affinity"].pop("podAntiAffinity", {})
    terms = apart.get("requiredDuringSchedulingIgnoredDuringExecution", [])
    assert [names.REPLACED in json.dumps(term) for term in terms] == [True] * _is_pinned(body)
    text = json.dumps({"metadata": metadata, "spec": spec})
    text = text.replace(pods.pod_of(body).node, "NODE")
    return json.loads(re.sub(r"kube-api-access-\w{5}", "kube-api-access", text))
