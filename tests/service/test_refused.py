"""Beside the built-in controller a quota that lets no pod in is told as the cause, and forgotten when the pods come."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path

import pytest

from tests import controlplane, gitservers
from tests.plan.world import daemonset
from tests.service.test_service import running, until

SPACE = "refused"


@pytest.mark.controlplane
@pytest.mark.xdist_group("control-plane")
def test_a_quota_is_the_cause_until_it_is_gone(tmp_path: Path, control_plane: controlplane.ControlPlane) -> None:
    plane = control_plane
    plane.kubectl("create", "namespace", SPACE)
    plane.kubectl("-n", SPACE, "create", "quota", "none", "--hard=pods=0")
    upstream = gitservers.Upstream(tmp_path / "fleet")
    upstream.commit({"agent.json": json.dumps(daemonset("agent", "registry.example.com/agent:1", SPACE))})

    def told() -> dict[str, str]:
        with contextlib.suppress(subprocess.CalledProcessError):
            name = f"configmap/gitops-ds-status-{SPACE}.agent"
            return dict(json.loads(plane.kubectl("-n", "service-test", "get", name, "-o", "json"))["data"])
        return {}

    until(lambda: '"0"' in plane.kubectl("-n", SPACE, "get", "quota", "none", "-o", "jsonpath={.status.hard}"), lambda: "", 60)
    with running(tmp_path, plane, "-C", str(upstream.path), "--interval", "1s", "--powers", "pace") as (_, log):
        until(lambda: "exceeded quota: none" in told().get("message", ""), lambda: f"{told()}\n{log.read_text()}", 120)
        assert told()["health"] == "Degraded"
        assert json.loads(told()["status.json"])["nodes"]["refused"] == 3
        plane.kubectl("-n", SPACE, "delete", "quota", "none")
        until(lambda: told().get("health") == "Healthy", lambda: f"{told()}\n{log.read_text()}", 240)
    plane.kubectl("delete", "namespace", SPACE, "--wait=false")
