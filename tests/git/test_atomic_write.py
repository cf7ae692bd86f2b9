"""Files at a user's path: never through symlinks of a repository, complete or not at all."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from gitops_ds.cli.init import scaffold
from gitops_ds.cli.support_dump import archive
from gitops_ds.core import errors
from gitops_ds.source.git import atomic_write


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """With links as a pull request may commit them: to a file, to nothing, to a directory, in a
    directory.
    """
    subprocess.run(["git", "init", "--quiet", tmp_path / "repository"], check=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    links = {
        "file": outside / "file",
        "nothing": outside / "new",
        "folder": outside,
        "agents": outside,
    }
    for name, target in links.items():
        (tmp_path / "repository" / name).symlink_to(target)
    (tmp_path / "repository/inner").mkdir()
    (tmp_path / "repository/inner/up").symlink_to("../..")
    return tmp_path / "repository"


WRITERS: list[Callable[[Path], object]] = [
    lambda file: atomic_write.replace(file, b"x"),
    lambda file: atomic_write.create(file, b"x"),
    lambda file: archive.write(file, b"x"),
    lambda file: scaffold.write(file.parent, {PurePosixPath(file.name): "x"}),
]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(
    "name",
    ["file", "nothing", "folder/file", "folder/new", "inner/up/outside/new", "inner/../folder/new"],
)
def test_no_file_is_written_through_a_link(
    repository: Path, write: Callable[[Path], object], name: str
) -> None:
    with pytest.raises(errors.Refused):
        write(repository / name)
    outside = repository.with_name("outside")
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"file": "kept"}


def test_a_repository_is_not_begun_behind_a_link(repository: Path) -> None:
    """`init` and `adopt`: agents/ is a link."""
    with pytest.raises(errors.Refused, match="is behind the symlink"):
        scaffold.write(
            repository,
            {
                PurePosixPath("first.yaml"): "a",
                PurePosixPath("agents/node-exporter/daemonset.yaml"): "b",
            },
        )
    assert not (repository / "first.yaml").exists()


def test_links_of_the_user_outside_of_a_repository_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    atomic_write.replace(tmp_path / "link/report.json", b"x")
    (tmp_path / "file").symlink_to("real/other.json")
    atomic_write.replace(tmp_path / "file", b"y")
    assert sorted(path.name for path in (tmp_path / "real").iterdir()) == [
        "other.json",
        "report.json",
    ]
    assert (tmp_path / "file").is_symlink()


def test_a_failed_write_leaves_the_old_content(tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.write_bytes(b"older")
    with pytest.raises(OSError, match="No such file"):
        atomic_write.replace(tmp_path / "missing/report", b"x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="directory"):
        atomic_write.replace(tmp_path / "folder", b"x")
    with pytest.raises(FileExistsError):
        atomic_write.create(report, b"x")
    assert report.read_bytes() == b"older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "report"]
