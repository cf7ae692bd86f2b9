"""Faults of nodes in a rollout: they are attributed to the node, halt nothing, and the rollout ends
when the node is well again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.realnodes import faults
from tests.realnodes.lab import MARKS, NODES, Lab, condition, laboratory

# Half of the tests with real nodes, for a second worker.
pytestmark = [*MARKS[:-1], pytest.mark.xdist_group("installed")]
SOAK, LONG = 8, 25  # seconds; a node is NotReady 15 seconds after its last heartbeat
REFUSED = "the agents of this test are refused"


def _files(version: int, soak: int = SOAK, **changes: Any) -> dict[str, str | bytes | None]:
    """The repository with one agent; the versions of its template differ in an option."""
    body = faults.manifest(faults.Fault("agent", lambda pod: None), changed=False)
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "VERSION", "value": str(version)}]
    container.update(changes)
    stages = [
        {"name": "canary", "nodes": {"count": 2}, "soak": f"{soak}s"},
        {"name": "rest", "soak": "2s"},
    ]
    policy = {
        "stages": stages,
        "limits": {"atRisk": {"cluster": "70%"}},
        "gates": {"pods": {"readyWithin": "20s"}},
        "progress": {"perNode": "60s"},
        "onFailure": {"revert": {"how": "none"}},
    }
    return {
        "agents/agent/daemonset.json": json.dumps(body, indent=1),
        "agents/agent/rollout.yaml": json.dumps(policy),
    }


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with laboratory(tmp_path_factory.mktemp("lab"), "pace") as lab:
        lab.upstream.commit(_files(0))
        lab.until(lambda: _runs(lab, 0) == set(NODES) and lab.are_healthy())
        yield lab


def _runs(lab: Lab, version: int) -> set[str]:
    """The nodes with a ready pod of a version."""
    return {
        str(pod["spec"]["nodeName"])
        for pod in lab.pods("agent")
        if pod["spec"]["containers"][0]["env"][0]["value"] == str(version)
        and condition(pod, "Ready") == "True"
    }


def _is_complete(lab: Lab, version: int) -> bool:
    return _runs(lab, version) == set(NODES) and lab.are_healthy()


def _canary(lab: Lab, version: int, soak: int = SOAK) -> str:
    """The first node of a rollout."""
    lab.upstream.commit(_files(version, soak))
    lab.until(lambda: bool(_runs(lab, version)))
    return min(_runs(lab, version))


def _ends(lab: Lab, version: int) -> None:
    """The rollout was never halted, and ends."""
    lab.until(lambda: _is_complete(lab, version))
    assert "halted" not in lab.log.read_text()


def test_a_reboot_in_the_canary_halts_nothing(lab: Lab) -> None:
    node = _canary(lab, 1)
    restarts = {pod["metadata"]["uid"]: _restarts(pod) for pod in lab.pods("agent")}
    lab.nodes.nodes[node].do("reboot")
    lab.until(
        lambda: any(
            _restarts(pod) > restarts.get(pod["metadata"]["uid"], 99) for pod in lab.pods("agent")
        )
    )
    _ends(lab, 1)


def _restarts(pod: Any) -> int:
    return sum(status["restartCount"] for status in pod["status"].get("containerStatuses", ()))


def test_a_kubelet_that_restarts_often_halts_nothing(lab: Lab) -> None:
    node = _canary(lab, 2)
    for _ in range(4):
        lab.nodes.nodes[node].do("stop_kubelet")
        lab.nodes.nodes[node].do("start_kubelet")
    _ends(lab, 2)


@pytest.mark.parametrize(
    ("version", "breaks", "mends"),
    [(3, "stop_kubelet", "start_kubelet"), (4, "disconnect", "connect")],
)
def test_a_node_without_a_kubelet_or_network_is_set_aside_and_updated_later(
    lab: Lab, version: int, breaks: str, mends: str
) -> None:
    node = _canary(lab, version, LONG)
    lab.nodes.nodes[node].do(breaks)
    lab.until(lambda: "NodeNotReady" in json.dumps(lab.agents()))
    lab.until(lambda: _runs(lab, version) - {node} == set(NODES) - {node})
    assert "halted" not in lab.log.read_text()
    lab.nodes.nodes[node].do(mends)
    _ends(lab, version)


def test_an_image_that_is_missing_on_one_node_is_the_fault_of_the_node(lab: Lab) -> None:
    node = NODES[0]
    lab.nodes.nodes[node].do("remove_image", "localhost/agent:3")
    # No registry is requested: a failing one holds the rollout, and is the fault of no node.
    lab.upstream.commit(_files(5, image="localhost/agent:3", imagePullPolicy="Never"))
    lab.until(lambda: _runs(lab, 5) == set(NODES) - {node})
    lab.until(lambda: _shown(lab, node)["blame"] == "node")
    failed = _shown(lab, node)
    assert "localhost/agent:3" in failed["message"]
    assert "halted" not in lab.log.read_text()
    lab.nodes.nodes[node].do("import_images")
    _ends(lab, 5)


def _shown(lab: Lab, node: str) -> Any:
    """The node in the status of the agent."""
    status = lab.command("status", "ds/agent", "-n", "default", "-o", "json").json
    return next(one for one in status["nodes"] if one["node"] == node)


def test_a_full_disk_evicts_pods_and_halts_nothing(lab: Lab) -> None:
    node = _canary(lab, 6)
    lab.nodes.nodes[node].do("fill", str(8 << 20))
    pressure = partial(_has_pressure, lab, node)
    lab.until(pressure)
    lab.until(lambda: _runs(lab, 6) - {node} == set(NODES) - {node})
    assert "halted" not in lab.log.read_text()
    lab.nodes.nodes[node].do("free")
    # The kubelet deletes unused images of a full disk, and these nodes have no registry.
    # https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#self-healing-behavior
    lab.nodes.nodes[node].do("import_images")
    lab.until(lambda: not pressure())
    _ends(lab, 6)


def _has_pressure(lab: Lab, node: str) -> bool:
    return condition(lab.plane.request("GET", f"/api/v1/nodes/{node}"), "DiskPressure") == "True"


def test_pods_that_the_api_server_refuses_hold_the_rollout(lab: Lab) -> None:
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "refusal"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["pods"],
                        "operations": ["CREATE"],
                    }
                ]
            },
            "validations": [{"expression": "false", "message": REFUSED}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "refusal"},
        "spec": {"policyName": "refusal", "validationActions": ["Deny"]},
    }
    for body in (policy, binding):
        lab.plane.kubectl("create", "-f", "-", stdin=json.dumps(body))
    before = {pod["metadata"]["uid"] for pod in lab.pods("agent")}
    lab.upstream.commit(_files(7))
    lab.until(lambda: REFUSED in lab.command("status", "ds/agent", "-n", "default").out)
    assert {pod["metadata"]["uid"] for pod in lab.pods("agent")} == before
    for kind in ("binding", ""):
        lab.plane.kubectl("delete", f"validatingadmissionpolicy{kind}", "refusal")
    _ends(lab, 7)
