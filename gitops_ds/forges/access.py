"""Where a forge is and as whom we come: tokens are taken from the environment only. Pure: the
environment is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from gitops_ds import errors
from gitops_ds.forges import requests
from gitops_ds.forges.requests import ForgeKind

OWN: Final = "GITOPS_DS_TOKEN"
_OF_A_JOB: Final = "CI_JOB_TOKEN"  # GitLab's own for each job, with few rights
# The variables of each forge, the first that is set counts.
_NAMES: Final[Mapping[ForgeKind, tuple[str, ...]]] = {
    ForgeKind.GITHUB: (OWN, "GITHUB_TOKEN", "GH_TOKEN"),
    ForgeKind.GITLAB: (OWN, "GITLAB_TOKEN", _OF_A_JOB),
    ForgeKind.GITEA: (OWN, "GITEA_TOKEN"),
    ForgeKind.FORGEJO: (OWN, "FORGEJO_TOKEN", "GITEA_TOKEN"),
}


@dataclass(frozen=True, slots=True)
class ForgeToken:
    """A token and the variable that it comes from; `of_job`: the one that GitLab makes for a job.
    Its text is never shown.
    """

    name: str
    value: str = field(repr=False)
    of_job: bool = False


@dataclass(frozen=True, slots=True)
class ForgeAccess:
    """A forge's API, the token for it, and a repository there: OWNER/NAME, with GitLab also its
    number.
    """

    kind: ForgeKind
    url: str
    token: ForgeToken
    project: str


def token(kind: ForgeKind, environ: Mapping[str, str]) -> ForgeToken:
    """The token for that forge. Raises UsageError where there is none, or it can't be one.

    Gitea and Forgejo call the token of their jobs GITHUB_TOKEN, as everything else; elsewhere one
    of that name is GitHub's.
    """
    names = _NAMES[kind]
    if kind in (ForgeKind.GITEA, ForgeKind.FORGEJO) and environ.get("GITHUB_REPOSITORY"):
        names += ("GITHUB_TOKEN",)
    for name in names:
        if value := environ.get(name, "").strip():
            if not value.isascii() or not value.isprintable() or " " in value:
                raise errors.UsageError(f"{name} holds characters that no token has")
            return ForgeToken(name, value, of_job=name == _OF_A_JOB)
    told = ", ".join(name for name in names if name != _OF_A_JOB)
    raise errors.UsageError(f"there is no token: put one into the environment as {told}")


def address(kind: ForgeKind, url: str, *, allow_http: bool) -> str:
    """The API's address for what was named. Raises UsageError for one that is none, or that would
    show the token on the way.
    """
    found = requests.api_address(kind, url)
    parts = urlsplit(found)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.username
        or parts.query
        or parts.fragment
    ):
        raise errors.UsageError(
            "--url: name the server's address, https://HOST; a token is taken from the environment"
        )
    if requests.exposed(found) and not allow_http:
        raise errors.UsageError(
            f"{found} is not https, and the token could be read on the way: use https, or "
            "--allow-http"
        )
    return found
