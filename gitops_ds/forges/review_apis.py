"""The requests for reviews and teams of each forge, and the readers of their answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from gitops_ds.forges.contract import (
    PER_PAGE,
    ForgeKind,
    ForgeRequest,
    MergedPullRequest,
    PullRequestHead,
    PullRequestRef,
    RequestPurpose,
    Review,
    ReviewState,
    text,
)


class ReviewApi(Protocol):
    """The part of a forge's API with reviews and teams."""

    def list_merged(self, ref: PullRequestRef, commit: str) -> ForgeRequest:
        """The request for the pull requests of a commit."""

    def read_merged(self, reply: Any) -> Sequence[MergedPullRequest]:
        """The merged ones."""

    def list_reviews(self, ref: PullRequestRef, page: int) -> ForgeRequest | None:
        """The request for a page of reviews, from 1; None after the last one."""

    def read_reviews(self, reply: Any) -> Sequence[Review]:
        """The reviews, the oldest first."""

    def list_heads(self, ref: PullRequestRef) -> ForgeRequest | None:
        """The request for the heads with their times; None if reviews have their commit."""

    def read_heads(self, reply: Any) -> Sequence[PullRequestHead]:
        """The heads of the pull request."""

    def find_team(self, team: str) -> ForgeRequest | None:
        """The request for the id of a team; None if its name is sufficient."""

    def read_team(self, reply: Any, team: str) -> str | None:
        """The id of the team, None without one."""

    def get_member(self, team: str, user: str, user_id: str) -> ForgeRequest:
        """The request for a member of a team, or its id."""

    def read_member(self, reply: Any, user: str) -> bool:
        """Whether it is an active member."""


class GitHubReviews(msgspec.Struct, frozen=True):
    """Implements ReviewApi: https://docs.github.com/rest/pulls/reviews."""

    def list_merged(self, ref: PullRequestRef, commit: str) -> ForgeRequest:
        """https://docs.github.com/rest/commits/commits#list-pull-requests-associated-with-a-commit"""
        return _get(RequestPurpose.LIST_REVIEWS, f"{_repository(ref)}/commits/{commit}/pulls")

    def read_merged(self, reply: Any) -> Sequence[MergedPullRequest]:
        """Open and closed ones have no merge time."""
        return [_merged(one) for one in reply or () if one.get("merged_at")]

    def list_reviews(self, ref: PullRequestRef, page: int) -> ForgeRequest | None:
        """In the order of time."""
        query = f"per_page={PER_PAGE}&page={page}"
        path = f"{_repository(ref)}/pulls/{ref.number}/reviews?{query}"
        return _get(RequestPurpose.LIST_REVIEWS, path)

    def read_reviews(self, reply: Any) -> Sequence[Review]:
        """A review of a deleted account has no user."""
        return [_review(one) for one in reply or () if one.get("user")]

    def list_heads(self, ref: PullRequestRef) -> ForgeRequest | None:
        """None: a review has its commit."""
        return None

    def read_heads(self, reply: Any) -> Sequence[PullRequestHead]:
        """None."""
        return ()

    def find_team(self, team: str) -> ForgeRequest | None:
        """None: ORGANIZATION/SLUG is sufficient."""
        return None

    def read_team(self, reply: Any, team: str) -> str | None:
        """The name itself."""
        return team

    def get_member(self, team: str, user: str, user_id: str) -> ForgeRequest:
        """https://docs.github.com/rest/teams/members#get-team-membership-for-a-user"""
        organization, _, slug = team.partition("/")
        path = f"orgs/{_quoted(organization)}/teams/{_quoted(slug)}/memberships/{_quoted(user)}"
        return _get(RequestPurpose.GET_MEMBER, path)

    def read_member(self, reply: Any, user: str) -> bool:
        """A pending member did not accept the invitation."""
        return reply is not None and reply["state"] == "active"


class GiteaReviews(GitHubReviews, frozen=True):
    """Implements ReviewApi: /api/swagger of a server."""

    def list_merged(self, ref: PullRequestRef, commit: str) -> ForgeRequest:
        """The one merged pull request of a commit."""
        return _get(RequestPurpose.LIST_REVIEWS, f"{_repository(ref)}/commits/{commit}/pull")

    def read_merged(self, reply: Any) -> Sequence[MergedPullRequest]:
        """None for a commit without a pull request."""
        return [_merged(reply)] if reply is not None and reply.get("merged") else []

    def list_reviews(self, ref: PullRequestRef, page: int) -> ForgeRequest | None:
        """In the order of time."""
        query = f"limit={PER_PAGE}&page={page}"
        path = f"{_repository(ref)}/pulls/{ref.number}/reviews?{query}"
        return _get(RequestPurpose.LIST_REVIEWS, path)

    def find_team(self, team: str) -> ForgeRequest | None:
        """Teams have numbers."""
        organization, _, name = team.partition("/")
        path = f"orgs/{_quoted(organization)}/teams/search?q={_quoted(name)}"
        return _get(RequestPurpose.GET_MEMBER, path)

    def read_team(self, reply: Any, team: str) -> str | None:
        """The search also finds parts of names."""
        name = team.partition("/")[2].lower()
        teams = (one for one in (reply or {}).get("data") or () if one["name"].lower() == name)
        return next((str(int(one["id"])) for one in teams), None)

    def get_member(self, team: str, user: str, user_id: str) -> ForgeRequest:
        """404 for others."""
        return _get(RequestPurpose.GET_MEMBER, f"teams/{_quoted(team)}/members/{_quoted(user)}")

    def read_member(self, reply: Any, user: str) -> bool:
        """The user."""
        return reply is not None and text(reply["login"]).lower() == user


class GitLabReviews(GitHubReviews, frozen=True):
    """Implements ReviewApi: https://docs.gitlab.com/api/merge_request_approvals/.

    An approval has its time but no commit, so it counts for the head at that time. Approvals
    without a time do not count.
    """

    def list_merged(self, ref: PullRequestRef, commit: str) -> ForgeRequest:
        """https://docs.gitlab.com/api/commits/#list-merge-requests-associated-with-a-commit"""
        path = f"{_project(ref)}/repository/commits/{commit}/merge_requests"
        return _get(RequestPurpose.LIST_REVIEWS, path)

    def read_merged(self, reply: Any) -> Sequence[MergedPullRequest]:
        """The number of the merge request within the project."""
        return [
            MergedPullRequest(
                int(one["iid"]),
                text(one["sha"]),
                _name(one["author"], "username"),
                text(one["target_branch"]),
            )
            for one in reply or ()
            if one["state"] == "merged"
        ]

    def list_reviews(self, ref: PullRequestRef, page: int) -> ForgeRequest | None:
        """Approvals that are not withdrawn, on one page."""
        if page > 1:
            return None
        path = f"{_project(ref)}/merge_requests/{ref.number}/approvals"
        return _get(RequestPurpose.LIST_REVIEWS, path)

    def read_reviews(self, reply: Any) -> Sequence[Review]:
        """Approvals only."""
        return [
            Review(
                _name(one["user"], "username"),
                str(int(one["user"]["id"])),
                ReviewState.APPROVED,
                "",
                _seconds(one.get("approved_at")),
            )
            for one in (reply or {}).get("approved_by") or ()
        ]

    def list_heads(self, ref: PullRequestRef) -> ForgeRequest | None:
        """https://docs.gitlab.com/api/merge_requests/#list-all-merge-request-diff-versions"""
        path = f"{_project(ref)}/merge_requests/{ref.number}/versions?per_page={PER_PAGE}"
        return _get(RequestPurpose.LIST_REVIEWS, path)

    def read_heads(self, reply: Any) -> Sequence[PullRequestHead]:
        """Each push is a version."""
        return [
            PullRequestHead(text(one["head_commit_sha"]), _seconds(one["created_at"]))
            for one in reply or ()
        ]

    def get_member(self, team: str, user: str, user_id: str) -> ForgeRequest:
        """https://docs.gitlab.com/api/group_members/, with inherited members."""
        path = f"groups/{_quoted(team)}/members/all/{_quoted(user_id)}"
        return _get(RequestPurpose.GET_MEMBER, path)


def of(kind: ForgeKind) -> ReviewApi:
    """The API of a forge of that kind."""
    match kind:
        case ForgeKind.GITHUB:
            return GitHubReviews()
        case ForgeKind.GITLAB:
            return GitLabReviews()
        case ForgeKind.GITEA | ForgeKind.FORGEJO:
            return GiteaReviews()


def _get(purpose: RequestPurpose, path: str) -> ForgeRequest:
    return ForgeRequest(purpose, "GET", path)


def _merged(item: Any) -> MergedPullRequest:
    return MergedPullRequest(
        int(item["number"]),
        text(item["head"]["sha"]),
        _name(item.get("user"), "login"),
        text(item["base"]["ref"]),
    )


_STATES = {
    "APPROVED": ReviewState.APPROVED,
    "CHANGES_REQUESTED": ReviewState.OTHER,
    "REQUEST_CHANGES": ReviewState.OTHER,
    "DISMISSED": ReviewState.OTHER,
}


def _review(item: Any) -> Review:
    """Comments and requests for a review are not verdicts. Gitea marks dismissed and stale
    reviews.
    """
    state = _STATES.get(text(item["state"]))
    if state is ReviewState.APPROVED and (item.get("dismissed") or item.get("stale")):
        state = ReviewState.OTHER
    user = item["user"]
    commit = text(item.get("commit_id") or "")
    return Review(_name(user, "login"), str(int(user["id"])), state, commit)


def _name(user: Any, key: str) -> str:
    return text((user or {}).get(key) or "").lower()


def _seconds(value: Any) -> float | None:
    return datetime.fromisoformat(text(value)).timestamp() if value else None


def _quoted(part: str) -> str:
    return quote(part, safe="")


def _repository(ref: PullRequestRef) -> str:
    return f"repos/{quote(ref.project, safe='/')}"


def _project(ref: PullRequestRef) -> str:
    return f"projects/{_quoted(ref.project)}"
