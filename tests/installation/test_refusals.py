"""With the right to list events, the service reports why pods of another controller are refused,
until they are created, and why a pod is not ready.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import controlplane, gitservers
from tests.installation import rights, scenes
from tests.installation.rights import NOTHING_AMISS
from tests.plan.world import daemonset
from tests.service.test_service import until

SPACE = "refused"


@pytest.mark.slow
@pytest.mark.controlplane
@pytest.mark.system
@pytest.mark.xdist_group("rights")
def test_a_quota_is_the_cause_until_it_is_deleted(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    rights.installed(plane, tmp_path / "overlay", "observe")
    proven = rights.granted(plane)
    rights.installed(plane, tmp_path / "overlay", "observe", "rights/refusals")
    assert set(map(str, rights.granted(plane) - proven)) == {"list events"}
    since = rights.installed(plane, tmp_path / "overlay", "pace")
    proven = rights.granted(plane)
    plane.kubectl("create", "namespace", SPACE)
    plane.kubectl("-n", SPACE, "create", "quota", "none", "--hard=pods=0")
    hard = ("-n", SPACE, "get", "quota", "none", "-o", "jsonpath={.status.hard}")
    until(lambda: '"0"' in plane.kubectl(*hard), lambda: "the quota is not counted")
    upstream = gitservers.Upstream(tmp_path / "fleet")
    upstream.commit({"agent.json": json.dumps(daemonset("agent", scenes.image(1), SPACE))})

    def value(key: str) -> str:
        path = f"/api/v1/namespaces/{rights.NAMESPACE}/configmaps/gitops-ds-status-{SPACE}.agent"
        return str((scenes.live(plane, path) or {}).get("data", {}).get(key, ""))

    with rights.service(plane, tmp_path / "run", "pace", scenes.following(upstream)):
        until(lambda: "exceeded quota: none" in value("message"), lambda: value("message"))
        assert value("health") == "Degraded"
        assert json.loads(value("status.json"))["nodes"]["refused"] == 3
        plane.kubectl("-n", SPACE, "delete", "quota", "none")
        until(lambda: value("health") == "Healthy", lambda: value("message"), 240)
    assert rights.judge(plane, since, proven) == NOTHING_AMISS
    plane.kubectl("delete", "namespace", SPACE, "--wait=false")
