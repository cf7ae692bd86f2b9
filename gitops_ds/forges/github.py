"""The API of GitHub and GitHub Enterprise Server: https://docs.github.com/rest. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from gitops_ds.forges.contract import (
    PER_PAGE,
    Comment,
    CommitStatus,
    ForgeRequest,
    NewPullRequest,
    PullRequestRef,
    RequestPurpose,
    StatusState,
    shorten,
    text,
)

_LONGEST_DESCRIPTION = 140


class GitHub(msgspec.Struct, frozen=True):
    """Implements ForgeApi."""

    name: str = "GitHub"
    pull_request: str = "pull request"

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
        return ForgeRequest(RequestPurpose.GET_USER, "POST", "graphql", query)

    def read_user(self, reply: Any) -> str:
        """The login; of a workflow `github-actions[bot]`."""
        return text(reply["data"]["viewer"]["login"]).lower()

    def get_pull_request(self, ref: PullRequestRef) -> ForgeRequest:
        """https://docs.github.com/rest/pulls/pulls#get-a-pull-request"""
        path = f"{_repository(ref)}/pulls/{ref.number}"
        return ForgeRequest(RequestPurpose.GET_PULL_REQUEST, "GET", path)

    def read_head(self, reply: Any) -> str:
        """The head of the branch, not the merge commit that a workflow checks out."""
        return text(reply["head"]["sha"])

    def list_open_pull_requests(self, ref: PullRequestRef, branch: str) -> ForgeRequest | None:
        """For a fork, the event of a `workflow_run` contains the branch but no pull request."""
        query = urlencode({"state": "open", "head": branch, "per_page": PER_PAGE})
        path = f"{_repository(ref)}/pulls?{query}"
        return ForgeRequest(RequestPurpose.GET_PULL_REQUEST, "GET", path)

    def list_comments(self, ref: PullRequestRef, page: int) -> ForgeRequest:
        """https://docs.github.com/rest/issues/comments"""
        query = f"per_page={PER_PAGE}&page={page}"
        path = f"{_repository(ref)}/issues/{ref.number}/comments?{query}"
        return ForgeRequest(RequestPurpose.LIST_COMMENTS, "GET", path)

    def read_comment(self, item: Any) -> Comment:
        """The user is null after the account was deleted."""
        author = text((item.get("user") or {}).get("login") or "").lower()
        return Comment(int(item["id"]), author, text(item["body"] or ""))

    def create_comment(self, ref: PullRequestRef, body: str) -> ForgeRequest:
        """A pull request is an issue in this API."""
        path = f"{_repository(ref)}/issues/{ref.number}/comments"
        return ForgeRequest(RequestPurpose.WRITE_COMMENT, "POST", path, {"body": body})

    def update_comment(self, ref: PullRequestRef, id: int, body: str) -> ForgeRequest:
        """https://docs.github.com/rest/issues/comments#update-an-issue-comment"""
        path = f"{_repository(ref)}/issues/comments/{id}"
        return ForgeRequest(RequestPurpose.WRITE_COMMENT, "PATCH", path, {"body": body})

    def set_status(self, ref: PullRequestRef, sha: str, status: CommitStatus) -> ForgeRequest:
        """https://docs.github.com/rest/commits/statuses; the description has at most 140
        characters.
        """
        unfinished = status.state in (StatusState.RUNNING, StatusState.CANCELED)
        body = {
            "state": (StatusState.PENDING if unfinished else status.state).value,
            "context": status.name,
            "description": shorten(status.description, _LONGEST_DESCRIPTION),
        }
        body |= {"target_url": status.url} if status.url else {}
        path = f"{_repository(ref)}/statuses/{sha}"
        return ForgeRequest(RequestPurpose.SET_STATUS, "POST", path, body)

    def open_pull_request(self, ref: PullRequestRef, new: NewPullRequest) -> ForgeRequest:
        """https://docs.github.com/rest/pulls/pulls#create-a-pull-request"""
        body = {"head": new.source, "base": new.target, "title": new.title, "body": new.text}
        path = f"{_repository(ref)}/pulls"
        return ForgeRequest(RequestPurpose.OPEN_PULL_REQUEST, "POST", path, body)

    def read_url(self, reply: Any) -> str:
        """The web page, not the address in the API."""
        return text(reply["html_url"])

    def required_permission(self, purpose: RequestPurpose, *, of_job: bool) -> str:
        """https://docs.github.com/actions/reference/workflow-syntax-for-github-actions#permissions"""
        in_workflow = (
            "(in a workflow under `permissions:`; not available to a pull request from a fork)"
        )
        match purpose:
            case (
                RequestPurpose.GET_USER
                | RequestPurpose.GET_PULL_REQUEST
                | RequestPurpose.LIST_COMMENTS
            ):
                return "`pull-requests: read`"
            case RequestPurpose.WRITE_COMMENT:
                return f"`pull-requests: write` {in_workflow}"
            case RequestPurpose.SET_STATUS:
                return f"`statuses: write` {in_workflow}"
            case RequestPurpose.LIST_REVIEWS:
                return "`contents: read` and `pull-requests: read`"
            case RequestPurpose.GET_MEMBER:
                return "`members: read` of the organization"
            case RequestPurpose.OPEN_PULL_REQUEST:
                return "`pull-requests: write`"


def _repository(ref: PullRequestRef) -> str:
    return f"repos/{quote(ref.project, safe='/')}"
