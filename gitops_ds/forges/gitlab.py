"""The API of GitLab: https://docs.gitlab.com/api/rest/. A project is a number or a path. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

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

_LONGEST_DESCRIPTION: Final = 255
_STATES: Final[Mapping[StatusState, str]] = {
    StatusState.PENDING: "pending",
    StatusState.RUNNING: "running",
    StatusState.CANCELED: "canceled",
    StatusState.SUCCESS: "success",
    StatusState.FAILURE: "failed",
    StatusState.ERROR: "failed",
}


class GitLab(msgspec.Struct, frozen=True):
    """Implements ForgeApi."""

    name: str = "GitLab"
    pull_request: str = "merge request"

    def headers(self, token: str, *, of_job: bool) -> Mapping[str, str]:
        """https://docs.gitlab.com/api/rest/authentication/"""
        return {"JOB-TOKEN" if of_job else "PRIVATE-TOKEN": token, "Accept": "application/json"}

    def get_user(self) -> ForgeRequest:
        """The user of the token; a project's token has its own user."""
        return ForgeRequest(RequestPurpose.GET_USER, "GET", "user")

    def read_user(self, reply: Any) -> str:
        """The user's number: names can be changed."""
        return str(int(reply["id"]))

    def get_pull_request(self, ref: PullRequestRef) -> ForgeRequest:
        """https://docs.gitlab.com/api/merge_requests/#get-single-mr"""
        return ForgeRequest(RequestPurpose.GET_PULL_REQUEST, "GET", _merge_request(ref))

    def read_head(self, reply: Any) -> str:
        """The tip of the source branch."""
        return text(reply["sha"])

    def list_open_pull_requests(self, ref: PullRequestRef, branch: str) -> ForgeRequest | None:
        """None: the variables of a job contain the merge request."""
        return None

    def list_comments(self, ref: PullRequestRef, page: int) -> ForgeRequest:
        """https://docs.gitlab.com/api/notes/, the oldest first"""
        query = f"per_page={PER_PAGE}&page={page}&sort=asc&order_by=created_at"
        path = f"{_merge_request(ref)}/notes?{query}"
        return ForgeRequest(RequestPurpose.LIST_COMMENTS, "GET", path)

    def read_comment(self, item: Any) -> Comment:
        """A note."""
        author = str((item.get("author") or {}).get("id") or "")
        return Comment(int(item["id"]), author, text(item["body"] or ""))

    def create_comment(self, ref: PullRequestRef, body: str) -> ForgeRequest:
        """https://docs.gitlab.com/api/notes/#create-new-merge-request-note"""
        path = f"{_merge_request(ref)}/notes"
        return ForgeRequest(RequestPurpose.WRITE_COMMENT, "POST", path, {"body": body})

    def update_comment(self, ref: PullRequestRef, id: int, body: str) -> ForgeRequest:
        """https://docs.gitlab.com/api/notes/#modify-existing-merge-request-note"""
        path = f"{_merge_request(ref)}/notes/{id}"
        return ForgeRequest(RequestPurpose.WRITE_COMMENT, "PUT", path, {"body": body})

    def set_status(self, ref: PullRequestRef, sha: str, status: CommitStatus) -> ForgeRequest:
        """https://docs.gitlab.com/api/commits/#set-commit-pipeline-status

        The request names the pipeline: a commit may have several, and GitLab's default is the
        newest.
        """
        body: dict[str, Any] = {"state": _STATES[status.state], "name": status.name}
        body |= {"description": shorten(status.description, _LONGEST_DESCRIPTION)}
        body |= {"target_url": status.url} if status.url else {}
        body |= {"pipeline_id": int(status.run)} if status.run.isdigit() else {}
        path = f"{_project(ref)}/statuses/{sha}"
        return ForgeRequest(RequestPurpose.SET_STATUS, "POST", path, body)

    def open_pull_request(self, ref: PullRequestRef, new: NewPullRequest) -> ForgeRequest:
        """https://docs.gitlab.com/api/merge_requests/#create-mr"""
        body = {
            "source_branch": new.source,
            "target_branch": new.target,
            "remove_source_branch": True,
            "title": new.title,
            "description": new.text,
        }
        path = f"{_project(ref)}/merge_requests"
        return ForgeRequest(RequestPurpose.OPEN_PULL_REQUEST, "POST", path, body)

    def read_url(self, reply: Any) -> str:
        """The web page, not the address in the API."""
        return text(reply["web_url"])

    def required_permission(self, purpose: RequestPurpose, *, of_job: bool) -> str:
        """https://docs.gitlab.com/user/permissions/"""
        if of_job:
            return (
                "more than a job token's permissions: put a project access token with the scope "
                "`api` into a masked GITLAB_TOKEN"
            )
        match purpose:
            case (
                RequestPurpose.GET_USER
                | RequestPurpose.GET_PULL_REQUEST
                | RequestPurpose.LIST_COMMENTS
            ):
                return "the scope `api`, and a member who may read the project"
            case RequestPurpose.WRITE_COMMENT:
                return "the scope `api` and the role Reporter"
            case RequestPurpose.SET_STATUS:
                return "the scope `api` and the role Developer (Maintainer for a protected branch)"
            case RequestPurpose.LIST_REVIEWS | RequestPurpose.GET_MEMBER:
                return "the scope `read_api`, and a member who may read the project and the group"
            case RequestPurpose.OPEN_PULL_REQUEST:
                return "the scope `api` and the role Developer"


def _project(ref: PullRequestRef) -> str:
    return f"projects/{quote(ref.project, safe='')}"


def _merge_request(ref: PullRequestRef) -> str:
    return f"{_project(ref)}/merge_requests/{ref.number}"
