"""The author and the signing key of the user's commits, from Git's own configuration."""

from __future__ import annotations

import configparser
import os
from pathlib import Path

import git

from gitops_ds import errors
from gitops_ds.git.signing import UserSigningConfig

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


def signing(directory: Path | None) -> UserSigningConfig | None:
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
