"""The address of a forge and the token for it, from the environment only. Pure: the environment is
an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import msgspec

from gitops_ds import errors
from gitops_ds.forges import kinds
from gitops_ds.forges.contract import ForgeKind
from gitops_ds.forges.gitlab import OF_A_JOB

OWN_VARIABLE: Final = "GITOPS_DS_TOKEN"


@dataclass(frozen=True, slots=True)
class ForgeToken:
    """A token and its environment variable; `of_job`: GitLab's token of a CI job. Its value is
    never printed.
    """

    name: str
    value: str = field(repr=False)
    of_job: bool = False


class ForgeAccess(msgspec.Struct, frozen=True):
    """A forge's API, its token, and a repository: OWNER/NAME, with GitLab also its number."""

    kind: ForgeKind
    url: str
    token: ForgeToken
    project: str


def token(kind: ForgeKind, environ: Mapping[str, str]) -> ForgeToken:
    """The token for that forge. Raises UsageError if it is missing or malformed.

    Jobs of Gitea and Forgejo have their token in GITHUB_TOKEN; otherwise that variable is GitHub's.
    """
    names = (OWN_VARIABLE, *kinds.api(kind).token_variables)
    if kind in (ForgeKind.GITEA, ForgeKind.FORGEJO) and environ.get("GITHUB_REPOSITORY"):
        names += ("GITHUB_TOKEN",)
    for name in names:
        if value := environ.get(name, "").strip():
            if not value.isascii() or not value.isprintable() or " " in value:
                raise errors.UsageError(
                    f"{name} contains characters that are not allowed in a token"
                )
            return ForgeToken(name, value, of_job=name == OF_A_JOB)
    variables = ", ".join(name for name in names if name != OF_A_JOB)
    raise errors.UsageError(f"no token found: set one in the environment as {variables}")


def address(kind: ForgeKind, url: str, *, allow_http: bool) -> str:
    """The API's address for the given one. Raises UsageError if it is invalid, or would expose the
    token in transit.
    """
    api_url = kinds.api_address(kind, url)
    parts = urlsplit(api_url)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.username
        or parts.query
        or parts.fragment
    ):
        raise errors.UsageError(
            "--url must be the server's address, https://HOST; the token is read from the "
            "environment"
        )
    if kinds.is_insecure(api_url) and not allow_http:
        raise errors.UsageError(
            f"{api_url} is not https, so the token could be read in transit: use https, or "
            "--allow-http"
        )
    return api_url
