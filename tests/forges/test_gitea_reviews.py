"""Approvals by reviews on a real Gitea: who reviewed the pull request that brought a template."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core.objects import CommitId
from gitops_ds.core.rollouts.staged_rollout import StageApproval
from gitops_ds.core.values import replace
from gitops_ds.forges.contract import ForgeKind
from gitops_ds.service.rollouts.approval_writer import ForgeReviews
from gitops_ds.service.settings.repository import ApproverSettings, ForgeSettings
from gitops_ds.source.git import address
from gitops_ds.source.git.repository import Repository
from tests.forges.gitea import Clone, Gitea
from tests.forges.test_reviews import STAGE

pytestmark = [pytest.mark.forge, pytest.mark.xdist_group("gitea")]
FILE = "agents/agent/agent-ds.yaml"
READING = "read:repository,read:organization"


@dataclass
class Fleet:
    """A repository with people around it: its owner, an approver, and another reviewer."""

    gitea: Gitea
    directory: Path
    name: str
    work: Clone
    since: str
    tokens: dict[str, str]

    @property
    def project(self) -> str:
        return f"{self.name}-owner/{self.name}"

    def user(self, role: str) -> str:
        return f"{self.name}-{role}"

    def api(self, method: str, path: str, body: Any = None, role: str = "owner") -> Any:
        return self.gitea.api(method, f"/repos/{self.project}{path}", body, self.tokens[role])

    def push(self, branch: str, version: int) -> str:
        file = self.work.directory / FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"version: {version}\n")
        return self.work.push(branch, f"Agent {version}")

    def propose(self, version: int) -> int:
        self.work.git("fetch", "--quiet", "origin", "main")
        self.work.git("checkout", "--quiet", "--detach", "origin/main")
        branch = f"change-{version}"
        self.push(branch, version)
        pull = {"head": branch, "base": "main", "title": f"Agent {version}"}
        return int(self.api("POST", "/pulls", pull)["number"])

    def review(self, number: int, role: str, event: str = "APPROVED") -> int:
        body = {"event": event, "body": "Read"}
        return int(self.api("POST", f"/pulls/{number}/reviews", body, role)["id"])

    def merge(self, number: int, how: str = "squash") -> str:
        """The commit on main."""
        return self.gitea.merge(self.project, number, how, self.tokens["owner"])

    async def _branch(self) -> str:
        return "main"

    def approval(self, commit: str, approvers: ApproverSettings) -> StageApproval | None:
        """What the service finds for a stage of the rollout of this commit."""
        token = self.directory / "forge-token"
        token.write_text(self.tokens["bot"])
        forge = ForgeSettings(
            ForgeKind.GITEA, str(token), self.gitea.url, self.project, allow_http=True
        )
        stage = replace(STAGE, commit=CommitId(commit), since=self.since)
        self.work.git("fetch", "--quiet", "origin", "main:refs/remotes/origin/main")

        async def look() -> StageApproval | None:
            where = address.parse(str(self.work.directory), allow_local=True)
            async with Repository(where, self.directory / "cache") as repository:
                await repository.fetch(CommitId(commit))
                forge_reviews = ForgeReviews(repository, where, forge, "", self._branch)
                return await forge_reviews.find(stage, (approvers.named("team-gpu"),))

        return asyncio.run(look())


@pytest.fixture
def fleet(gitea: Gitea, tmp_path: Path) -> Fleet:
    name = f"reviews-{os.urandom(4).hex()}"
    own = gitea.repository(name, "approver", "stranger", "bot")
    tokens = {role: gitea.token(f"{name}-{role}", "all") for role in ("approver", "stranger")}
    tokens |= {"owner": own, "bot": gitea.token(f"{name}-bot", READING)}
    work = gitea.clone(f"{name}-owner/{name}", tmp_path / "work", own)
    scene = Fleet(gitea, tmp_path, name, work, "", tokens)
    scene.since = scene.push("main", 1)
    return scene


def people(fleet: Fleet) -> ApproverSettings:
    return ApproverSettings(users=frozenset({fleet.user("approver").upper()}))


@pytest.mark.parametrize("how", ["merge", "rebase", "rebase-merge", "squash"])
def test_a_review_by_an_approver_approves_however_it_is_merged(fleet: Fleet, how: str) -> None:
    number = fleet.propose(2)
    fleet.review(number, "stranger", "REQUEST_CHANGES")
    fleet.review(number, "approver")
    approval = fleet.approval(fleet.merge(number, how), people(fleet))
    assert approval is not None
    assert (approval.by, approval.how) == (fleet.user("approver"), f"review of #{number}")
    assert (approval.hash, approval.stage) == ("5d9f", "gpu")


def _by_a_stranger(fleet: Fleet, number: int) -> None:
    fleet.review(number, "stranger")


def _dismissed(fleet: Fleet, number: int) -> None:
    review = fleet.review(number, "approver")
    fleet.api("POST", f"/pulls/{number}/reviews/{review}/dismissals", {"message": "Not yet"})


def _of_an_earlier_push(fleet: Fleet, number: int) -> None:
    fleet.review(number, "approver")
    fleet.push("change-2", 3)


def _taken_back(fleet: Fleet, number: int) -> None:
    fleet.review(number, "approver")
    fleet.review(number, "approver", "REQUEST_CHANGES")


def _a_comment(fleet: Fleet, number: int) -> None:
    fleet.review(number, "approver", "COMMENT")


@pytest.mark.parametrize(
    "reviewed", [_by_a_stranger, _dismissed, _of_an_earlier_push, _taken_back, _a_comment]
)
def test_no_other_review_approves(fleet: Fleet, reviewed: Callable[[Fleet, int], None]) -> None:
    number = fleet.propose(2)
    reviewed(fleet, number)
    assert fleet.approval(fleet.merge(number), people(fleet)) is None


def test_a_branch_that_is_moved_back_after_the_merge_has_not_been_reviewed(fleet: Fleet) -> None:
    """Gitea marks no review as stale for a push that only takes back the changes of some files."""
    beside = fleet.work.directory / "agents/agent/limits.yaml"
    beside.parent.mkdir(parents=True, exist_ok=True)
    beside.write_text("limits: {}\n")
    number = fleet.propose(2)
    reviewed = fleet.work.git("rev-parse", "HEAD")
    fleet.review(number, "approver")
    beside.unlink()
    fleet.push("change-2", 2)
    merged = fleet.merge(number)
    fleet.work.git("push", "--quiet", "--force", "origin", f"{reviewed}:refs/heads/change-2")
    assert fleet.api("GET", f"/pulls/{number}")["head"]["sha"] == reviewed
    assert fleet.approval(merged, people(fleet)) is None


def test_every_commit_that_changed_the_template_needs_its_review(fleet: Fleet) -> None:
    numbers = [fleet.propose(2)]
    fleet.review(numbers[0], "approver")
    fleet.merge(numbers[0])
    numbers.append(fleet.propose(3))
    fleet.review(numbers[1], "approver")
    approval = fleet.approval(fleet.merge(numbers[1]), people(fleet))
    assert approval is not None
    assert approval.how == "review of #{}, #{}".format(*numbers)
    assert fleet.approval(fleet.merge(fleet.propose(4)), people(fleet)) is None, "no review"


def test_a_direct_push_has_no_review_and_neither_has_a_revert_by_the_service(fleet: Fleet) -> None:
    number = fleet.propose(2)
    fleet.review(number, "approver")
    fleet.merge(number)
    fleet.work.git("fetch", "--quiet", "origin", "main")
    fleet.work.git("checkout", "--quiet", "-B", "main", "origin/main")
    assert fleet.approval(fleet.push("main", 1), people(fleet)) is None
    # After a revert that the cluster applied, the next change needs its own review only.
    fleet.since = fleet.work.git("rev-parse", "HEAD")
    number = fleet.propose(3)
    fleet.review(number, "approver")
    approval = fleet.approval(fleet.merge(number), people(fleet))
    assert approval is not None
    assert approval.how == f"review of #{number}"


def test_a_member_of_a_team_approves(fleet: Fleet) -> None:
    organization = f"{fleet.name}-org"
    fleet.gitea.api("POST", "/orgs", {"username": organization}, fleet.tokens["owner"])
    team = {"name": "nodes", "permission": "read", "units": ["repo.code"]}
    made = fleet.gitea.api("POST", f"/orgs/{organization}/teams", team, fleet.tokens["owner"])
    for role in ("approver", "bot"):
        path = f"/teams/{made['id']}/members/{fleet.user(role)}"
        fleet.gitea.api("PUT", path, None, fleet.tokens["owner"])
    teams = ApproverSettings(teams=frozenset({f"{organization}/nodes"}))
    number = fleet.propose(2)
    fleet.review(number, "stranger")
    first = fleet.merge(number)
    assert fleet.approval(first, teams) is None
    fleet.since = first
    number = fleet.propose(3)
    fleet.review(number, "stranger")
    fleet.review(number, "approver")
    approval = fleet.approval(fleet.merge(number), teams)
    assert approval is not None
    assert approval.by == fleet.user("approver")
