"""A local directory, read with its uncommitted changes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePosixPath

import pytest

from gitops_ds.core import errors
from gitops_ds.core.sources.repository_limits import RepositoryLimits
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.source.git import worktree
from tests.gitservers import git


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def names(taken: SourceTree) -> list[str]:
    return [str(path) for path in taken.files]


def finding_places(taken: SourceTree) -> list[tuple[str, str, bool]]:
    return [(f.rule, f.place.file if f.place else "", f.refused) for f in taken.findings]


def test_a_git_work_tree_gives_tracked_and_new_files_but_no_ignored_or_deleted_ones(
    tmp_path: Path,
) -> None:
    git(tmp_path, "init", "--quiet")
    write(tmp_path, "a.yaml", "d/b.yaml", "gone.yaml")
    git(tmp_path, "add", ".")
    (tmp_path / "gone.yaml").unlink()
    (tmp_path / "a.yaml").write_text("changed")
    (tmp_path / ".gitignore").write_text("*.log\n/out/\n")
    write(tmp_path, "new.yaml", "x.log", "out/c.yaml")
    taken = worktree.snapshot(tmp_path)
    assert taken.commit is None
    assert names(taken) == ["a.yaml", "d/b.yaml", "new.yaml"]
    assert taken.files[PurePosixPath("a.yaml")] == b"changed"
    assert names(worktree.snapshot(tmp_path, "d")) == ["b.yaml"]
    assert names(worktree.snapshot(tmp_path / "d")) == ["b.yaml"]


def test_a_plain_directory_gives_all_its_readable_files(tmp_path: Path) -> None:
    write(tmp_path, "b.yaml", "d/a.yaml", ".hidden", "d/.git/config.yaml")
    taken = worktree.snapshot(tmp_path)
    assert (names(taken), taken.findings) == (["b.yaml", "d/a.yaml"], ())


@pytest.mark.parametrize("with_git", [True, False])
def test_links_large_files_odd_names_and_pipes_are_refused_as_in_a_commit(
    tmp_path: Path, with_git: bool
) -> None:
    if with_git:
        git(tmp_path, "init", "--quiet")
    write(tmp_path, "v1/a.yaml")
    (tmp_path / "link.yaml").symlink_to("/etc/passwd")
    (tmp_path / "latest").symlink_to("v1")
    (tmp_path / "big.yaml").write_text("#" * 101)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.yaml")).write_text("x")
    taken = worktree.snapshot(tmp_path, limits=RepositoryLimits(file_bytes=100))
    assert names(taken) == ["v1/a.yaml"]
    assert finding_places(taken) == [
        ("SRC003", "big.yaml", True),
        ("SRC001", "latest", True),
        ("SRC001", "link.yaml", True),
        ("SRC004", "\\xff.yaml", True),
    ]


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    assert finding_places(worktree.snapshot(tmp_path)) == [("SRC004", "pipe.yaml", True)]


def test_a_folder_that_a_link_replaced_is_not_read_through_it(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    for folder in (outside, inside / "a" / "b"):
        folder.mkdir(parents=True)
        (folder / "x.yaml").write_text(f"in: {folder.name}\n")
    git(inside, "init", "-q")
    git(inside, "add", ".")
    shutil.rmtree(inside / "a" / "b")
    (inside / "a" / "b").symlink_to(outside)
    assert dict(worktree.snapshot(inside).files) == {}


def test_a_repository_in_the_repository_is_refused_as_a_submodule(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "inner").mkdir()
    git(tmp_path / "inner", "init", "--quiet")
    write(tmp_path, "inner/a.yaml")
    git(tmp_path / "inner", "add", ".")
    git(tmp_path / "inner", "commit", "--quiet", "-m", "x")
    assert finding_places(worktree.snapshot(tmp_path)) == [("SRC002", "inner", True)]


def test_no_program_named_in_the_work_trees_configuration_runs(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    write(tmp_path, "a.yaml")
    git(tmp_path, "config", "core.fsmonitor", f"touch {tmp_path}/ran; false")
    git(tmp_path, "config", "core.hooksPath", str(tmp_path))
    worktree.snapshot(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_the_root_is_found_from_below(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    write(tmp_path, "d/e/a.yaml")
    assert worktree.find_work_tree(tmp_path / "d/e") == tmp_path.resolve()
    assert worktree.find_work_tree(Path("/")) is None


def test_a_missing_directory_or_repository_is_reported(tmp_path: Path) -> None:
    with pytest.raises(errors.RevisionUnknown, match="not a directory"):
        worktree.snapshot(tmp_path / "nothing")
    with pytest.raises(errors.UsageError, match="inside"):
        worktree.snapshot(tmp_path, "../..")
    (tmp_path / ".git").write_text("rubbish")
    with pytest.raises(errors.SourceError, match="can't read"):
        worktree.snapshot(tmp_path)
