"""Locks on directories: a lock file is deleted only if its process is known to be dead."""

from __future__ import annotations

import os
from pathlib import Path

from gitops_ds.source.git import directory_lock
from gitops_ds.source.git.directory_lock import LockResult


def test_lock_files_are_deleted_only_where_the_lock_excludes_other_processes(
    tmp_path: Path,
) -> None:
    left = tmp_path / "config.lock"
    # A file descriptor of O_PATH can't be locked, as a directory on NFS.
    unsupported = os.open(tmp_path, os.O_PATH)
    with directory_lock.opened(tmp_path) as one, directory_lock.opened(tmp_path) as other:
        results = [directory_lock.lock(number, wait=False) for number in (one, other, unsupported)]
    os.close(unsupported)
    assert results == [LockResult.LOCKED, LockResult.BUSY, LockResult.UNSUPPORTED]
    deleted = [directory_lock.left_by_killed(result, [left]) for result in results]
    assert deleted == [(left,), (), ()]
