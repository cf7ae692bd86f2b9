"""The installed service on a real control plane: nodes that join with the startup taint get their
workloads after the last of their agents, and not before, also if the service is killed meanwhile,
and agents are deleted before it is back. Who may write DaemonSets and pods does not change that.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.startup_taints import OWN
from gitops_ds.kube.apimachinery import timestamps
from tests import controlplane, gitservers
from tests.cluster.program import PROGRAM
from tests.plan.world import daemonset
from tests.service.test_service import following, running, settings, until

pytestmark = pytest.mark.controlplane
SPACE = "joining"
NODES = ("joins-0", "joins-1", "joins-2", "joins-broken")
WELL, ILL = LATER = ("later-well", "later-ill")
TENANTED = ("tenanted-0", "tenanted-1")
FREE = tuple(f"free-{number}" for number in range(4))
UPGRADED = "upgraded-0"
TENANT = "joining-tenant"
STATE = "state.json.gz"
ADDED = (*NODES, *LATER, *TENANTED, *FREE, UPGRADED)
# The agents, with the seconds for which they must be ready.
AGENTS = {"fast": 1, "late": 4, "last": 10}


@pytest.fixture
def plane(control_plane: controlplane.ControlPlane) -> Iterator[controlplane.ControlPlane]:
    """With a namespace; without it and the joining nodes afterwards, for others use it too."""
    control_plane.kubectl("create", "namespace", SPACE)
    yield control_plane
    control_plane.kubectl("delete", "namespace", SPACE)
    control_plane.kubectl("delete", "nodes", "--ignore-not-found", *ADDED)


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
    limits = {"reportAfter": "5s"}
    words = settings(tmp_path, repository=following(upstream), startupTaints=limits)
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
    # on a slow machine the first nodes are complete before the last one has its first agent
    waiting = [name for name in NODES[:-1] if OWN.key in taints(plane, name)]
    plane.kubectl("delete", "daemonset", "-n", SPACE, "late", "last")
    with running(tmp_path, plane, *words) as (_, log):
        until(lambda: len(scheduled(plane)) == 3, log.read_text)
        words_of_kubernetes = (
            "joining/never: ImagePullBackOff: container agent: Back-off pulling image"
        )
        until(lambda: words_of_kubernetes in log.read_text(), log.read_text)
        # the event follows the response of the API server, the scheduler does not wait for it
        until(lambda: log.read_text().count(": AgentsReady ") == len(waiting), log.read_text)
    available = last_available(plane)
    assert "web-joins-broken" not in scheduled(plane)
    for name, at in scheduled(plane).items():
        # the times of the API server are whole seconds
        assert available[name.removeprefix("web-")] <= at + 1
        # by the time of the agents, not by the next list of all nodes
        assert at <= available[name.removeprefix("web-")] + 60


def forget_required(plane: controlplane.ControlPlane, repository: str) -> None:
    """Makes the stored state that of a version that did not record the required agents."""
    path = "/api/v1/namespaces/service-test/configmaps"
    for body in plane.request("GET", path)["items"]:
        if STATE not in (body.get("binaryData") or {}):
            continue
        state = json.loads(gzip.decompress(base64.b64decode(body["binaryData"][STATE])))
        if state["repository"] == repository:
            del state["required"]
            data = base64.b64encode(gzip.compress(json.dumps(state).encode())).decode()
            named, patch = f"{path}/{body['metadata']['name']}", {"binaryData": {STATE: data}}
            plane.request("PATCH", named, patch, "application/merge-patch+json")


def test_after_an_upgrade_no_node_gets_work_before_git_was_read(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    with gitservers.http_git_server(tmp_path / "git") as server:
        server.repository("fleet").commit(
            {"agent.json": agent("upgraded", 0, "broken", {"upgraded": ""})}
        )
        fleet: dict[str, Any] = {
            "url": f"{server.url}/fleet",
            "interval": "1s",
            "retryInterval": "1s",
        }
        fleet["credentials"] = server.credentials(tmp_path)
        words = settings(tmp_path, repository=fleet, startupTaints={"reportAfter": "1s"})
        with running(tmp_path, plane, *words) as (_, log):
            until(lambda: " is applied: 1 written" in log.read_text(), log.read_text)
        forget_required(plane, fleet["url"])
        shutil.rmtree(tmp_path / "cache")  # as in a new pod
        server.status = 503
        with running(tmp_path, plane, *words) as (_, log):
            until(lambda: "next attempt in" in log.read_text(), log.read_text)
            taint = [{"key": OWN.key, "effect": OWN.effect}]
            plane.add_nodes([controlplane.node(UPGRADED, {"upgraded": ""}, taint)])
            until(lambda: f"Node {UPGRADED}: " in log.read_text(), log.read_text)
            assert OWN.key in taints(plane, UPGRADED), log.read_text()
            server.status = 0
            until(lambda: "joining/upgraded: ImagePull" in log.read_text(), log.read_text)
            assert OWN.key in taints(plane, UPGRADED), log.read_text()


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


# What the tenant writes to the DaemonSet, as merge patches.
EDITS: dict[str, dict[str, Any]] = {
    "nodeSelector": {"spec": {"template": {"spec": {"nodeSelector": {"no": "where"}}}}},
    "minReadySeconds": {"spec": {"minReadySeconds": 0}},
    "annotation": {"metadata": {"annotations": {names.REQUIRED_FOR_WORK: None}}},
}


def test_who_may_write_daemonsets_and_pods_gives_no_node_work_and_keeps_none_from_it(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    permit(plane)
    upstream = gitservers.Upstream(tmp_path / "fleet")
    body = json.loads(agent("cni", 0, "broken", {}))
    spec = body["spec"]["template"]["spec"]
    del spec["nodeSelector"]  # no field of Git, so an edit of it is not corrected
    terms = [{"matchExpressions": [{"key": "tenanted", "operator": "Exists"}]}]
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec["affinity"] = {"nodeAffinity": needed}
    upstream.commit({"agent.json": json.dumps(body)})
    words = settings(tmp_path, repository=following(upstream), startupTaints={"reportAfter": "3s"})
    taint = [{"key": OWN.key, "effect": OWN.effect}]
    free = iter(FREE)

    def looked(log: Path) -> None:
        """After the service looked at all nodes: it releases one that joins without agents."""
        name = next(free)
        plane.add_nodes([controlplane.node(name, {}, taint)])
        until(lambda: OWN.key not in taints(plane, name), log.read_text)
        for tenanted in TENANTED:
            assert OWN.key in taints(plane, tenanted), log.read_text()

    with running(tmp_path, plane, *words) as (_, log):
        until(lambda: "created DaemonSet joining/cni" in log.read_text(), log.read_text)
        plane.add_nodes([controlplane.node(name, {"tenanted": ""}, taint) for name in TENANTED])
        until(lambda: len(in_space(plane)) == len(TENANTED), log.read_text)
        by_tenant(plane, "apply", "-f", "-", stdin=agent("mine", 0, "broken", {}))
        for edit in EDITS.values():
            by_tenant(plane, "patch", "ds", "cni", "--type=merge", "-p", json.dumps(edit))
        until(lambda: not of_agent(plane, "cni"), log.read_text)
        looked(log)
        # after the limit for agents that only a person can help
        until(lambda: all(map(reported(log).__contains__, TENANTED)), log.read_text)
        looked(log)
        selects = {"spec": {"template": {"spec": {"nodeSelector": None}}}}
        by_tenant(plane, "patch", "ds", "cni", "--type=merge", "-p", json.dumps(selects))
        until(lambda: len(of_agent(plane, "cni")) == len(TENANTED), log.read_text)
        until(lambda: forged(plane), log.read_text)
        looked(log)
        where = ("--kubeconfig", str(plane.kubeconfig), "--state-namespace", "service-test")
        command = [str(PROGRAM), "get", "nodes", TENANTED[0], *where]
        shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        assert "has the image registry.example.com/pause:3" in shown


def reported(log: Path) -> set[str]:
    """The nodes of which the service reported that they wait for too long."""
    return set(re.findall(r"Node (\S+): WaitsForAgents", log.read_text()))


def permit(plane: controlplane.ControlPlane) -> None:
    """Permits the tenant to write DaemonSets and pods in the namespace, and nothing else."""
    for verbs, resource in (("*", "daemonsets.apps"), ("get,list,create,delete", "pods")):
        name = f"tenant-{resource.partition('.')[0]}"
        options = (f"--verb={verbs}", f"--resource={resource}")
        plane.kubectl("-n", SPACE, "create", "role", name, *options)
        options = (f"--role={name}", f"--user={TENANT}")
        plane.kubectl("-n", SPACE, "create", "rolebinding", name, *options)


def by_tenant(plane: controlplane.ControlPlane, *words: str, stdin: str | None = None) -> None:
    plane.kubectl("--as", TENANT, "-n", SPACE, *words, stdin=stdin)


def of_agent(plane: controlplane.ControlPlane, agent: str) -> list[dict[str, Any]]:
    named = (one for one in in_space(plane) if one["metadata"]["name"].startswith(f"{agent}-"))
    return [one for one in named if not one["metadata"].get("deletionTimestamp")]


def forged(plane: controlplane.ControlPlane) -> bool:
    """Whether a ready pod of the tenant is in the place of the pod of a node, with its labels and
    its owner; the DaemonSet controller may have been faster.
    """
    path = f"/api/v1/namespaces/{SPACE}/pods"
    found = of_agent(plane, "cni-forged")
    if found:
        return condition(found[0], "Ready") is not None
    on_node = (pod for pod in of_agent(plane, "cni") if pod["spec"].get("nodeName") == TENANTED[0])
    if (real := next(on_node, None)) is None:
        return False
    metadata = {key: real["metadata"][key] for key in ("labels", "ownerReferences")}
    containers = [{"name": "agent", "image": "registry.example.com/pause:3"}]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "generateName": "cni-forged-", "namespace": SPACE},
        "spec": {"nodeName": TENANTED[0], "containers": containers},
    }
    at_once = {"gracePeriodSeconds": 0}
    plane.request("DELETE", f"{path}/{real['metadata']['name']}", at_once, user=TENANT)
    plane.request("POST", path, body, user=TENANT)
    return False


def taints(plane: controlplane.ControlPlane, node: str) -> list[str]:
    spec = plane.request("GET", f"/api/v1/nodes/{node}")["spec"]
    return [taint["key"] for taint in spec.get("taints") or ()]


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
