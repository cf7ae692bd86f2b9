"""How each forge is asked, and how its answers are read. Pure.

GitHub: https://docs.github.com/rest; GitLab: https://docs.gitlab.com/api/rest/; Gitea and Forgejo:
/api/swagger of a server. A pull request is what GitLab calls a merge request, a comment what it
calls a note.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode, urlsplit

PER_PAGE: Final = 100  # the most that GitHub and GitLab give


class ForgeKind(StrEnum):
    """Which forge; Forgejo speaks as Gitea does."""

    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"
    FORGEJO = "forgejo"


class StatusState(StrEnum):
    """What a commit's status says. Only GitLab knows running and canceled; elsewhere both are
    pending.
    """

    PENDING = "pending"
    RUNNING = "running"
    CANCELED = "canceled"
    SUCCESS = "success"
    FAILURE = "failure"
    ERROR = "error"


class Doing(StrEnum):
    """What a request is for, in the words of a refusal."""

    KNOW = "say whose token it is"
    LOOK = "show the pull request"
    FIND = "show its comments"
    WRITE = "take the comment"
    MARK = "take the commit status"
    OPEN = "open the pull request"


@dataclass(frozen=True, slots=True)
class ForgeRequest:
    """One request: the path is below the API's address, its query included; a body is sent as JSON."""

    doing: Doing
    method: str
    path: str
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CommitStatus:
    """What is said of a commit: under which name, in a few words, and where to read more. `run` is
    the CI's own run, for GitLab.
    """

    name: str
    state: StatusState
    description: str = ""
    url: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True)
class Opening:
    """A pull request to be opened: from which branch into which, and what it says."""

    source: str
    target: str
    title: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment as it stands there; `author` is in the form in which `Dialect.me` tells us who we
    are.
    """

    id: int
    author: str
    body: str


@dataclass(frozen=True, slots=True)
class PullRequestRef:
    """A repository on a forge (GitLab takes its number as well), and one of its pull requests (0:
    none).
    """

    project: str
    number: int = 0


class Dialect(Protocol):
    """One forge's way. What reads an answer raises LookupError, TypeError or ValueError for one
    that is none of the forge's.
    """

    @property
    def name(self) -> str:
        """What people call the forge."""

    @property
    def pull_request(self) -> str:
        """What it calls a pull request."""

    def headers(self, token: str, *, of_job: bool) -> Mapping[str, str]:
        """What each request carries."""

    def whoami(self) -> ForgeRequest:
        """Asks whose token it is."""

    def me(self, reply: Any) -> str:
        """Who we are, as the author of a comment is called."""

    def pull(self, place: PullRequestRef) -> ForgeRequest:
        """Asks for a pull request."""

    def head(self, reply: Any) -> str:
        """The commit that the pull request is at."""

    def open_from(self, place: PullRequestRef, branch: str) -> ForgeRequest | None:
        """Asks for the open pull requests from `OWNER:BRANCH`, where the forge can tell."""

    def comments(self, place: PullRequestRef, page: int) -> ForgeRequest:
        """Asks for a page of comments, from 1."""

    def comment(self, item: Any) -> Comment:
        """One comment of the page."""

    def create(self, place: PullRequestRef, body: str) -> ForgeRequest:
        """Writes a comment."""

    def update(self, place: PullRequestRef, id: int, body: str) -> ForgeRequest:
        """Writes a comment anew."""

    def status(self, place: PullRequestRef, sha: str, status: CommitStatus) -> ForgeRequest:
        """Sets the status of a commit."""

    def open(self, place: PullRequestRef, opening: Opening) -> ForgeRequest:
        """Opens a pull request."""

    def opened(self, reply: Any) -> str:
        """Where the new pull request is shown."""

    def needed(self, doing: Doing, *, of_job: bool) -> str:
        """What a token needs for that, in words."""


@dataclass(frozen=True, slots=True)
class GitHub:
    """GitHub, also on a server of one's own."""

    name: str = "GitHub"
    pull_request: str = "pull request"

    def headers(self, token: str, *, of_job: bool) -> Mapping[str, str]:
        """A bearer token, and the version of the API that this is written for."""
        return {
            "Authorization": f"Bearer {token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }

    def whoami(self) -> ForgeRequest:
        """By GraphQL: the REST API does not tell the token of a workflow or an app who it is."""
        return ForgeRequest(Doing.KNOW, "POST", "graphql", {"query": "{viewer{login}}"})

    def me(self, reply: Any) -> str:
        """The login; of a workflow `github-actions[bot]`."""
        return _text(reply["data"]["viewer"]["login"]).lower()

    def pull(self, place: PullRequestRef) -> ForgeRequest:
        """https://docs.github.com/rest/pulls/pulls#get-a-pull-request"""
        return ForgeRequest(Doing.LOOK, "GET", f"repos/{_project(place)}/pulls/{place.number}")

    def head(self, reply: Any) -> str:
        """Not the merge commit, which is what a workflow checks out."""
        return _text(reply["head"]["sha"])

    def open_from(self, place: PullRequestRef, branch: str) -> ForgeRequest | None:
        """Of a fork the event of a `workflow_run` names no pull request, but its branch."""
        query = urlencode({"state": "open", "head": branch, "per_page": PER_PAGE})
        return ForgeRequest(Doing.LOOK, "GET", f"repos/{_project(place)}/pulls?{query}")

    def comments(self, place: PullRequestRef, page: int) -> ForgeRequest:
        """https://docs.github.com/rest/issues/comments"""
        path = f"repos/{_project(place)}/issues/{place.number}/comments?per_page={PER_PAGE}&page={page}"
        return ForgeRequest(Doing.FIND, "GET", path)

    def comment(self, item: Any) -> Comment:
        """The user is null where the account is gone."""
        return Comment(
            int(item["id"]),
            _text((item.get("user") or {}).get("login") or "").lower(),
            _text(item["body"] or ""),
        )

    def create(self, place: PullRequestRef, body: str) -> ForgeRequest:
        """A pull request is an issue here."""
        return ForgeRequest(
            Doing.WRITE,
            "POST",
            f"repos/{_project(place)}/issues/{place.number}/comments",
            {"body": body},
        )

    def update(self, place: PullRequestRef, id: int, body: str) -> ForgeRequest:
        """https://docs.github.com/rest/issues/comments#update-an-issue-comment"""
        return ForgeRequest(
            Doing.WRITE, "PATCH", f"repos/{_project(place)}/issues/comments/{id}", {"body": body}
        )

    def status(self, place: PullRequestRef, sha: str, status: CommitStatus) -> ForgeRequest:
        """https://docs.github.com/rest/commits/statuses; the description has at most 140
        characters.
        """
        state = (
            StatusState.PENDING
            if status.state in (StatusState.RUNNING, StatusState.CANCELED)
            else status.state
        )
        body = {
            "state": state.value,
            "context": status.name,
            "description": _cut(status.description, 140),
        }
        body |= {"target_url": status.url} if status.url else {}
        return ForgeRequest(Doing.MARK, "POST", f"repos/{_project(place)}/statuses/{sha}", body)

    def open(self, place: PullRequestRef, opening: Opening) -> ForgeRequest:
        """https://docs.github.com/rest/pulls/pulls#create-a-pull-request"""
        body = {
            "head": opening.source,
            "base": opening.target,
            "title": opening.title,
            "body": opening.text,
        }
        return ForgeRequest(Doing.OPEN, "POST", f"repos/{_project(place)}/pulls", body)

    def opened(self, reply: Any) -> str:
        """The page for people."""
        return _text(reply["html_url"])

    def needed(self, doing: Doing, *, of_job: bool) -> str:
        """https://docs.github.com/actions/reference/workflow-syntax-for-github-actions#permissions"""
        match doing:
            case Doing.KNOW | Doing.LOOK | Doing.FIND:
                return "`pull-requests: read`"
            case Doing.WRITE:
                return (
                    "`pull-requests: write` (in a workflow under `permissions:`; a pull request "
                    "from a fork never has it)"
                )
            case Doing.MARK:
                return (
                    "`statuses: write` (in a workflow under `permissions:`; a pull request from a "
                    "fork never has it)"
                )
            case Doing.OPEN:
                return "`pull-requests: write`"


@dataclass(frozen=True, slots=True)
class Gitea(GitHub):
    """Gitea and Forgejo: GitHub's paths, with users of their own and scopes."""

    name: str = "Gitea"

    def headers(self, token: str, *, of_job: bool) -> Mapping[str, str]:
        """The token in the old form, which every version takes."""
        return {"Authorization": f"token {token}", "Accept": "application/json"}

    def whoami(self) -> ForgeRequest:
        """The user of the token."""
        return ForgeRequest(Doing.KNOW, "GET", "user")

    def me(self, reply: Any) -> str:
        """The login."""
        return _text(reply["login"]).lower()

    def open_from(self, place: PullRequestRef, branch: str) -> ForgeRequest | None:
        """There is no way to ask."""
        return None

    def needed(self, doing: Doing, *, of_job: bool) -> str:
        """https://docs.gitea.com/development/oauth2-provider#scopes"""
        match doing:
            case Doing.KNOW:
                return "the scope `read:user`, to tell our own comment from others'"
            case Doing.LOOK:
                return "the scope `read:repository`, and an account that may see the repository"
            case Doing.FIND:
                return "the scope `read:issue`"
            case Doing.WRITE:
                return "the scope `write:issue`, and an account that may comment there"
            case Doing.MARK:
                return (
                    "the scope `write:repository`, and an account that may write to the repository"
                )
            case Doing.OPEN:
                return (
                    "the scopes `write:repository` and `write:issue`, and an account that may see "
                    "the repository"
                )


_GITLAB_STATES: Final[Mapping[StatusState, str]] = {
    StatusState.PENDING: "pending",
    StatusState.RUNNING: "running",
    StatusState.CANCELED: "canceled",
    StatusState.SUCCESS: "success",
    StatusState.FAILURE: "failed",
    StatusState.ERROR: "failed",
}


@dataclass(frozen=True, slots=True)
class GitLab:
    """GitLab; the project is its number or its path."""

    name: str = "GitLab"
    pull_request: str = "merge request"

    def headers(self, token: str, *, of_job: bool) -> Mapping[str, str]:
        """https://docs.gitlab.com/api/rest/authentication/"""
        return {"JOB-TOKEN" if of_job else "PRIVATE-TOKEN": token, "Accept": "application/json"}

    def whoami(self) -> ForgeRequest:
        """The user of the token; a project's token has one of its own."""
        return ForgeRequest(Doing.KNOW, "GET", "user")

    def me(self, reply: Any) -> str:
        """The user's number: names can be changed."""
        return str(int(reply["id"]))

    def pull(self, place: PullRequestRef) -> ForgeRequest:
        """https://docs.gitlab.com/api/merge_requests/#get-single-mr"""
        return ForgeRequest(
            Doing.LOOK, "GET", f"projects/{_encoded(place)}/merge_requests/{place.number}"
        )

    def head(self, reply: Any) -> str:
        """The tip of the source branch."""
        return _text(reply["sha"])

    def open_from(self, place: PullRequestRef, branch: str) -> ForgeRequest | None:
        """Never asked: the job's variables name the merge request."""
        return None

    def comments(self, place: PullRequestRef, page: int) -> ForgeRequest:
        """https://docs.gitlab.com/api/notes/, the oldest first"""
        query = f"per_page={PER_PAGE}&page={page}&sort=asc&order_by=created_at"
        return ForgeRequest(
            Doing.FIND,
            "GET",
            f"projects/{_encoded(place)}/merge_requests/{place.number}/notes?{query}",
        )

    def comment(self, item: Any) -> Comment:
        """A note."""
        return Comment(
            int(item["id"]),
            str((item.get("author") or {}).get("id") or ""),
            _text(item["body"] or ""),
        )

    def create(self, place: PullRequestRef, body: str) -> ForgeRequest:
        """https://docs.gitlab.com/api/notes/#create-new-merge-request-note"""
        return ForgeRequest(
            Doing.WRITE,
            "POST",
            f"projects/{_encoded(place)}/merge_requests/{place.number}/notes",
            {"body": body},
        )

    def update(self, place: PullRequestRef, id: int, body: str) -> ForgeRequest:
        """https://docs.gitlab.com/api/notes/#modify-existing-merge-request-note"""
        path = f"projects/{_encoded(place)}/merge_requests/{place.number}/notes/{id}"
        return ForgeRequest(Doing.WRITE, "PUT", path, {"body": body})

    def status(self, place: PullRequestRef, sha: str, status: CommitStatus) -> ForgeRequest:
        """https://docs.gitlab.com/api/commits/#set-commit-pipeline-status

        The pipeline is named, because several may run for a commit, and GitLab would take the
        newest.
        """
        body: dict[str, Any] = {"state": _GITLAB_STATES[status.state], "name": status.name}
        body |= {"description": _cut(status.description, 255)}
        body |= {"target_url": status.url} if status.url else {}
        body |= {"pipeline_id": int(status.run)} if status.run.isdigit() else {}
        return ForgeRequest(Doing.MARK, "POST", f"projects/{_encoded(place)}/statuses/{sha}", body)

    def open(self, place: PullRequestRef, opening: Opening) -> ForgeRequest:
        """https://docs.gitlab.com/api/merge_requests/#create-mr"""
        branches = {
            "source_branch": opening.source,
            "target_branch": opening.target,
            "remove_source_branch": True,
        }
        body = {**branches, "title": opening.title, "description": opening.text}
        return ForgeRequest(Doing.OPEN, "POST", f"projects/{_encoded(place)}/merge_requests", body)

    def opened(self, reply: Any) -> str:
        """The page for people."""
        return _text(reply["web_url"])

    def needed(self, doing: Doing, *, of_job: bool) -> str:
        """https://docs.gitlab.com/user/permissions/"""
        if of_job:
            return (
                "more than a job's own may do: put a project access token with the scope `api` "
                "into a masked GITLAB_TOKEN"
            )
        match doing:
            case Doing.KNOW | Doing.LOOK | Doing.FIND:
                return "the scope `api`, and a member who may see the project"
            case Doing.WRITE:
                return "the scope `api` and the role Reporter"
            case Doing.MARK:
                return "the scope `api` and the role Developer (Maintainer for a protected branch)"
            case Doing.OPEN:
                return "the scope `api` and the role Developer"


def dialect(kind: ForgeKind) -> Dialect:
    """How that forge is spoken to."""
    match kind:
        case ForgeKind.GITHUB:
            return GitHub()
        case ForgeKind.GITLAB:
            return GitLab()
        case ForgeKind.GITEA:
            return Gitea()
        case ForgeKind.FORGEJO:
            return Gitea("Forgejo")


_API: Final[Mapping[ForgeKind, str]] = {
    ForgeKind.GITHUB: "/api/v3",
    ForgeKind.GITLAB: "/api/v4",
    ForgeKind.GITEA: "/api/v1",
    ForgeKind.FORGEJO: "/api/v1",
}
_PUBLIC: Final[Mapping[ForgeKind, str]] = {
    ForgeKind.GITHUB: "https://github.com",
    ForgeKind.GITLAB: "https://gitlab.com",
}


def api_address(kind: ForgeKind, url: str = "") -> str:
    """The address of the API for that of a server, or of the API itself; without any the public
    one. Empty where there is none.
    """
    url = (url or _PUBLIC.get(kind, "")).rstrip("/")
    if not url or url == "https://api.github.com" or url.endswith(_API[kind]):
        return url
    return "https://api.github.com" if url == "https://github.com" else url + _API[kind]


def address(api: str, path: str) -> str:
    """The whole URL of a request. GraphQL lies beside a server's `/api/v3`."""
    return f"{api.removesuffix('/v3')}/graphql" if path == "graphql" else f"{api}/{path}"


_LOOPBACK: Final = re.compile(r"localhost|127(\.\d{1,3}){3}|::1")


def exposed(url: str) -> bool:
    """Whether a token sent there could be read on the way."""
    parts = urlsplit(url)
    return parts.scheme != "https" and not _LOOPBACK.fullmatch(parts.hostname or "")


_SHA: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def is_commit(text: str) -> bool:
    """Whether it is the whole id of a commit."""
    return _SHA.fullmatch(text) is not None


def _project(place: PullRequestRef) -> str:
    return quote(place.project, safe="/")


def _encoded(place: PullRequestRef) -> str:
    return quote(place.project, safe="")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
