"""Who we are for a Git server, as frozen values; `access` hands them to git, and nothing ever prints them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Password:
    """A user and a password for https. An access token goes in as the password (hosts take any user name with it)."""

    password: str = field(repr=False)
    user: str = "git"


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token sent as `Authorization: Bearer`: Azure DevOps and Bitbucket Data Center want it so."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SshKey:
    """A private key without passphrase, and the lines of known_hosts that the server's key is checked against."""

    private_key: bytes = field(repr=False)
    known_hosts: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class OwnSsh:
    """The person's own ssh: its configuration, agent and known_hosts. For a command at a desk, never for the service."""


Login = Password | Bearer | SshKey | OwnSsh


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to log in (None: as nobody), and the PEM certificates of the only authorities to trust (empty: the system's)."""

    login: Login | None = None
    authorities: bytes = field(default=b"", repr=False)


NOBODY = Credentials()
