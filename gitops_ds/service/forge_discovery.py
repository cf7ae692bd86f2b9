"""Where the forge of a repository is: what is not said follows from the repository's address."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from gitops_ds import errors
from gitops_ds.forges import access
from gitops_ds.forges.contract import ForgeKind
from gitops_ds.git.address import Address, Scheme


@dataclass(frozen=True, slots=True)
class NamedForge:
    """What is said about a forge; `kind` may be left open where the host tells it."""

    kind: ForgeKind | None = None
    url: str = ""
    project: str = ""
    allow_http: bool = False


@dataclass(frozen=True, slots=True)
class DiscoveredForge:
    """The forge's API, and the repository there."""

    kind: ForgeKind
    url: str
    project: str


def find(where: Address, named: NamedForge) -> DiscoveredForge:
    """Raises UsageError where it can't be told, or a token would be shown on the way."""
    path = urlsplit(where.url).path if "://" in where.url else where.url.partition(":")[2]
    project = named.project or (
        "" if where.scheme is Scheme.FILE else path.strip("/").removesuffix(".git")
    )
    at = urlsplit(where.origin)
    # An ssh port says nothing about where the web server is.
    server = f"https://{at.netloc if at.scheme == 'https' else at.hostname}" if at.hostname else ""
    if not project or not (named.url or server):
        raise errors.UsageError(
            f"{where.display} is local: say where its forge is, and which project it is there"
        )
    kind = named.kind or next(
        (
            kind
            for kind in (ForgeKind.GITHUB, ForgeKind.GITLAB)
            if kind.value in (at.hostname or "")
        ),
        None,
    )
    if kind is None:
        raise errors.UsageError(
            f"which forge {server or named.url} is can't be told by its name: --forge github, "
            "gitlab, gitea or forgejo"
        )
    return DiscoveredForge(
        kind, access.address(kind, named.url or server, allow_http=named.allow_http), project
    )
