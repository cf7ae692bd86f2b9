"""The forge of a repository, and the token for it: settings that are missing follow from the
repository's address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from gitops_ds.core import errors
from gitops_ds.forges import forge_access
from gitops_ds.forges.contract import ForgeKind
from gitops_ds.forges.forge_access import ForgeAccess, ForgeToken
from gitops_ds.service.settings import base
from gitops_ds.source.git.address import Address, Scheme

if TYPE_CHECKING:  # commands import this module without the settings of the service
    from gitops_ds.service.settings.repository import ForgeSettings

_TOKEN = "repository.forge.tokenFile"  # noqa: S105  the name of a setting


class NamedForge(msgspec.Struct, frozen=True):
    """The options of a forge; `kind` may be unset if the host's name implies it."""

    kind: ForgeKind | None = None
    url: str = ""
    project: str = ""
    allow_http: bool = False


class DiscoveredForge(msgspec.Struct, frozen=True):
    """The forge's API, and the repository there."""

    kind: ForgeKind
    url: str
    project: str


def find(where: Address, named: NamedForge) -> DiscoveredForge:
    """The forge. Raises UsageError if it does not follow from the address, or if the token would
    be sent without encryption.
    """
    path = urlsplit(where.url).path if "://" in where.url else where.url.partition(":")[2]
    project = named.project or (
        "" if where.scheme is Scheme.FILE else path.strip("/").removesuffix(".git")
    )
    at = urlsplit(where.origin)
    # The port of ssh is not that of the web server.
    server = f"https://{at.netloc if at.scheme == 'https' else at.hostname}" if at.hostname else ""
    if not project or not (named.url or server):
        raise errors.UsageError(f"{where.display} is local: set the forge's URL and the project")
    kind = named.kind or next(
        (
            kind
            for kind in ForgeKind
            if forge_access.api(kind).public and kind.value in (at.hostname or "")
        ),
        None,
    )
    if kind is None:
        raise errors.UsageError(
            f"the kind of the forge {server or named.url} does not follow from its name: "
            f"set --forge to one of {', '.join(ForgeKind)}"
        )
    return DiscoveredForge(
        kind, forge_access.address(kind, named.url or server, allow_http=named.allow_http), project
    )


def of_settings(where: Address, forge: ForgeSettings) -> DiscoveredForge:
    """The forge. Raises SettingsError if it does not follow from the repository's address."""
    try:
        return find(where, NamedForge(forge.kind, forge.url, forge.project, forge.allow_http))
    except errors.UsageError as error:
        message = str(error).replace("--url", "url").replace("--allow-http", "allowHttp")
        raise errors.SettingsError(f"repository.forge: {message}") from None


def access_of(where: Address, forge: ForgeSettings) -> ForgeAccess:
    """The forge, and the token in its file. Raises SettingsError."""
    found = of_settings(where, forge)
    try:
        token = base.read_file(_TOKEN, forge.token_file).decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isprintable() or " " in token:
        raise errors.SettingsError(f"{_TOKEN}: {forge.token_file} contains no token")
    return ForgeAccess(found.kind, found.url, ForgeToken(_TOKEN, token), found.project)
