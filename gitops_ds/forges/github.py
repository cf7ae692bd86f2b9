"""The API of GitHub and GitHub Enterprise Server: https://docs.github.com/rest. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

from gitops_ds.core.plain_text import shortened
from gitops_ds.forges.contract import (
    PER_PAGE,
    Comment,
    CommitStatus,
    ForgeApi,
    ForgeRequest,
    MergedPullRequest,
    NewPullRequest,
    PullRequestRef,
    RequestPurpose,
    Review,
    ReviewState,
    StatusState,
    quoted,
    text,
    user_name,
)

_LONGEST_DESCRIPTION: Final = 140
_IN_WORKFLOW: Final = (
    "(in a workflow under `permissions:`; not available to a pull request from a fork)"
)
# Gitea has REQUEST_CHANGES. Comments and requests for a review are not verdicts.
_VERDICTS: Final[Mapping[str, ReviewState]] = {
    "APPROVED": ReviewState.APPROVED,
    "CHANGES_REQUESTED": ReviewState.OTHER,
    "REQUEST_CHANGES": ReviewState.OTHER,
    "DISMISSED": ReviewState.OTHER,
}


class GitHub(ForgeApi):
    """github.com and GitHub Enterprise Server."""

    name = "GitHub"
    path = "/api/v3"
    public = "https://github.com"
    token_variables: tuple[str, ...] = ("GITHUB_TOKEN", "GH_TOKEN")
    # https://docs.github.com/actions/reference/workflow-syntax-for-github-actions#permissions
    permissions: Mapping[RequestPurpose, str] = {
        RequestPurpose.GET_USER: "`pull-requests: read`",
        RequestPurpose.GET_PULL_REQUEST: "`pull-requests: read`",
        RequestPurpose.LIST_COMMENTS: "`pull-requests: read`",
        RequestPurpose.WRITE_COMMENT: f"`pull-requests: write` {_IN_WORKFLOW}",
        RequestPurpose.SET_STATUS: f"`statuses: write` {_IN_WORKFLOW}",
        RequestPurpose.LIST_REVIEWS: "`contents: read` and `pull-requests: read`",
        RequestPurpose.GET_MEMBER: "`members: read` of the organization",
        RequestPurpose.OPEN_PULL_REQUEST: "`pull-requests: write`",
    }

    def headers(self, token: str, *, of_job: bool) -> Mapping[str, str]:
        """A bearer token, and the version of the API."""
        return {
            "Authorization": f"Bearer {token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }

    def get_user(self) -> ForgeRequest:
        """By GraphQL: the REST API does not identify the token of a workflow or an app."""
        query = {"query": "{viewer{login}}"}
        return ForgeRequest(RequestPurpose.GET_USER, "graphql", "POST", query)

    def read_user(self, reply: Any) -> str:
        """The login; of a workflow `github-actions[bot]`."""
        return text(reply["data"]["viewer"]["login"]).lower()

    def get_pull_request(self, ref: PullRequestRef) -> ForgeRequest:
        """https://docs.github.com/rest/pulls/pulls#get-a-pull-request"""
        return ForgeRequest(
            RequestPurpose.GET_PULL_REQUEST, f"{repository(ref)}/pulls/{ref.number}"
        )

    def read_head(self, reply: Any) -> str:
        """The head of the branch, not the merge commit that a workflow checks out."""
        return text(reply["head"]["sha"])

    def list_open_pull_requests(self, ref: PullRequestRef, branch: str) -> ForgeRequest | None:
        """For a fork, the event of a `workflow_run` contains the branch but no pull request."""
        query = urlencode({"state": "open", "head": branch, "per_page": PER_PAGE})
        return ForgeRequest(RequestPurpose.GET_PULL_REQUEST, f"{repository(ref)}/pulls?{query}")

    def list_comments(self, ref: PullRequestRef, page: int) -> ForgeRequest:
        """https://docs.github.com/rest/issues/comments; a pull request is an issue in this API."""
        query = f"per_page={PER_PAGE}&page={page}"
        path = f"{repository(ref)}/issues/{ref.number}/comments?{query}"
        return ForgeRequest(RequestPurpose.LIST_COMMENTS, path)

    def read_comment(self, item: Any) -> Comment:
        """The user is null after the account was deleted."""
        author = user_name(item.get("user"), "login")
        return Comment(int(item["id"]), author, text(item["body"] or ""))

    def create_comment(self, ref: PullRequestRef, body: str) -> ForgeRequest:
        """https://docs.github.com/rest/issues/comments#create-an-issue-comment"""
        path = f"{repository(ref)}/issues/{ref.number}/comments"
        return ForgeRequest(RequestPurpose.WRITE_COMMENT, path, "POST", {"body": body})

    def update_comment(self, ref: PullRequestRef, id: int, body: str) -> ForgeRequest:
        """https://docs.github.com/rest/issues/comments#update-an-issue-comment"""
        path = f"{repository(ref)}/issues/comments/{id}"
        return ForgeRequest(RequestPurpose.WRITE_COMMENT, path, "PATCH", {"body": body})

    def set_status(self, ref: PullRequestRef, sha: str, status: CommitStatus) -> ForgeRequest:
        """https://docs.github.com/rest/commits/statuses; the description has at most 140
        characters.
        """
        unfinished = status.state in (StatusState.RUNNING, StatusState.CANCELED)
        body = {
            "state": (StatusState.PENDING if unfinished else status.state).value,
            "context": status.name,
            "description": shortened(status.description, _LONGEST_DESCRIPTION),
        }
        body |= {"target_url": status.url} if status.url else {}
        path = f"{repository(ref)}/statuses/{sha}"
        return ForgeRequest(RequestPurpose.SET_STATUS, path, "POST", body)

    def open_pull_request(self, ref: PullRequestRef, new: NewPullRequest) -> ForgeRequest:
        """https://docs.github.com/rest/pulls/pulls#create-a-pull-request"""
        body = {"head": new.source, "base": new.target, "title": new.title, "body": new.text}
        path = f"{repository(ref)}/pulls"
        return ForgeRequest(RequestPurpose.OPEN_PULL_REQUEST, path, "POST", body)

    def read_url(self, reply: Any) -> str:
        """The web page, not the address in the API."""
        return text(reply["html_url"])

    def list_merged(self, ref: PullRequestRef, commit: str) -> ForgeRequest:
        """https://docs.github.com/rest/commits/commits#list-pull-requests-associated-with-a-commit"""
        return ForgeRequest(
            RequestPurpose.LIST_REVIEWS, f"{repository(ref)}/commits/{commit}/pulls"
        )

    def read_merged(self, reply: Any) -> Sequence[MergedPullRequest]:
        """Open and closed ones have no merge time."""
        return [merged(entry) for entry in reply or () if entry.get("merged_at")]

    def list_reviews(self, ref: PullRequestRef, page: int) -> ForgeRequest | None:
        """In the order of time: https://docs.github.com/rest/pulls/reviews"""
        query = f"per_page={PER_PAGE}&page={page}"
        path = f"{repository(ref)}/pulls/{ref.number}/reviews?{query}"
        return ForgeRequest(RequestPurpose.LIST_REVIEWS, path)

    def read_reviews(self, reply: Any) -> Sequence[Review]:
        """A review of a deleted account has no user."""
        return [_review(entry) for entry in reply or () if entry.get("user")]

    def get_member(self, team: str, user: str, user_id: str) -> ForgeRequest:
        """https://docs.github.com/rest/teams/members#get-team-membership-for-a-user"""
        organization, _, slug = team.partition("/")
        path = f"orgs/{quoted(organization)}/teams/{quoted(slug)}/memberships/{quoted(user)}"
        return ForgeRequest(RequestPurpose.GET_MEMBER, path)


def repository(ref: PullRequestRef) -> str:
    """The path of a repository."""
    return f"repos/{quote(ref.project, safe='/')}"


def merged(item: Any) -> MergedPullRequest:
    """A merged pull request in an answer of GitHub or Gitea."""
    return MergedPullRequest(
        int(item["number"]),
        text(item["head"]["sha"]),
        user_name(item.get("user"), "login"),
        text(item["base"]["ref"]),
    )


def _review(item: Any) -> Review:
    """Gitea marks dismissed and stale reviews."""
    state = _VERDICTS.get(text(item["state"]))
    if state is ReviewState.APPROVED and (item.get("dismissed") or item.get("stale")):
        state = ReviewState.OTHER
    user = item["user"]
    commit = text(item.get("commit_id") or "")
    return Review(user_name(user, "login"), str(int(user["id"])), state, commit)
