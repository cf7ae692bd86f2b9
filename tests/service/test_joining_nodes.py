"""The installed service on a real control plane: nodes that join with the startup taint get their
workloads after the last of their agents, and not before, also if the service is killed meanwhile,
and agents are deleted before it is back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.apimachinery import timestamps
from gitops_ds.model import names
from gitops_ds.model.startup_taints import OWN
from tests import controlplane, gitservers
from tests.plan.world import daemonset
from tests.service.test_service import following, running, settings, until

pytestmark = pytest.mark.controlplane
SPACE = "joining"
NODES = ("joins-0", "joins-1", "joins-2", "joins-broken")
WELL, ILL = LATER = ("later-well", "later-ill")
# The agents, with the seconds for which they must be ready.
AGENTS = {"fast": 1, "late": 4, "last": 10}


@pytest.fixture
def plane(control_plane: controlplane.ControlPlane) -> Iterator[controlplane.ControlPlane]:
    """With a namespace; without it and the joining nodes afterwards, for others use it too."""
    control_plane.kubectl("create", "namespace", SPACE)
    yield control_plane
    control_plane.kubectl("delete", "namespace", SPACE)
    control_plane.kubectl("delete", "nodes", "--ignore-not-found", *NODES, *LATER)


def agent(name: str, min_ready: int, tag: str, selector: dict[str, str]) -> str:
    body = daemonset(name, f"registry.example.com/agent:{tag}", SPACE)
    body["metadata"]["annotations"] = {names.REQUIRED_FOR_WORK: "true"}
    body["spec"]["minReadySeconds"] = min_ready
    spec = body["spec"]["template"]["spec"]
    # only this one: not-ready, which the node has when it becomes ready, is not tolerated
    tolerated = [{"key": OWN.key, "operator": "Exists"}]
    spec["nodeSelector"], spec["tolerations"] = selector, tolerated
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
    taints = {"reportAfter": "5s"}
    words = settings(tmp_path, repository=following(upstream), startupTaints=taints)
    with running(tmp_path, plane, *words) as (process, log):
        until(lambda: "created DaemonSet joining/never" in log.read_text(), log.read_text)
        # the API server's plugin TaintNodesByCondition adds the first one, which the laboratory
        # switches off; the controller manager removes it when it has seen that the node is ready
        keys = "node.kubernetes.io/not-ready", OWN.key
        taint = [{"key": key, "effect": OWN.effect} for key in keys]
        for name in NODES:
            labels = {"joins": ""} | ({"broken": ""} if name == "joins-broken" else {})
            plane.add_nodes([controlplane.node(name, labels, taint)])
            plane.kubectl("apply", "-f", "-", stdin=workload(name))
        until(lambda: is_ready(plane, "fast"), log.read_text)
        process.kill()
        process.wait()
    plane.kubectl("delete", "daemonset", "-n", SPACE, "late", "last")
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


def test_continuous_taints_a_node_whose_agent_fails_later_and_a_restart_releases_it(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    upstream = gitservers.Upstream(tmp_path / "fleet")
    upstream.commit({"agent.json": agent("fast", 0, "1", {"later": ""})})
    continuous = {"enforce": "continuous", "maxTainted": 1, "notReadyFor": "3s"}
    words = settings(tmp_path, repository=following(upstream), startupTaints=continuous)
    plane.add_nodes([controlplane.node(name, {"later": ""}) for name in LATER])
    with running(tmp_path, plane, *words) as (process, log):
        until(lambda: len(ready_on(plane)) == len(LATER), log.read_text)
        failed_at = set_ready(plane, ready_on(plane)[ILL], "False")
        until(lambda: OWN.key in taints(plane, ILL), log.read_text)
        assert time.time() >= failed_at + 3
        until(lambda: "Node later-ill: AgentsNotReady added" in log.read_text(), log.read_text)
        assert OWN.key not in taints(plane, WELL)
        plane.kubectl("apply", "-f", "-", stdin=workload(ILL))
        process.kill()
        process.wait()
    pods = {body["spec"].get("nodeName", ""): body for body in in_space(plane)}
    set_ready(plane, pods[ILL], "True")
    assert f"web-{ILL}" not in scheduled(plane)
    with running(tmp_path, plane, *words) as (_, log):
        until(lambda: f"web-{ILL}" in scheduled(plane), log.read_text)
        assert OWN.key not in taints(plane, ILL)


def taints(plane: controlplane.ControlPlane, node: str) -> list[str]:
    spec = plane.request("GET", f"/api/v1/nodes/{node}")["spec"]
    return [one["key"] for one in spec.get("taints") or ()]


def ready_on(plane: controlplane.ControlPlane) -> dict[str, dict[str, Any]]:
    """The ready pods by node."""
    return {one["spec"]["nodeName"]: one for one in in_space(plane) if condition(one, "Ready")}


def set_ready(plane: controlplane.ControlPlane, pod: dict[str, Any], status: str) -> float:
    """Sets the condition Ready of a pod, as its kubelet does; returns the time before it."""
    now = time.time()
    conditions = [{"type": "Ready", "status": status, "lastTransitionTime": timestamps.text(now)}]
    patch = json.dumps({"status": {"conditions": conditions}})
    options = ("--subresource=status", "--type=strategic", "-p", patch)
    plane.kubectl("patch", "pod", "-n", SPACE, pod["metadata"]["name"], *options)
    return now


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
