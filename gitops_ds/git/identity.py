"""Who writes commits at a desk, and how they are signed: by Git's own configuration."""

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

    GIT_AUTHOR_NAME and GIT_AUTHOR_EMAIL win, then the configuration. Raises UsageError when either
    is missing.
    """
    name, mail = os.environ.get("GIT_AUTHOR_NAME") or "", os.environ.get("GIT_AUTHOR_EMAIL") or ""
    if not (name and mail):
        # The nearest file that says it wins: https://git-scm.com/docs/git-config#FILES
        levels = [str(directory / ".git" / "config")] if directory is not None else []
        levels += [git.config.get_config_path(level) for level in ("global", "user", "system")]
        for file in levels:
            if Path(file).is_file():
                try:
                    with git.GitConfigParser(file, read_only=True) as found:
                        name = name or str(found.get_value("user", "name", ""))
                        mail = mail or str(found.get_value("user", "email", ""))
                except (configparser.Error, OSError):  # git itself says more about a broken file
                    continue
    if not (name and mail):
        raise errors.UsageError(
            "who writes the commit? Set user.name and user.email (git config), or give --author "
            "'Name <mail>'"
        )
    return name, mail


def signing(directory: Path | None) -> UserSigningConfig | None:
    """How the person's git signs there; None unless they said commit.gpgSign, as with `git commit`."""
    try:
        listed = git.Git(directory or Path.cwd()).config(
            "--list", "--null", "--includes", strip_newline_in_stdout=False
        )
    except (git.GitCommandError, git.GitCommandNotFound, OSError):
        return None
    # The last one wins, as in git. A name without a value is yes.
    said = {
        name: value if equal else "true"
        for name, equal, value in (row.partition("\n") for row in listed.split("\0") if row)
    }
    if said.get("commit.gpgsign", "").lower() not in {"true", "yes", "on", "1"}:
        return None
    return UserSigningConfig(tuple((name, said[name]) for name in _SIGNING if name in said))
