"""The API of each kind of forge, its address, and the token for it, from the environment only.
Pure: the environment is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import msgspec

from gitops_ds.core import errors
from gitops_ds.forges.contract import ForgeApi, ForgeKind
from gitops_ds.forges.gitea import Forgejo, Gitea
from gitops_ds.forges.github import GitHub
from gitops_ds.forges.gitlab import OF_A_JOB, GitLab

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
    """The token for that forge. Raises UsageError if it is missing or malformed."""
    forge = api(kind)
    names = (OWN_VARIABLE, *forge.token_variables)
    if environ.get("GITHUB_REPOSITORY"):
        names += forge.job_token_variables
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
    api_url = api_address(kind, url)
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
    if is_insecure(api_url) and not allow_http:
        raise errors.UsageError(
            f"{api_url} is not https, so the token could be read in transit: use https, or "
            "--allow-http"
        )
    return api_url


_LOOPBACK: Final = re.compile(r"localhost|127(\.\d{1,3}){3}|::1")
_SHA: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def api(kind: ForgeKind) -> ForgeApi:
    """The API of a forge of that kind."""
    match kind:
        case ForgeKind.GITHUB:
            return GitHub()
        case ForgeKind.GITLAB:
            return GitLab()
        case ForgeKind.GITEA:
            return Gitea()
        case ForgeKind.FORGEJO:
            return Forgejo()


def api_address(kind: ForgeKind, url: str = "") -> str:
    """The address of the API, from that of a server or of its API; by default that of the public
    server. Empty if there is no public one.
    """
    forge = api(kind)
    url = (url or forge.public).rstrip("/")
    if not url or url == "https://api.github.com" or url.endswith(forge.path):
        return url
    return "https://api.github.com" if url == GitHub.public else url + forge.path


def request_url(api_url: str, path: str) -> str:
    """The URL of a request. GraphQL is a sibling of a server's `/api/v3`."""
    return f"{api_url.removesuffix('/v3')}/graphql" if path == "graphql" else f"{api_url}/{path}"


def is_insecure(url: str) -> bool:
    """Whether a token sent there could be read in transit."""
    parts = urlsplit(url)
    return parts.scheme != "https" and not _LOOPBACK.fullmatch(parts.hostname or "")


def is_commit_id(value: str) -> bool:
    """Whether the value is a full commit id, SHA-1 or SHA-256."""
    return _SHA.fullmatch(value) is not None
