"""The author and the signing of our own commits: with a key from the settings, or in a command with
the user's git configuration.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import git
import msgspec

from gitops_ds.core import errors
from gitops_ds.source.git import verification_keys


class KeyFormat(StrEnum):
    """Kinds of keys; the values are git's gpg.format."""

    SSH = "ssh"
    OPENPGP = "openpgp"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key without passphrase: in OpenSSH or PEM form, or OpenPGP as `gpg --armor
    --export-secret-keys` writes it.
    """

    private: bytes = field(repr=False)
    format: KeyFormat = KeyFormat.SSH


class UserSigningConfig(msgspec.Struct, frozen=True):
    """The signing settings of the user's git."""

    settings: tuple[tuple[str, str], ...]


Signing = SigningKey | UserSigningConfig


@contextmanager
def prepared(signing: Signing) -> Iterator[tuple[tuple[str, ...], Mapping[str, str]]]:
    """git's options for a command that signs, and its environment; keys are on the disk only inside
    the context. Raises UsageError.
    """
    match signing:
        case UserSigningConfig(settings):
            yield tuple(word for name, value in settings for word in ("-c", f"{name}={value}")), {}
        case SigningKey(private, format) if format is KeyFormat.SSH:
            with verification_keys.directory() as where:
                file = where / "key"
                # ssh-keygen refuses a key that others can read, as they often can a mounted one
                file.touch(mode=0o600)
                file.write_bytes(private.rstrip(b"\n") + b"\n")
                yield verification_keys.config("gpg.format=ssh", f"user.signingKey={file}"), {}
        case SigningKey(private):
            with verification_keys.directory() as where:
                environment = verification_keys.gnupg(where / "gnupg", private)
                try:
                    listed = verification_keys.run(
                        ("gpg", "--with-colons", "--list-secret-keys"), environment
                    )
                    match = re.search(r"^fpr:(?::*)([0-9A-F]{40,}):", listed, re.MULTILINE)
                    if match is None:
                        raise errors.UsageError(
                            "the OpenPGP signing key is not a secret key: `gpg --armor "
                            "--export-secret-keys`"
                        )
                    yield (
                        verification_keys.config(
                            "gpg.format=openpgp", f"user.signingKey={match[1]}"
                        ),
                        environment,
                    )
                finally:
                    verification_keys.release(environment)


_SIGNING = (
    "gpg.format",
    "user.signingkey",
    "gpg.program",
    "gpg.openpgp.program",
    "gpg.x509.program",
    "gpg.ssh.program",
    "gpg.ssh.defaultkeycommand",
)


def name_and_mail(directory: Path | None) -> tuple[str, str]:
    """The name and the address that `git commit` would use there.

    GIT_AUTHOR_NAME and GIT_AUTHOR_EMAIL take precedence over the configuration. Raises UsageError
    if either is missing.
    """
    name, mail = os.environ.get("GIT_AUTHOR_NAME") or "", os.environ.get("GIT_AUTHOR_EMAIL") or ""
    if not (name and mail):
        # The nearest file with the key takes precedence: https://git-scm.com/docs/git-config#FILES
        levels = [str(directory / ".git" / "config")] if directory is not None else []
        levels += [git.config.get_config_path(level) for level in ("global", "user", "system")]
        for file in levels:
            if Path(file).is_file():
                try:
                    with git.GitConfigParser(file, read_only=True) as config:
                        name = name or str(config.get_value("user", "name", ""))
                        mail = mail or str(config.get_value("user", "email", ""))
                except (configparser.Error, OSError):  # git itself reports a broken file
                    continue
    if not (name and mail):
        raise errors.UsageError(
            "the commit has no author: set user.name and user.email (git config), or --author "
            "'Name <mail>'"
        )
    return name, mail


def signs_off(directory: Path | None) -> bool:
    """Whether format.signOff is set there."""
    return _is_true(_configuration(directory).get("format.signoff", ""))


def of_user(directory: Path | None) -> UserSigningConfig | None:
    """The user's signing configuration there; None unless commit.gpgSign is set."""
    values = _configuration(directory)
    if not _is_true(values.get("commit.gpgsign", "")):
        return None
    return UserSigningConfig(tuple((name, values[name]) for name in _SIGNING if name in values))


def _configuration(directory: Path | None) -> dict[str, str]:
    """Git's configuration there; empty if it can't be read."""
    try:
        listed = git.Git(directory or Path.cwd()).config(
            "--list", "--null", "--includes", strip_newline_in_stdout=False
        )
    except (git.GitCommandError, git.GitCommandNotFound, OSError):
        return {}
    # The last one takes precedence, as in git. A name without a value is true.
    return {
        name: value if equal else "true"
        for name, equal, value in (row.partition("\n") for row in listed.split("\0") if row)
    }


def _is_true(value: str) -> bool:
    return value.lower() in {"true", "yes", "on", "1"}
