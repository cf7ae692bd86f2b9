"""The installed service on a real control plane: nodes that join with the startup taint get their
workloads after the last of their agents, and not before, also if the service is killed meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.apimachinery import timestamps
from gitops_ds.model import names
from gitops_ds.model.startup_taints import OWN
from tests import controlplane, gitservers
from tests.plan.world import daemonset
from tests.service.test_service import running, until

pytestmark = pytest.mark.controlplane
SPACE = "joining"
NODES = ("joins-0", "joins-1", "joins-2", "joins-broken")
# The agents, with the seconds for which they must be ready.
AGENTS = {"fast": 1, "late": 4, "last": 10}


@pytest.fixture
def plane(control_plane: controlplane.ControlPlane) -> Iterator[controlplane.ControlPlane]:
    """With a namespace; without it and the joining nodes afterwards, for others use it too."""
    control_plane.kubectl("create", "namespace", SPACE)
    yield control_plane
    control_plane.kubectl("delete", "namespace", SPACE, "--wait=false")
    control_plane.kubectl("delete", "nodes", "--ignore-not-found", *NODES)


def agent(name: str, min_ready: int, tag: str, selector: dict[str, str]) -> str:
    body = daemonset(name, f"registry.example.com/agent:{tag}", SPACE)
    body["metadata"]["annotations"] = {names.REQUIRED_FOR_WORK: "true"}
    body["spec"]["minReadySeconds"] = min_ready
    spec = body["spec"]["template"]["spec"]
    spec["nodeSelector"], spec["tolerations"] = selector, [{"operator": "Exists"}]
    return json.dumps(body)


def workload(node: str) -> str:
    containers = [{"name": "web", "image": "registry.example.com/web:1"}]
    spec = {"containers": containers, "nodeSelector": {"kubernetes.io/hostname": node}}
    metadata = {"name": f"web-{node}", "namespace": SPACE}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def in_space(plane: controlplane.ControlPlane) -> list[dict[str, Any]]:
    return list(plane.request("GET", f"/api/v1/namespaces/{SPACE}/pods")["items"])


def condition(body: dict[str, Any], type: str) -> float | None:
    """When the condition became true, in seconds since 1970."""
    listed = (body.get("status") or {}).get("conditions") or ()
    found = [one for one in listed if one["type"] == type and one["status"] == "True"]
    return timestamps.seconds(found[0]["lastTransitionTime"]) if found else None


def test_a_workload_starts_after_the_last_agent_of_its_node_and_not_before(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    upstream = gitservers.Upstream(tmp_path / "fleet")
    files = {f"{name}.json": agent(name, s, "1", {"joins": ""}) for name, s in AGENTS.items()}
    files["never.json"] = agent("never", 0, "broken", {"broken": ""})
    upstream.commit(files)
    settings = tmp_path / "settings.yaml"
    repository = {"url": str(upstream.path), "allowLocal": True, "interval": "1s"}
    groups = {"repository": repository, "startupTaints": {"reportAfter": "5s"}}
    settings.write_text(json.dumps(groups))
    words = ("--settings", str(settings))
    with running(tmp_path, plane, *words) as (process, log):
        until(lambda: "created DaemonSet joining/never" in log.read_text(), log.read_text)
        taint = [{"key": OWN.key, "effect": OWN.effect}]
        for name in NODES:
            labels = {"joins": ""} | ({"broken": ""} if name == "joins-broken" else {})
            plane.add_nodes([controlplane.node(name, labels, taint)])
            plane.kubectl("apply", "-f", "-", stdin=workload(name))
        until(lambda: is_ready(plane, "fast"), log.read_text)
        process.kill()
        process.wait()
    with running(tmp_path, plane, *words) as (_, log):
        until(lambda: len(scheduled(plane)) == 3, log.read_text)
        words_of_kubernetes = (
            "joining/never: ImagePullBackOff: container agent: Back-off pulling image"
        )
        until(lambda: words_of_kubernetes in log.read_text(), log.read_text)
        assert log.read_text().count(": AgentsReady ") == 3
    available = last_available(plane)
    assert "web-joins-broken" not in scheduled(plane)
    for name, at in scheduled(plane).items():
        # the times of the API server are whole seconds
        assert available[name.removeprefix("web-")] <= at + 1
        assert at <= available[name.removeprefix("web-")] + 2


def is_ready(plane: controlplane.ControlPlane, agent: str) -> bool:
    ready = [one for one in in_space(plane) if one["metadata"]["name"].startswith(f"{agent}-")]
    return len(ready) == len(NODES) and all(condition(one, "Ready") for one in ready)


def scheduled(plane: controlplane.ControlPlane) -> dict[str, float]:
    """When each workload was bound to its node."""
    return {
        body["metadata"]["name"]: at
        for body in in_space(plane)
        if body["metadata"]["name"].startswith("web-")
        and (at := condition(body, "PodScheduled")) is not None
    }


def last_available(plane: controlplane.ControlPlane) -> dict[str, float]:
    """When the last agent of each node became available."""
    times: dict[str, float] = {}
    for body in in_space(plane):
        name, node = body["metadata"]["name"].split("-")[0], body["spec"].get("nodeName", "")
        if name in AGENTS and (ready := condition(body, "Ready")) is not None:
            times[node] = max(times.get(node, 0.0), ready + AGENTS[name])
    return times
