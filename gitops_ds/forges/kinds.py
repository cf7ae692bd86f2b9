"""The API and the address of each kind of forge. Pure."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from gitops_ds.forges.contract import ForgeApi, ForgeKind
from gitops_ds.forges.gitea import Forgejo, Gitea
from gitops_ds.forges.github import GitHub
from gitops_ds.forges.gitlab import GitLab

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


def address(api_url: str, path: str) -> str:
    """The URL of a request. GraphQL is a sibling of a server's `/api/v3`."""
    return f"{api_url.removesuffix('/v3')}/graphql" if path == "graphql" else f"{api_url}/{path}"


def is_insecure(url: str) -> bool:
    """Whether a token sent there could be read in transit."""
    parts = urlsplit(url)
    return parts.scheme != "https" and not _LOOPBACK.fullmatch(parts.hostname or "")


def is_commit_id(value: str) -> bool:
    """Whether the value is a full commit id, SHA-1 or SHA-256."""
    return _SHA.fullmatch(value) is not None
