"""With the right to list the metrics of pods, and no other, a gate measures the memory of new pods.

The metrics API is a custom resource of its name: its objects are those of the test.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core import names
from tests import controlplane, gitservers
from tests.installation import rights, scenes
from tests.installation.rights import NOTHING_AMISS, PATIENCE
from tests.plan.world import daemonset
from tests.service.test_service import until

SPACE = "measured"
POLICY = """\
stages: [{name: canary, nodes: {count: 1}, soak: 1s}, {name: rest, soak: 1s}]
gates: {pods: {memoryOfLimit: 90%}}
"""
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
POD_METRICS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "pods.metrics.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
    },
    "spec": {
        "group": "metrics.k8s.io",
        "names": {"kind": "PodMetrics", "plural": "pods"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": ANYTHING},
            }
        ],
    },
}


def agent(number: int) -> str:
    body = daemonset("agent", scenes.image(number), SPACE)
    (container,) = body["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {"memory": "100Mi"}}
    return json.dumps(body)


def pinned(plane: controlplane.ControlPlane) -> list[dict[str, Any]]:
    words = ("-n", SPACE, "get", "pods", "-l", names.ROLLOUT, "-o", "json")
    return list(json.loads(plane.kubectl(*words))["items"])


def report(plane: controlplane.ControlPlane, memory: str) -> None:
    """The metrics of every new pod."""
    for pod in pinned(plane):
        (container,) = pod["spec"]["containers"]
        metadata = {key: pod["metadata"][key] for key in ("name", "namespace", "labels")}
        usage = {"memory": memory, "cpu": "1m"}
        scenes.keep(
            plane,
            {
                "apiVersion": "metrics.k8s.io/v1beta1",
                "kind": "PodMetrics",
                "metadata": metadata,
                "containers": [{"name": container["name"], "usage": usage}],
            },
        )


@pytest.mark.slow
@pytest.mark.controlplane
@pytest.mark.system
@pytest.mark.xdist_group("rights")
def test_a_template_that_needs_too_much_memory_is_halted_in_its_canary(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    rights.installed(plane, tmp_path / "overlay", "pace")
    proven = rights.granted(plane)
    since = rights.installed(plane, tmp_path / "overlay", "pace", "rights/metrics")
    assert set(map(str, rights.granted(plane) - proven)) == {"list pods.metrics.k8s.io"}
    scenes.keep(plane, POD_METRICS)
    plane.kubectl("wait", "--for=condition=Established", "crd/pods.metrics.k8s.io")
    plane.kubectl("create", "namespace", SPACE)
    upstream = gitservers.Upstream(tmp_path / "fleet")
    first = {"agents/agent/daemonset.json": agent(1), "agents/agent/rollout.yaml": POLICY}
    upstream.commit({"gitops-ds.yaml": "version: v1\n", **first})
    settings = {**scenes.following(upstream), "metrics": {"interval": "500ms"}}
    with rights.service(plane, tmp_path / "run", "pace", settings) as service:
        service.wait_for_log("created DaemonSet measured/agent")
        until(lambda: running(plane) == 3, lambda: "no pods", PATIENCE)
        upstream.commit({"agents/agent/daemonset.json": agent(2)})
        service.wait_for_log("gate pods has no data: 1 of 1 node without a value: node-")
        assert len(pinned(plane)) == 1
        report(plane, "95Mi")
        service.wait_for_log("gate pods failed: 95 (container ")
        assert len(pinned(plane)) == 1
    assert rights.judge(plane, since, proven) == NOTHING_AMISS
    plane.kubectl("delete", "crd/pods.metrics.k8s.io", "--wait=false")
    plane.kubectl("delete", "namespace", SPACE, "--wait=false")


def running(plane: controlplane.ControlPlane) -> int:
    """The ready pods of the agent."""
    words = ("-n", SPACE, "get", "daemonset", "agent", "-o", "jsonpath={.status.numberReady}")
    return int(plane.kubectl(*words) or 0)
