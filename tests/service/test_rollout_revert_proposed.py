"""The revert of a halted rollout as a pull request on a real Gitea."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import controlplane
from tests.plan.world import daemonset
from tests.service.test_push_to_status import Team
from tests.service.test_push_to_status import team as team
from tests.service.test_rollout_revert import NODE, Fleet, image, policy
from tests.service.test_service import running, until

pytestmark = [
    pytest.mark.forge,
    pytest.mark.controlplane,
    pytest.mark.system,
    pytest.mark.xdist_group("gitea"),
]


def push(team: Team, tag: int, how: str) -> str:
    folder = team.work.directory / "agents/agent"
    folder.mkdir(parents=True, exist_ok=True)
    (team.work.directory / "gitops-ds.yaml").write_text(f"version: v1\nname: {team.name}\n")
    (team.work.directory / "agent.json").unlink(missing_ok=True)
    body = daemonset("agent", image(tag), team.name)
    (folder / "agent-ds.yaml").write_text(json.dumps(body, indent=2))
    (folder / "rollout.yaml").write_text(policy(how=how))
    return team.work.push("main", f"Agent {tag}")


@pytest.mark.parametrize("how", ["pull-request", "commit"])
def test_a_pull_request_where_the_policy_or_the_branch_requires_one(
    tmp_path: Path, team: Team, api_server: controlplane.ControlPlane, how: str
) -> None:
    plane = api_server
    plane.kubectl("create", "namespace", team.name)
    (tmp_path / "node.json").write_text(json.dumps(NODE))
    plane.kubectl("create", "-f", str(tmp_path / "node.json"))
    fleet = Fleet(plane, None, None, tmp_path, team.name)  # type: ignore[arg-type]
    settings = team.settings(tmp_path, {"interval": "1s", "push": True})
    try:
        push(team, 1, how)
        with running(tmp_path, plane, "--settings", settings) as (_, log):
            until(lambda: fleet.image() == image(1), log.read_text)
            bad = push(team, 2, how)
            if how == "commit":
                rule = {"rule_name": "main", "branch_name": "main", "enable_push": False}
                team.api("POST", "/branch_protections", rule)
            until(fleet.is_begun, log.read_text)
        fleet.halt()
        with running(tmp_path, plane, "--settings", settings) as (_, log):
            until(lambda: "merge the revert" in log.read_text(), log.read_text)
            (proposed,) = team.api("GET", "/pulls")
            assert proposed["title"] == 'Revert "Agent 2"'
            assert "CrashLoopBackOff on revert-node" in proposed["body"]
            assert "on cluster eu-1" in proposed["body"]
            assert proposed["head"]["ref"] == f"gitops-ds/revert-{bad[:12]}-agent"
            assert proposed["html_url"] in log.read_text()
            assert team.api("GET", "/branches/main")["commit"]["id"] == bad
            assert fleet.image() == image(1)

        # The branch identifies the proposal, also after a restart.
        with running(tmp_path, plane, "--settings", settings) as (_, log):
            until(lambda: "exists" in log.read_text(), log.read_text)
            assert len(team.api("GET", "/pulls?state=all")) == 1
            assert "Traceback" not in log.read_text()
    finally:
        plane.kubectl("delete", "node", "revert-node")
