"""Credentials for git: in its environment and in an owner-only directory; never on a command line
or in a repository.

They are bound to scheme and host: the askpass helper answers for that host only, a header is set
for that URL only, and git follows no redirects (see `hardening`).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gitops_ds.core import errors
from gitops_ds.source.git.address import Address, Scheme
from gitops_ds.source.git.credentials.credential_values import (
    Bearer,
    Credentials,
    OwnSsh,
    Password,
    SshKey,
)

# git's prompts: "Username for 'https://host': " and "Password for 'https://user@host': ". Others
# fail.
_ASKPASS = """\
#!/bin/sh
case "$1" in
  "Username for '$GITOPS_DS_ORIGIN': ") printf '%s\\n' "$GITOPS_DS_USER" ;;
  "Password for '$GITOPS_DS_ASKED': ") printf '%s\\n' "$GITOPS_DS_PASSWORD" ;;
  *) exit 1 ;;
esac
"""
_SSH = (
    "ssh",
    "-oBatchMode=yes",
    "-oStrictHostKeyChecking=yes",
    "-oConnectTimeout=15",
    "-oServerAliveInterval=15",
    "-oServerAliveCountMax=4",
    "-oForwardAgent=no",
    "-oClearAllForwardings=yes",
    "-oPermitLocalCommand=no",
    "-oUpdateHostKeys=no",
)


@dataclass(frozen=True, slots=True)
class GitCredentials:
    """Environment variables and configuration for git, and the values to redact in messages."""

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    config: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)


def install(address: Address, credentials: Credentials, directory: Path) -> GitCredentials:
    """Writes the credential files into the (owner-only) directory and returns git's configuration.

    Raises UsageError for credentials that don't fit the address: a password for ssh, ssh without
    known_hosts.
    """
    login = credentials.login or address.login
    match address.scheme:
        case Scheme.HTTPS:
            return _https(address, login, credentials, directory)
        case Scheme.SSH:
            return _ssh(address, login, directory)
        case Scheme.FILE:
            return GitCredentials({"HOME": str(directory)})


def _https(address: Address, login: object, own: Credentials, directory: Path) -> GitCredentials:
    # A separate HOME excludes ~/.netrc.
    environment = {"HOME": str(directory), "GIT_ASKPASS": "/bin/false"}
    config: list[tuple[str, str]] = []
    secrets: tuple[str, ...] = ()
    if own.authorities:
        environment["GIT_SSL_CAINFO"] = str(_write(directory / "authorities.pem", own.authorities))
    if own.proxy:
        config.append(("http.proxy", own.proxy))
        # a proxy of one repository overrides the environment
        environment |= {"NO_PROXY": "", "no_proxy": ""}
    match login:
        case Password(password, user):
            _check_line("password", password)
            _check_line("user", user)
            environment |= {
                "GIT_ASKPASS": str(_write(directory / "askpass", _ASKPASS.encode(), 0o700)),
                "GITOPS_DS_ORIGIN": address.origin,
                "GITOPS_DS_ASKED": address.origin.replace("://", f"://{_as_git_quotes(user)}@"),
                "GITOPS_DS_USER": user,
                "GITOPS_DS_PASSWORD": password,
            }
            secrets = (password,)
        case Bearer(token):
            _check_line("token", token)
            config.append((f"http.{address.origin}/.extraHeader", f"Authorization: Bearer {token}"))
            secrets = (token,)
        case None:
            pass
        case _:
            raise errors.UsageError(
                f"{address.display} is an https URL: give a user and password or a token, no ssh "
                "key"
            )
    return GitCredentials(environment, tuple(config), secrets)


def _ssh(address: Address, login: object, directory: Path) -> GitCredentials:
    match login:
        case OwnSsh():
            return GitCredentials({"GIT_SSH_COMMAND": shlex.join(_SSH), "GIT_SSH_VARIANT": "ssh"})
        case SshKey(private_key, known_hosts):
            if not known_hosts.strip():
                raise errors.UsageError(
                    f"{address.display}: an ssh key needs known_hosts beside it; "
                    "get the server's lines with ssh-keyscan and compare them with what its "
                    "operator publishes"
                )
            key = _write(directory / "identity", private_key.rstrip(b"\n") + b"\n")
            hosts = _write(directory / "known_hosts", known_hosts)
            options = (
                "-F/dev/null",
                "-oIdentitiesOnly=yes",
                "-oIdentityAgent=none",
                "-oPreferredAuthentications=publickey",
                "-oGlobalKnownHostsFile=/dev/null",
                f"-oIdentityFile={_ssh_quoted(key)}",
                f"-oUserKnownHostsFile={_ssh_quoted(hosts)}",
            )
            command = shlex.join((*_SSH, *options))
            return GitCredentials(
                {"HOME": str(directory), "GIT_SSH_COMMAND": command, "GIT_SSH_VARIANT": "ssh"}
            )
        case _:
            raise errors.UsageError(
                f"{address.display} is an ssh address: give a private key and known_hosts (or, at "
                "your desk, use your own ssh)"
            )


def _write(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.touch(mode=mode)
    path.write_bytes(content)
    return path


def _check_line(what: str, text: str) -> None:
    if not text or any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise errors.UsageError(
            f"the {what} for the repository is empty or contains a line break; check its file"
        )


def _as_git_quotes(user: str) -> str:
    """The user in the form of git's prompt: it percent-encodes all but unreserved characters
    (credential.c, strbuf.c).
    """
    kept = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
    return "".join(chr(b) if b in kept else f"%{b:02x}" for b in user.encode())


def _ssh_quoted(path: Path) -> str:
    """A path as an ssh option's value: spaces are quoted, and % is escaped."""
    return '"' + str(path).replace("%", "%%") + '"'
