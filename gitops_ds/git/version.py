"""The version of the installed git."""

from __future__ import annotations

import git


def git_version() -> tuple[int, ...] | None:
    """The version of the git on the PATH, None without one; blocking."""
    try:
        return tuple(git.Git().version_info)
    except git.GitCommandNotFound:
        return None
