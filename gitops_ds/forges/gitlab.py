"""The API of GitLab: https://docs.gitlab.com/api/rest/. A project is a number or a path. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gitops_ds.core.plain_text import shortened
from gitops_ds.forges.contract import (
    PER_PAGE,
    Comment,
    CommitStatus,
    ForgeApi,
    ForgeRequest,
    MergedPullRequest,
    NewPullRequest,
    PullRequestHead,
    PullRequestRef,
    RequestPurpose,
    Review,
    ReviewState,
    StatusState,
    quoted,
    seconds,
    text,
    user_name,
)

OF_A_JOB: Final = "CI_JOB_TOKEN"  # one per job, with few permissions
_LONGEST_DESCRIPTION: Final = 255
_READ: Final = "the scope `api`, and a member who may read the project"
_READ_GROUP: Final = "the scope `read_api`, and a member who may read the project and the group"
_STATES: Final[Mapping[StatusState, str]] = {
    StatusState.PENDING: "pending",
    StatusState.RUNNING: "running",
    StatusState.CANCELED: "canceled",
    StatusState.SUCCESS: "success",
    StatusState.FAILURE: "failed",
    StatusState.ERROR: "failed",
}


class GitLab(ForgeApi):
    """gitlab.com and servers of GitLab."""

    name = "GitLab"
    pull_request = "merge request"
    path = "/api/v4"
    public = "https://gitlab.com"
    token_variables = ("GITLAB_TOKEN", OF_A_JOB)
    # https://docs.gitlab.com/user/permissions/
    permissions: Mapping[RequestPurpose, str] = {
        RequestPurpose.GET_USER: _READ,
        RequestPurpose.GET_PULL_REQUEST: _READ,
        RequestPurpose.LIST_COMMENTS: _READ,
        RequestPurpose.WRITE_COMMENT: "the scope `api` and the role Reporter",
        RequestPurpose.SET_STATUS: (
            "the scope `api` and the role Developer (Maintainer for a protected branch)"
        ),
        RequestPurpose.LIST_REVIEWS: _READ_GROUP,
        RequestPurpose.GET_MEMBER: _READ_GROUP,
        RequestPurpose.OPEN_PULL_REQUEST: "the scope `api` and the role Developer",
    }

    def headers(self, token: str, *, of_job: bool) -> Mapping[str, str]:
        """https://docs.gitlab.com/api/rest/authentication/"""
        return {"JOB-TOKEN" if of_job else "PRIVATE-TOKEN": token, "Accept": "application/json"}

    def read_user(self, reply: Any) -> str:
        """The user's number: names can be changed. A project's token has its own user."""
        return str(int(reply["id"]))

    def get_pull_request(self, ref: PullRequestRef) -> ForgeRequest:
        """https://docs.gitlab.com/api/merge_requests/#get-single-mr"""
        return ForgeRequest(RequestPurpose.GET_PULL_REQUEST, _merge_request(ref))

    def read_head(self, reply: Any) -> str:
        """The tip of the source branch."""
        return text(reply["sha"])

    def list_comments(self, ref: PullRequestRef, page: int) -> ForgeRequest:
        """https://docs.gitlab.com/api/notes/, the oldest first"""
        query = f"per_page={PER_PAGE}&page={page}&sort=asc&order_by=created_at"
        path = f"{_merge_request(ref)}/notes?{query}"
        return ForgeRequest(RequestPurpose.LIST_COMMENTS, path)

    def read_comment(self, item: Any) -> Comment:
        """A note."""
        author = str((item.get("author") or {}).get("id") or "")
        return Comment(int(item["id"]), author, text(item["body"] or ""))

    def create_comment(self, ref: PullRequestRef, body: str) -> ForgeRequest:
        """https://docs.gitlab.com/api/notes/#create-new-merge-request-note"""
        path = f"{_merge_request(ref)}/notes"
        return ForgeRequest(RequestPurpose.WRITE_COMMENT, path, "POST", {"body": body})

    def update_comment(self, ref: PullRequestRef, id: int, body: str) -> ForgeRequest:
        """https://docs.gitlab.com/api/notes/#modify-existing-merge-request-note"""
        path = f"{_merge_request(ref)}/notes/{id}"
        return ForgeRequest(RequestPurpose.WRITE_COMMENT, path, "PUT", {"body": body})

    def set_status(self, ref: PullRequestRef, sha: str, status: CommitStatus) -> ForgeRequest:
        """https://docs.gitlab.com/api/commits/#set-commit-pipeline-status

        The request names the pipeline: a commit may have several, and GitLab's default is the
        newest.
        """
        body: dict[str, Any] = {"state": _STATES[status.state], "name": status.name}
        body |= {"description": shortened(status.description, _LONGEST_DESCRIPTION)}
        body |= {"target_url": status.url} if status.url else {}
        body |= {"pipeline_id": int(status.run)} if status.run.isdigit() else {}
        path = f"{_project(ref)}/statuses/{sha}"
        return ForgeRequest(RequestPurpose.SET_STATUS, path, "POST", body)

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
        return ForgeRequest(RequestPurpose.OPEN_PULL_REQUEST, path, "POST", body)

    def read_url(self, reply: Any) -> str:
        """The web page, not the address in the API."""
        return text(reply["web_url"])

    def list_merged(self, ref: PullRequestRef, commit: str) -> ForgeRequest:
        """https://docs.gitlab.com/api/commits/#list-merge-requests-associated-with-a-commit"""
        path = f"{_project(ref)}/repository/commits/{commit}/merge_requests"
        return ForgeRequest(RequestPurpose.LIST_REVIEWS, path)

    def read_merged(self, reply: Any) -> Sequence[MergedPullRequest]:
        """The number of the merge request within the project."""
        return [
            MergedPullRequest(
                int(entry["iid"]),
                text(entry["sha"]),
                user_name(entry["author"], "username"),
                text(entry["target_branch"]),
            )
            for entry in reply or ()
            if entry["state"] == "merged"
        ]

    def list_reviews(self, ref: PullRequestRef, page: int) -> ForgeRequest | None:
        """Approvals that are not withdrawn, on one page:
        https://docs.gitlab.com/api/merge_request_approvals/
        """
        if page > 1:
            return None
        return ForgeRequest(RequestPurpose.LIST_REVIEWS, f"{_merge_request(ref)}/approvals")

    def read_reviews(self, reply: Any) -> Sequence[Review]:
        """Approvals only. One has its time but no commit, so it counts for the head at that time;
        without a time it does not count.
        """
        return [
            Review(
                user_name(approval["user"], "username"),
                str(int(approval["user"]["id"])),
                ReviewState.APPROVED,
                "",
                seconds(approval.get("approved_at")),
            )
            for approval in (reply or {}).get("approved_by") or ()
        ]

    def list_heads(self, ref: PullRequestRef) -> ForgeRequest | None:
        """https://docs.gitlab.com/api/merge_requests/#list-all-merge-request-diff-versions"""
        path = f"{_merge_request(ref)}/versions?per_page={PER_PAGE}"
        return ForgeRequest(RequestPurpose.LIST_REVIEWS, path)

    def read_heads(self, reply: Any) -> Sequence[PullRequestHead]:
        """Each push is a version."""
        return [
            PullRequestHead(text(entry["head_commit_sha"]), seconds(entry["created_at"]))
            for entry in reply or ()
        ]

    def get_member(self, team: str, user: str, user_id: str) -> ForgeRequest:
        """https://docs.gitlab.com/api/group_members/, with inherited members."""
        path = f"groups/{quoted(team)}/members/all/{quoted(user_id)}"
        return ForgeRequest(RequestPurpose.GET_MEMBER, path)

    def required_permission(self, purpose: RequestPurpose, *, of_job: bool) -> str:
        """A job token has too few."""
        if of_job:
            return (
                "more than a job token's permissions: put a project access token with the scope "
                "`api` into a masked GITLAB_TOKEN"
            )
        return self.permissions[purpose]


def _project(ref: PullRequestRef) -> str:
    return f"projects/{quoted(ref.project)}"


def _merge_request(ref: PullRequestRef) -> str:
    return f"{_project(ref)}/merge_requests/{ref.number}"
