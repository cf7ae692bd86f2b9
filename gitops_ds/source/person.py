"""Who writes commits at a desk: Git's own user.name and user.email."""

from __future__ import annotations

import configparser
import os
from pathlib import Path

import git

from gitops_ds import errors


def name_and_mail(directory: Path | None) -> tuple[str, str]:
    """The name and the address that `git commit` would use there.

    GIT_AUTHOR_NAME and GIT_AUTHOR_EMAIL win, then the configuration. Raises UsageError when either is missing.
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
        raise errors.UsageError("who writes the commit? Set user.name and user.email (git config), or give --author 'Name <mail>'")
    return name, mail
