"""The API of Gitea and Forgejo: GitHub's paths, with its own users and scopes. Pure.

The documentation is /api/swagger of a server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gitops_ds.forges.contract import (
    PER_PAGE,
    ForgeApi,
    ForgeRequest,
    MergedPullRequest,
    PullRequestRef,
    RequestPurpose,
    quoted,
    text,
)
from gitops_ds.forges.github import GitHub, merged, repository


class Gitea(GitHub):
    """A server of Gitea; there is no public one."""

    name = "Gitea"
    path = "/api/v1"
    public = ""
    token_variables: tuple[str, ...] = ("GITEA_TOKEN",)
    # Elsewhere this variable is GitHub's.
    job_token_variables = ("GITHUB_TOKEN",)
    # https://docs.gitea.com/development/oauth2-provider#scopes
    permissions: Mapping[RequestPurpose, str] = {
        RequestPurpose.GET_USER: "the scope `read:user`, to identify our own comment",
        RequestPurpose.GET_PULL_REQUEST: (
            "the scope `read:repository`, and an account that may read the repository"
        ),
        RequestPurpose.LIST_COMMENTS: "the scope `read:issue`",
        RequestPurpose.WRITE_COMMENT: (
            "the scope `write:issue`, and an account that may comment there"
        ),
        RequestPurpose.SET_STATUS: (
            "the scope `write:repository`, and an account that may write to the repository"
        ),
        RequestPurpose.LIST_REVIEWS: "the scope `read:repository`",
        RequestPurpose.GET_MEMBER: (
            "the scope `read:organization`, and an account of the organization"
        ),
        RequestPurpose.OPEN_PULL_REQUEST: (
            "the scopes `write:repository` and `write:issue`, and an account that may read the "
            "repository"
        ),
    }
    # Not those of GitHub: the API has no filter by branch.
    get_user = ForgeApi.get_user
    list_open_pull_requests = ForgeApi.list_open_pull_requests

    def headers(self, token: str, *, of_job: bool) -> Mapping[str, str]:
        """The token in the old form, which every version accepts."""
        return {"Authorization": f"token {token}", "Accept": "application/json"}

    def read_user(self, reply: Any) -> str:
        """The login."""
        return text(reply["login"]).lower()

    def list_merged(self, ref: PullRequestRef, commit: str) -> ForgeRequest:
        """The one merged pull request of a commit."""
        return ForgeRequest(RequestPurpose.LIST_REVIEWS, f"{repository(ref)}/commits/{commit}/pull")

    def read_merged(self, reply: Any) -> Sequence[MergedPullRequest]:
        """None for a commit without a pull request."""
        return [merged(reply)] if reply is not None and reply.get("merged") else []

    def get_merged_head(self, ref: PullRequestRef) -> ForgeRequest | None:
        """By the ref that only Gitea writes, until the merge. The head of a pull request in other
        answers is that of its branch, which its author moves after the merge too: ToAPIPullRequest
        of https://github.com/go-gitea/gitea/blob/main/services/convert/pull.go
        """
        path = f"{repository(ref)}/git/refs/pull/{ref.number}/head"
        return ForgeRequest(RequestPurpose.LIST_REVIEWS, path)

    def read_merged_head(self, reply: Any, ref: PullRequestRef) -> str:
        """Of all refs with this prefix."""
        name = f"refs/pull/{ref.number}/head"
        heads = (entry["object"]["sha"] for entry in reply or () if entry["ref"] == name)
        return text(next(heads, ""))

    def list_reviews(self, ref: PullRequestRef, page: int) -> ForgeRequest | None:
        """In the order of time."""
        query = f"limit={PER_PAGE}&page={page}"
        path = f"{repository(ref)}/pulls/{ref.number}/reviews?{query}"
        return ForgeRequest(RequestPurpose.LIST_REVIEWS, path)

    def find_team(self, team: str) -> ForgeRequest | None:
        """Teams have numbers."""
        organization, _, name = team.partition("/")
        path = f"orgs/{quoted(organization)}/teams/search?q={quoted(name)}"
        return ForgeRequest(RequestPurpose.GET_MEMBER, path)

    def read_team(self, reply: Any, team: str) -> str | None:
        """The search also finds parts of names."""
        name = team.partition("/")[2].lower()
        teams = (
            entry for entry in (reply or {}).get("data") or () if entry["name"].lower() == name
        )
        return next((str(int(entry["id"])) for entry in teams), None)

    def get_member(self, team: str, user: str, user_id: str) -> ForgeRequest:
        """404 for others."""
        return ForgeRequest(
            RequestPurpose.GET_MEMBER, f"teams/{quoted(team)}/members/{quoted(user)}"
        )

    def read_member(self, reply: Any, user: str) -> bool:
        """The user."""
        return reply is not None and text(reply["login"]).lower() == user


class Forgejo(Gitea):
    """A server of Forgejo, which has Gitea's API."""

    name = "Forgejo"
    token_variables = ("FORGEJO_TOKEN", "GITEA_TOKEN")
