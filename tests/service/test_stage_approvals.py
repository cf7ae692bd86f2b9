"""Stages that wait for approvals: the installed service beside Kubernetes' own controllers, a real
Gitea with pull requests and reviews, and commits signed by a real key.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests import controlplane, signing
from tests.plan.world import daemonset
from tests.service.test_push_to_status import Team
from tests.service.test_push_to_status import team as team
from tests.service.test_service import running, until
from tests.signing import SshSigner

pytestmark = [
    pytest.mark.slow,
    pytest.mark.forge,
    pytest.mark.controlplane,
    pytest.mark.system,
    pytest.mark.xdist_group("gitea"),
]
POLICY = """\
stages:
  - {name: canary, nodes: {count: 1}, soak: 1s, approval: {from: [people]}}
  - {name: rest, soak: 1s, approval: {from: [people]}}
limits: {atRisk: {cluster: 100%}}
onFailure: {revert: {how: none}}
"""
NODES = 3
HELD = "approval by people"


def settings(directory: Path, team: Team, ada: SshSigner, approver: str) -> str:
    (directory / "allowed").write_bytes(ada.allowed())
    repository = {
        "branch": "main",
        "interval": "1s",
        "verify": {"mode": "none", "allowedSignersFile": str(directory / "allowed")},
        "approvers": {"people": {"keys": [ada.name], "users": [approver]}},
    }
    return team.settings(directory, repository)


def push(team: Team, branch: str, tag: int) -> str:
    """A commit with this image, after the tip of main."""
    team.work.git("fetch", "--quiet", "origin")
    if branch != "main" or team.work.git("ls-remote", "origin", "main"):
        team.work.git("checkout", "--quiet", "--detach", "origin/main")
    folder = team.work.directory / "agents/agent"
    folder.mkdir(parents=True, exist_ok=True)
    (team.work.directory / "gitops-ds.yaml").write_text(f"version: v1\nname: {team.name}\n")
    (team.work.directory / "agent.json").unlink(missing_ok=True)
    body = daemonset("agent", f"registry.example.com/agent:{tag}", team.name)
    (folder / "agent-ds.yaml").write_text(json.dumps(body, indent=2))
    (folder / "rollout.yaml").write_text(POLICY)
    return team.work.push(branch, f"Agent {tag}")


def merged(team: Team, tag: int, approver: str = "") -> str:
    """The commit of a pull request with this image, which is approved before by a person."""
    branch = f"change-{tag}"
    push(team, branch, tag)
    pull = {"head": branch, "base": "main", "title": f"Agent {tag}"}
    number = int(team.api("POST", "/pulls", pull)["number"])
    if approver:
        review = {"event": "APPROVED", "body": "Read"}
        path = f"/repos/{team.project}/pulls/{number}/reviews"
        team.gitea.api("POST", path, review, team.gitea.token(approver, "all"))
    return team.merge(number)


def sign(team: Team, ada: SshSigner, stage: str, commit: str) -> None:
    """An empty commit on main that approves a stage."""
    team.work.git("fetch", "--quiet", "origin")
    team.work.git("checkout", "--quiet", "--detach", "origin/main")
    message = f"Approve it\n\nGitops-Ds-Approve: {team.name}/agent/{stage} {commit}"
    words = ("commit", "--quiet", "--allow-empty", "-S", "--message", message)
    team.work.git(*ada.config(), *words)
    team.work.git("push", "--quiet", "origin", "HEAD:main")


def test_stages_open_by_a_signed_commit_and_by_a_review_and_a_revert_needs_neither(
    tmp_path: Path, team: Team, control_plane: controlplane.ControlPlane
) -> None:
    plane, ada = control_plane, signing.ssh_signer(tmp_path, "ada@example.com")
    approver, stranger = f"{team.name}-approver", f"{team.name}-stranger"
    for user in (approver, stranger):
        team.gitea.user(user)
        path = f"/collaborators/{user}"
        team.api("PUT", path, {"permission": "write"})
    plane.kubectl("create", "namespace", team.name)

    def tags() -> Counter[int]:
        """The images of the pods that do not end."""
        pods = plane.items(team.name, "pods")
        alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        images = (str(one["spec"]["containers"][0]["image"]) for one in alive)
        return Counter(int(image.rpartition(":")[2]) for image in images)

    def template() -> str:
        return json.dumps(plane.read(team.name, "daemonsets", "agent")["spec"]["template"])

    push(team, "main", 1)
    file = settings(tmp_path, team, ada, approver)
    with running(tmp_path, plane, "--settings", file) as (process, log):

        def becomes(expected: dict[int, int]) -> None:
            until(lambda: tags() == expected, log.read_text)

        becomes({1: NODES})
        # The review of a stranger approves nothing, a signed commit its stage only.
        second = merged(team, 2, stranger)
        until(lambda: log.read_text().count(HELD) == 1, log.read_text)
        assert tags() == {1: NODES}
        sign(team, ada, "canary", second)
        becomes({1: NODES - 1, 2: 1})
        until(lambda: log.read_text().count(HELD) == 2, log.read_text)
        assert "approved by ada@example.com (people), commit " in log.read_text()
        # A revert is neither reviewed nor signed.
        push(team, "main", 1)
        becomes({1: NODES})
        assert "agent:1" in template()
        # The review of an approver opens both stages.
        merged(team, 3, approver)
        becomes({3: NODES})
        until(lambda: "agent:3" in template(), log.read_text)
        assert f"approved by {approver} (people), review of #2" in log.read_text()
        assert process.poll() is None
        assert "Traceback" not in log.read_text()
