"""The installed service reports the status of agents in forms that kubectl reads: ConfigMaps,
events, lost coverage, metrics.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import controlplane, gitservers
from tests.plan.world import daemonset
from tests.service.test_service import read, running, until

pytestmark = pytest.mark.controlplane
SPACE = "standing"
NAME = "configmap/gitops-ds-status-standing.agent"
READY = "--for=jsonpath={.data.ready}=True"


@pytest.fixture
def plane(control_plane: controlplane.ControlPlane) -> Iterator[controlplane.ControlPlane]:
    """With a namespace and a label on each node; without them afterwards, for others use it too."""
    control_plane.kubectl("create", "namespace", SPACE)
    control_plane.kubectl("label", "nodes", "--all", "disk=ssd")
    yield control_plane
    control_plane.kubectl("label", "nodes", "--all", "disk-")
    control_plane.kubectl("delete", "namespace", SPACE, "--wait=false")


def test_kubectl_waits_describes_and_sees_nodes_lost(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    body = daemonset("agent", "registry.example.com/agent:1", SPACE)
    body["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
    upstream = gitservers.Upstream(tmp_path / "fleet")
    upstream.commit({"agent.json": json.dumps(body)})
    port = controlplane.free_port()
    with running(
        tmp_path,
        plane,
        "-C",
        str(upstream.path),
        "--interval",
        "1s",
        "--listen",
        f"127.0.0.1:{port}",
    ) as (_, log):

        def output_of(*words: str) -> str:
            with contextlib.suppress(subprocess.CalledProcessError):
                return plane.kubectl(*words)
            return ""

        until(
            lambda: NAME in output_of("-n", "service-test", "get", "configmap", "-o", "name"),
            log.read_text,
        )
        plane.kubectl("-n", "service-test", "wait", READY, NAME, "--timeout=60s")
        until(
            lambda: "RolloutCompleted" in output_of("-n", SPACE, "describe", "ds", "agent"),
            log.read_text,
        )
        plane.kubectl("label", "node", "node-001", "disk-")
        until(
            lambda: "CoverageLost" in output_of("-n", SPACE, "describe", "ds", "agent"),
            log.read_text,
        )
        description = plane.kubectl("-n", SPACE, "describe", "ds", "agent")
        assert (
            "1 of 3 nodes lost their agent without a commit: no pool: 1 (label disk=ssd was "
            "removed)" in description
        )
        metrics = read(f"http://127.0.0.1:{port}/metrics")
        assert (
            "gitopsds_coverage_lost_nodes"
            f'{{cause="label",name="agent",namespace="{SPACE}",pool=""}} 1.0' in metrics
        )
        assert (
            f'gitopsds_daemonset_nodes{{name="agent",namespace="{SPACE}",state="updated"}} 2.0'
            in metrics
        )
        assert 'gitopsds_api_requests_total{code="200",method="GET"}' in metrics
        plane.kubectl("label", "node", "node-001", "disk=ssd")
        plane.kubectl("-n", "service-test", "wait", READY, NAME, "--timeout=60s")
