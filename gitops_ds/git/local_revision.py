"""A revision as a clone resolves it: remote-tracking branches, reflogs, abbreviated ids; git only
reads the clone.
"""

from __future__ import annotations

from pathlib import Path

import git

from gitops_ds.git import hardening
from gitops_ds.model.objects import CommitId
from gitops_ds.model.sources.repository_limits import DEFAULT


def resolve(clone: Path, text: str) -> CommitId | None:
    """The commit of a revision in a work tree or a bare repository; None if it does not exist."""
    runner = hardening.HardenedGit(clone)
    runner.update_environment(
        **(hardening.desk() if (clone / ".git").exists() else hardening.local(clone))
    )
    command = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}"]
    try:
        return CommitId(str(runner.execute(command, kill_after_timeout=DEFAULT.seconds)).strip())
    except git.GitCommandError:
        return None
