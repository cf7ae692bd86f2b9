"""The reviews that count, by the answers that GitHub, GitLab and Gitea document, and what they
approve.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.rollouts.staged_rollout import Approver, StageApproval, WaitingStage
from gitops_ds.forges import forge_access, reviews
from gitops_ds.forges.client import Forge
from gitops_ds.forges.contract import ForgeKind, ForgeRequest, RequestPurpose
from gitops_ds.forges.forge_access import ForgeAccess, ForgeToken
from gitops_ds.forges.reviews import ApprovingReview, ReviewReader
from gitops_ds.service.rollouts import approval_writer
from gitops_ds.source.git.branch_history import ChangedFiles
from tests.forges import servers

T = TypeVar("T")
HEAD, EARLIER = "a" * 40, "b" * 40
COMMIT, OTHER = CommitId("c" * 40), CommitId("d" * 40)
STAGE = WaitingStage(
    daemonset=Key("apps", "DaemonSet", "infra", "agent"),
    owner="u1",
    revision="agent-5d9f",
    uid="u2",
    hash="5d9f",
    commit=COMMIT,
    since=EARLIER,
    stage="gpu",
    approvers=("team-gpu",),
    files=frozenset({"agents/agent"}),
)


@dataclass
class Answers(Forge):
    """A forge with these answers by path; everything else is missing."""

    known: Mapping[str, Any]
    paths: list[str] = field(default_factory=list)

    async def request(self, request: ForgeRequest, read: Callable[[Any], T]) -> T:
        assert request.method == "GET"
        self.paths.append(request.path)
        return read(self.known.get(request.path))


def github_pull(number: int = 7, **more: Any) -> dict[str, Any]:
    pull = {
        "number": number,
        "head": {"sha": HEAD},
        "user": {"login": "Author"},
        "base": {"ref": "main"},
    }
    return {**pull, "merged_at": "2026-01-01T00:00:00Z", "merged": True, **more}


def review(user: str, state: str = "APPROVED", commit: str = HEAD, **more: Any) -> dict[str, Any]:
    return {"user": {"login": user, "id": 5}, "state": state, "commit_id": commit, **more}


def github(found: list[dict[str, Any]], pull: dict[str, Any] | None = None) -> Answers:
    return Answers(
        {
            f"repos/a/b/commits/{COMMIT}/pulls": [pull or github_pull()],
            "repos/a/b/pulls/7/reviews?per_page=100&page=1": found,
            "orgs/a/teams/gpu/memberships/ada": {"state": "active"},
            "orgs/a/teams/gpu/memberships/bob": {"state": "pending"},
        }
    )


def merged_head(number: str, head: str, *others: str) -> list[dict[str, Any]]:
    """The refs of Gitea with the prefix of that of a pull request."""
    heads = {**dict.fromkeys(others, EARLIER), number: head}
    return [{"ref": f"refs/pull/{one}/head", "object": {"sha": id}} for one, id in heads.items()]


def gitea(found: list[dict[str, Any]], pull: dict[str, Any] | None = None) -> Answers:
    return Answers(
        {
            f"repos/a/b/commits/{COMMIT}/pull": pull or github_pull(),
            "repos/a/b/git/refs/pull/7/head": merged_head("7", HEAD, "70"),
            "repos/a/b/pulls/7/reviews?limit=100&page=1": found,
            "orgs/a/teams/search?q=gpu": {
                "data": [{"id": 1, "name": "gpus"}, {"id": 2, "name": "GPU"}]
            },
            "teams/2/members/ada": {"login": "Ada"},
            "teams/1/members/eve": {"login": "eve"},
        }
    )


def gitlab(at: str | None, state: str = "merged", user: str = "ada") -> Answers:
    project = "projects/a%2Fb"
    approved = {"user": {"username": user, "id": 5}} | ({"approved_at": at} if at else {})
    versions = [
        {"head_commit_sha": HEAD, "created_at": "2026-01-02T00:00:00.000Z"},
        {"head_commit_sha": EARLIER, "created_at": "2026-01-01T00:00:00.000Z"},
    ]
    pull = {"iid": 7, "sha": HEAD, "state": state, "author": {"username": "author"}}
    pull["target_branch"] = "main"
    return Answers(
        {
            f"{project}/repository/commits/{COMMIT}/merge_requests": [pull],
            f"{project}/merge_requests/7/approvals": {"approved_by": [approved]},
            f"{project}/merge_requests/7/versions?per_page=100": versions,
            "groups/a%2Fgpu/members/all/5": {"state": "active"},
        }
    )


def approving(kind: ForgeKind, answers: Answers, branch: str = "main") -> list[str]:
    reader = ReviewReader(answers, forge_access.api(kind), "a/b", branch)
    return [one.user for one in asyncio.run(reader.approving(COMMIT))]


@pytest.mark.parametrize("forge", [github, gitea])
@pytest.mark.parametrize(
    ("found", "users"),
    [
        ([review("Ada")], ["ada"]),
        ([review("ada"), review("bob")], ["ada", "bob"]),
        ([review("ada", commit=EARLIER)], []),
        ([review("author")], []),
        ([review("ada"), review("ada", "COMMENTED"), review("ada", "COMMENT")], ["ada"]),
        ([review("ada"), review("ada", "CHANGES_REQUESTED")], []),
        ([review("ada"), review("ada", "REQUEST_CHANGES")], []),
        ([review("ada", "CHANGES_REQUESTED"), review("ada")], ["ada"]),
        ([review("ada", "DISMISSED")], []),
        ([review("ada", dismissed=True)], []),
        ([review("ada", stale=True)], []),
        ([{**review("ada"), "user": None}], []),
        ([], []),
    ],
)
def test_the_last_review_of_the_merged_head_counts(
    forge: Callable[[Any], Answers], found: list[dict[str, Any]], users: list[str]
) -> None:
    kind = ForgeKind.GITHUB if forge is github else ForgeKind.GITEA
    assert approving(kind, forge(found)) == users


@pytest.mark.parametrize(
    ("kind", "answers"),
    [
        (ForgeKind.GITHUB, github([review("ada")])),
        (ForgeKind.GITEA, gitea([review("ada")])),
        (ForgeKind.GITLAB, gitlab("2026-01-03T00:00:00.000Z")),
    ],
)
def test_a_review_for_another_branch_approves_nothing(kind: ForgeKind, answers: Answers) -> None:
    assert approving(kind, answers, "production") == []
    assert approving(kind, answers) == approving(kind, answers, "") == ["ada"]


@pytest.mark.parametrize(
    "refs", [merged_head("7", EARLIER), merged_head("70", HEAD), merged_head("7", ""), [], None]
)
def test_on_gitea_the_head_is_that_of_the_merge_and_not_that_of_its_branch_now(
    refs: list[dict[str, Any]] | None,
) -> None:
    answers = gitea([review("ada"), review("bob", commit="")])
    path = "repos/a/b/git/refs/pull/7/head"
    assert approving(ForgeKind.GITEA, answers) == ["ada"]
    answers = Answers({**answers.known, path: refs})
    assert approving(ForgeKind.GITEA, answers) == []


def test_a_pull_request_that_is_not_merged_does_not_count() -> None:
    closed = github_pull(merged_at=None, merged=False)
    assert approving(ForgeKind.GITHUB, github([review("ada")], closed)) == []
    assert approving(ForgeKind.FORGEJO, gitea([review("ada")], closed)) == []
    at = "2026-01-03T00:00:00.000Z"
    assert approving(ForgeKind.GITLAB, gitlab(at, "opened")) == []
    assert approving(ForgeKind.GITHUB, Answers({})) == []
    assert approving(ForgeKind.GITEA, Answers({})) == []
    assert approving(ForgeKind.GITLAB, Answers({})) == []


@pytest.mark.parametrize(
    ("at", "user", "users"),
    [
        ("2026-01-03T00:00:00.000Z", "Ada", ["ada"]),
        ("2026-01-01T12:00:00.000Z", "ada", []),  # before the last push
        (None, "ada", []),
        ("2026-01-03T00:00:00.000Z", "author", []),
    ],
)
def test_an_approval_of_gitlab_counts_for_the_head_of_its_time(
    at: str | None, user: str, users: list[str]
) -> None:
    assert approving(ForgeKind.GITLAB, gitlab(at, user=user)) == users


@pytest.mark.parametrize(
    ("kind", "answers", "user", "member"),
    [
        (ForgeKind.GITHUB, github([]), "ada", True),
        (ForgeKind.GITHUB, github([]), "bob", False),
        (ForgeKind.GITHUB, github([]), "eve", False),
        (ForgeKind.GITEA, gitea([]), "ada", True),
        (ForgeKind.GITEA, gitea([]), "eve", False),
        (ForgeKind.GITEA, Answers({}), "ada", False),
        (ForgeKind.GITLAB, gitlab(None), "ada", True),
        (ForgeKind.GITLAB, Answers({}), "ada", False),
    ],
)
def test_a_member_of_a_team_is_an_active_one(
    kind: ForgeKind, answers: Answers, user: str, member: bool
) -> None:
    reader = ReviewReader(answers, forge_access.api(kind), "a/b")
    is_member = asyncio.run(reader.is_member("a/gpu", ApprovingReview(7, user, "5")))
    assert is_member is member


def test_the_requests_of_one_check_are_bounded() -> None:
    pulls = [github_pull(n) for n in range(40)]
    answers = Answers({f"repos/a/b/commits/{COMMIT}/pulls": pulls})
    with pytest.raises(errors.ForgeError, match="more than 30 requests"):
        approving(ForgeKind.GITHUB, answers)
    assert len(answers.paths) == reviews.MOST_REQUESTS


@pytest.mark.parametrize(
    ("approver", "commits", "expected"),
    [
        (Approver("team-gpu", users=frozenset({"ada"})), (COMMIT,), "ada"),
        (Approver("team-gpu", teams=frozenset({"a/gpu"})), (COMMIT,), "ada"),
        (Approver("team-gpu", users=frozenset({"bob"})), (COMMIT,), None),
        (Approver("team-gpu", teams=frozenset({"a/cpu"})), (COMMIT,), None),
        (Approver("team-gpu", users=frozenset({"ada"})), (COMMIT, OTHER), None),
        (Approver("team-gpu", users=frozenset({"ada"})), (), None),
    ],
)
def test_a_review_by_an_approver_of_every_commit_approves(
    approver: Approver, commits: tuple[CommitId, ...], expected: str | None
) -> None:
    answers = github([review("ada")])
    reader = ReviewReader(answers, forge_access.api(ForgeKind.GITHUB), "a/b")
    changed = [ChangedFiles(commit, frozenset(), (CommitId("e" * 40),)) for commit in commits]
    approval = asyncio.run(
        approval_writer.approval_by_reviews(reader, STAGE, (approver,), changed, nothing_merged)
    )
    assert approval == (
        StageApproval("gpu", "5d9f", "team-gpu", expected, "review of #7") if expected else None
    )


async def nothing_merged(merge: ChangedFiles) -> tuple[ChangedFiles, ...]:
    raise AssertionError(f"{merge.id} was merged by the forge, or has one parent")


@pytest.mark.parametrize(
    ("second_parent", "merged", "approved"),
    [
        (HEAD, None, True),  # the merge of the forge
        (EARLIER, None, False),
        (EARLIER, (), True),
        (EARLIER, (COMMIT,), True),
        (EARLIER, (OTHER,), False),
    ],
)
def test_a_merge_in_a_pull_request_needs_a_review_of_what_it_brings(
    second_parent: str, merged: tuple[CommitId, ...] | None, approved: bool
) -> None:
    reader = ReviewReader(github([review("ada")]), forge_access.api(ForgeKind.GITHUB), "a/b")
    parents = (CommitId("e" * 40), CommitId(second_parent))

    async def brought(merge: ChangedFiles) -> tuple[ChangedFiles, ...] | None:
        assert merge.id == COMMIT
        assert second_parent != HEAD
        return None if merged is None else tuple(ChangedFiles(o, frozenset()) for o in merged)

    approver = Approver("team-gpu", users=frozenset({"ada"}))
    commits = [ChangedFiles(COMMIT, frozenset(), parents)]
    approval = asyncio.run(
        approval_writer.approval_by_reviews(reader, STAGE, (approver,), commits, brought)
    )
    assert (approval is not None) is approved


@pytest.mark.parametrize(
    ("files", "ids"),
    [
        (({"agents/agent/x.yaml"}, {"docs"}), (COMMIT,)),
        (({"agents/agent/x.yaml"}, {"agents/agent/y.yaml"}), (COMMIT, OTHER)),
        (({"docs"}, {"chart/values.yaml"}), (COMMIT, OTHER)),
        ((), ()),
    ],
)
def test_the_commits_that_changed_the_template_must_be_reviewed(
    files: tuple[set[str], ...], ids: tuple[CommitId, ...]
) -> None:
    commits = [
        ChangedFiles(id, frozenset(some)) for id, some in zip((COMMIT, OTHER), files, strict=False)
    ]
    found = approval_writer.commits_to_review(commits, STAGE, "")
    assert tuple(one.id for one in found) == ids


def test_a_user_missing_at_the_forge_is_not_a_member_and_a_refusal_is_an_error() -> None:
    async def run() -> None:
        async with servers.GitHub().running() as server:
            url = f"{server.url}/api/v3"
            token = ForgeToken("t", "good-token")
            access = ForgeAccess(ForgeKind.GITHUB, url, token, "acme/agents")
            request = ForgeRequest(RequestPurpose.GET_MEMBER, "orgs/a/teams/b/memberships/c")
            async with Forge(access, 5.0) as forge:
                assert await forge.request(request, lambda reply: reply) is None
                server.faults.append(servers.Fault(403, body={"message": "no"}))
                with pytest.raises(errors.ForgeDenied, match="members: read"):
                    await forge.request(request, lambda reply: reply)

    asyncio.run(run())
