"""The contract of a forge: requests, answers, and what each forge implements. Pure.

A pull request is called merge request by GitLab, and a comment is called note. `forge_access` maps
a ForgeKind to its implementation: github.py, gitlab.py, gitea.py (Forgejo as well).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec

from gitops_ds.core.values import replace

PER_PAGE: Final = 100  # the largest page of GitHub and GitLab


class ForgeKind(StrEnum):
    """The product; Forgejo has Gitea's API."""

    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"
    FORGEJO = "forgejo"


class StatusState(StrEnum):
    """The state of a commit status. Running and canceled exist on GitLab only; elsewhere both are
    sent as pending.
    """

    PENDING = "pending"
    RUNNING = "running"
    CANCELED = "canceled"
    SUCCESS = "success"
    FAILURE = "failure"
    ERROR = "error"


class RequestPurpose(StrEnum):
    """What a request does; the value completes "GitHub refused to …"."""

    GET_USER = "identify the user of the token"
    GET_PULL_REQUEST = "return the pull request"
    LIST_COMMENTS = "list the comments"
    WRITE_COMMENT = "accept the comment"
    SET_STATUS = "accept the commit status"
    OPEN_PULL_REQUEST = "open the pull request"
    LIST_REVIEWS = "list the reviews"
    GET_MEMBER = "return the member of the team"


class ForgeRequest(msgspec.Struct, frozen=True):
    """An HTTP request: the path, with its query, is relative to the API's address; the body is sent
    as JSON.
    """

    purpose: RequestPurpose
    path: str
    method: str = "GET"
    body: Mapping[str, Any] | None = None


class CommitStatus(msgspec.Struct, frozen=True):
    """A commit status: its name (GitHub's context), state, short description and link. `run` is the
    id of the CI pipeline, used by GitLab.
    """

    name: str
    state: StatusState
    description: str = ""
    url: str = ""
    run: str = ""


class NewPullRequest(msgspec.Struct, frozen=True):
    """A pull request to open: source branch, target branch, title and description."""

    source: str
    target: str
    title: str
    text: str = ""


class Comment(msgspec.Struct, frozen=True):
    """A comment on a pull request; `author` has the form that `ForgeApi.read_user` returns."""

    id: int
    author: str
    body: str


class PullRequestRef(msgspec.Struct, frozen=True):
    """A repository on a forge (OWNER/NAME, with GitLab also its number), and the number of a pull
    request (0: none).
    """

    project: str
    number: int = 0


class ReviewState(StrEnum):
    """The last verdict of a reviewer."""

    APPROVED = "approved"
    OTHER = "other"


class MergedPullRequest(msgspec.Struct, frozen=True):
    """A merged pull request: the head that was merged, its author, and the branch that it was
    merged into (`base`).
    """

    number: int
    head: str
    author: str
    base: str


class PullRequestHead(msgspec.Struct, frozen=True):
    """A head of a pull request, and its time in seconds since 1970."""

    commit: str
    since: float | None


class Review(msgspec.Struct, frozen=True):
    """A review; `state` is None for a comment only. `commit` is the reviewed head, empty if the
    forge states the time `at` instead.
    """

    user: str
    user_id: str
    state: ReviewState | None
    commit: str
    at: float | None = None

    def at_head(self, heads: Sequence[PullRequestHead]) -> Review:
        """The review with the newest head at its time; without a commit if the time or such a head
        is missing.
        """
        at = self.at
        if at is None:
            return self
        before = [(head.since, head.commit) for head in heads if head.since and head.since <= at]
        return replace(self, commit=max(before)[1]) if before else self


class ForgeApi(Protocol):
    """The API of one forge: requests, and readers of their answers. A forge is a subclass.

    A reader raises LookupError, TypeError or ValueError for an answer that is not the forge's.
    `path` is that of the API on a server, `public` the address of the public server,
    `token_variables` are the variables with a token, of which the first one set is used,
    `job_token_variables` further ones in a job with the variables of GitHub Actions, and
    `permissions` are those that a token needs, for messages. A host whose name contains the kind
    is one of a forge with a public server.
    """

    name: str
    pull_request: str = "pull request"
    path: str
    public: str = ""
    token_variables: tuple[str, ...]
    job_token_variables: tuple[str, ...] = ()
    permissions: Mapping[RequestPurpose, str]

    def headers(self, token: str, *, of_job: bool) -> Mapping[str, str]:
        """The headers of each request; `of_job`: the token is GitLab's for a CI job."""

    def get_user(self) -> ForgeRequest:
        """The request for the user of the token."""
        return ForgeRequest(RequestPurpose.GET_USER, "user")

    def read_user(self, reply: Any) -> str:
        """The user, in the form of `Comment.author`."""

    def get_pull_request(self, ref: PullRequestRef) -> ForgeRequest:
        """The request for a pull request."""

    def read_head(self, reply: Any) -> str:
        """The head commit of the pull request."""

    def list_open_pull_requests(self, ref: PullRequestRef, branch: str) -> ForgeRequest | None:
        """The request for the open pull requests from `OWNER:BRANCH`; None without such an API."""
        return None

    def list_comments(self, ref: PullRequestRef, page: int) -> ForgeRequest:
        """The request for a page of comments, from 1."""

    def read_comment(self, item: Any) -> Comment:
        """One comment of the page."""

    def create_comment(self, ref: PullRequestRef, body: str) -> ForgeRequest:
        """The request that creates a comment."""

    def update_comment(self, ref: PullRequestRef, id: int, body: str) -> ForgeRequest:
        """The request that replaces the text of a comment."""

    def set_status(self, ref: PullRequestRef, sha: str, status: CommitStatus) -> ForgeRequest:
        """The request that sets a status of a commit."""

    def open_pull_request(self, ref: PullRequestRef, new: NewPullRequest) -> ForgeRequest:
        """The request that opens a pull request."""

    def read_url(self, reply: Any) -> str:
        """The web page of the new pull request."""

    def list_merged(self, ref: PullRequestRef, commit: str) -> ForgeRequest:
        """The request for the pull requests of a commit."""

    def read_merged(self, reply: Any) -> Sequence[MergedPullRequest]:
        """The merged ones."""

    def get_merged_head(self, ref: PullRequestRef) -> ForgeRequest | None:
        """The request for the head that was merged; None if merged pull requests have it."""
        return None

    def read_merged_head(self, reply: Any, ref: PullRequestRef) -> str:
        """The head; empty if it is unknown."""
        return ""

    def list_reviews(self, ref: PullRequestRef, page: int) -> ForgeRequest | None:
        """The request for a page of reviews, from 1; None after the last one."""

    def read_reviews(self, reply: Any) -> Sequence[Review]:
        """The reviews, the oldest first."""

    def list_heads(self, ref: PullRequestRef) -> ForgeRequest | None:
        """The request for the heads with their times; None if reviews have their commit."""
        return None

    def read_heads(self, reply: Any) -> Sequence[PullRequestHead]:
        """The heads of the pull request."""
        return ()

    def find_team(self, team: str) -> ForgeRequest | None:
        """The request for the id of a team; None if its name is sufficient."""
        return None

    def read_team(self, reply: Any, team: str) -> str | None:
        """The id of the team, None without one."""
        return team

    def get_member(self, team: str, user: str, user_id: str) -> ForgeRequest:
        """The request for a member of a team, or its id."""

    def read_member(self, reply: Any, user: str) -> bool:
        """Whether it is an active member; a pending one did not accept the invitation."""
        return reply is not None and reply["state"] == "active"

    def required_permission(self, purpose: RequestPurpose, *, of_job: bool) -> str:
        """The permission that a token needs for the purpose, for messages."""
        return self.permissions[purpose]


def text(value: Any) -> str:
    """The value, a string. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def seconds(value: Any) -> float | None:
    """An ISO time in seconds since 1970, None without one. Raises ValueError, TypeError."""
    return datetime.fromisoformat(text(value)).timestamp() if value else None


def user_name(user: Any, key: str) -> str:
    """The name of a user in lower case, empty for a deleted account."""
    return text((user or {}).get(key) or "").lower()


def quoted(part: str) -> str:
    """One segment of a path."""
    return quote(part, safe="")
