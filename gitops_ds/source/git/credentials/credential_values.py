"""Credentials for a Git server, as frozen values; `credential_files` passes them to git, and they
are never printed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec


@dataclass(frozen=True, slots=True)
class Password:
    """A user and a password for https. An access token is sent as the password (with any user
    name).
    """

    password: str = field(repr=False)
    user: str = "git"


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token sent as `Authorization: Bearer`: for Azure DevOps and Bitbucket Data Center."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SshKey:
    """A private key without passphrase, and the known_hosts lines that verify the server's key."""

    private_key: bytes = field(repr=False)
    known_hosts: bytes = field(repr=False)


class OwnSsh(msgspec.Struct, frozen=True):
    """The user's own ssh: configuration, agent and known_hosts. For commands, never for the
    service.
    """


Login = Password | Bearer | SshKey | OwnSsh


@dataclass(frozen=True, slots=True)
class Credentials:
    """The login (None: anonymous), the trusted authorities (PEM; empty: the system's), and the
    proxy for https.

    Without `proxy` the environment variables apply.
    """

    login: Login | None = None
    authorities: bytes = field(default=b"", repr=False)
    proxy: str = ""


ANONYMOUS = Credentials()

# Returns the current credentials. True: the server refused the last ones, so cached ones may be
# stale.
CredentialSource = Callable[[bool], Awaitable[Credentials]]
