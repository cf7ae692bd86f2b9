"""Who we are for a Git server, as frozen values; `access` hands them to git, and nothing ever
prints them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Password:
    """A user and a password for https. An access token goes in as the password (hosts take any user
    name with it).
    """

    password: str = field(repr=False)
    user: str = "git"


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token sent as `Authorization: Bearer`: Azure DevOps and Bitbucket Data Center want it so."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SshKey:
    """A private key without passphrase, and the lines of known_hosts that the server's key is
    checked against.
    """

    private_key: bytes = field(repr=False)
    known_hosts: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class OwnSsh:
    """The person's own ssh: its configuration, agent and known_hosts. For a command at a desk,
    never for the service.
    """


Login = Password | Bearer | SshKey | OwnSsh


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to log in (None: as nobody), the only authorities to trust (PEM; empty: the system's),
    and the proxy for https.

    Without a `proxy` the variables of the environment count.
    """

    login: Login | None = None
    authorities: bytes = field(default=b"", repr=False)
    proxy: str = ""


ANONYMOUS = Credentials()

# As whom we come now. True: the server refused whom we came as, so what was remembered may be old.
CredentialSource = Callable[[bool], Awaitable[Credentials]]
