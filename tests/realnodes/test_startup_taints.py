"""Real nodes that register with the startup taint: agents that are ready after 1, 10 and 60
seconds, and one that never is. A pending workload starts after the last agent, and not before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.startup_taints import OWN
from gitops_ds.kube.apimachinery import timestamps
from tests.realnodes import faults
from tests.realnodes.lab import MARKS, Lab, Start, laboratory

pytestmark = MARKS
NODES = ("real-1", "real-2")
SECONDS = (1, 10, 60)
TAINT = {"key": OWN.key, "effect": OWN.effect}


def agent(name: str, *options: str, **pod: Any) -> str:
    body = faults.manifest(faults.Fault(name, lambda _: None), changed=False)
    body["metadata"]["annotations"] = {names.REQUIRED_FOR_WORK: "true"}
    spec = body["spec"]["template"]["spec"]
    spec["containers"][0]["args"] = list(options)
    spec |= {"tolerations": [{"operator": "Exists"}], **pod}
    return json.dumps(body)


def workload(node: str) -> str:
    containers = [{"name": "web", "image": "localhost/agent:1"}]
    spec = {"containers": containers, "nodeSelector": {"kubernetes.io/hostname": node}}
    metadata = {"name": f"web-{node}", "namespace": "default"}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    files = {
        f"agents/after-{s}/daemonset.json": agent(f"after-{s}", f"--delay={s}") for s in SECONDS
    }
    second = {"kubernetes.io/hostname": NODES[1]}
    files["agents/never/daemonset.json"] = agent("never", "--unready", nodeSelector=second)
    start = Start(
        nodes=NODES,
        files=dict(files),
        settings={"startupTaints": {"reportAfter": "90s"}},
        kubelet={"registerWithTaints": [TAINT]},
    )
    with laboratory(tmp_path, "pace", start) as there:
        yield there


def since(body: Any, type: str) -> float | None:
    """When the condition became true, in seconds since 1970."""
    listed = (body.get("status") or {}).get("conditions") or ()
    found = [one for one in listed if one["type"] == type and one["status"] == "True"]
    return timestamps.seconds(found[0]["lastTransitionTime"]) if found else None


def test_a_pending_workload_starts_after_the_last_agent_of_its_node(lab: Lab) -> None:
    for name in NODES:
        lab.plane.kubectl("apply", "-f", "-", stdin=workload(name))

    def bound() -> dict[str, float]:
        pods = {pod["metadata"]["name"]: since(pod, "PodScheduled") for pod in lab.pods()}
        return {name: at for name, at in pods.items() if name.startswith("web-") and at}

    lab.until(lambda: "web-real-1" in bound())
    ready = [
        at
        for pod in lab.pods()
        if pod["metadata"]["name"].startswith("after-")
        and pod["spec"].get("nodeName") == "real-1"
        and (at := since(pod, "Ready")) is not None
    ]
    assert len(ready) == len(SECONDS)
    # the times of the API server are whole seconds
    released_after = bound()["web-real-1"] - max(ready)
    print(f"from the readiness of the last agent to the workload: {released_after:.0f} s")
    assert 0 <= released_after <= 3
    lab.until(lambda: "Node real-2: WaitsForAgents" in lab.tail())
    assert "web-real-2" not in bound()
    where = ("--state-namespace", lab.namespace)
    nodes = lab.command("get", "nodes", "-o", "json", *where).json["items"]
    assert [node["work"] for node in nodes] == ["Yes", "Waiting"]
    (wait,) = nodes[1]["waitsFor"]
    assert wait["name"] == "never"
    lab.plane.kubectl("taint", "node", "real-2", f"{OWN.key}:{OWN.effect}-")
    lab.until(lambda: "web-real-2" in bound())
