"""The API of Gitea and Forgejo: GitHub's paths, with its own users and scopes. Pure.

The documentation is /api/swagger of a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops_ds.forges.contract import ForgeRequest, PullRequestRef, RequestPurpose, text
from gitops_ds.forges.github import GitHub


class Gitea(GitHub, frozen=True):
    """Implements ForgeApi."""

    name: str = "Gitea"

    def headers(self, token: str, *, of_job: bool) -> Mapping[str, str]:
        """The token in the old form, which every version accepts."""
        return {"Authorization": f"token {token}", "Accept": "application/json"}

    def get_user(self) -> ForgeRequest:
        """The user of the token."""
        return ForgeRequest(RequestPurpose.GET_USER, "GET", "user")

    def read_user(self, reply: Any) -> str:
        """The login."""
        return text(reply["login"]).lower()

    def list_open_pull_requests(self, ref: PullRequestRef, branch: str) -> ForgeRequest | None:
        """None: the API has no filter by branch."""
        return None

    def required_permission(self, purpose: RequestPurpose, *, of_job: bool) -> str:
        """https://docs.gitea.com/development/oauth2-provider#scopes"""
        match purpose:
            case RequestPurpose.GET_USER:
                return "the scope `read:user`, to identify our own comment"
            case RequestPurpose.GET_PULL_REQUEST:
                return "the scope `read:repository`, and an account that may read the repository"
            case RequestPurpose.LIST_COMMENTS:
                return "the scope `read:issue`"
            case RequestPurpose.WRITE_COMMENT:
                return "the scope `write:issue`, and an account that may comment there"
            case RequestPurpose.SET_STATUS:
                return (
                    "the scope `write:repository`, and an account that may write to the repository"
                )
            case RequestPurpose.LIST_REVIEWS:
                return "the scope `read:repository`"
            case RequestPurpose.GET_MEMBER:
                return "the scope `read:organization`, and an account of the organization"
            case RequestPurpose.OPEN_PULL_REQUEST:
                return (
                    "the scopes `write:repository` and `write:issue`, and an account that may "
                    "read the repository"
                )
