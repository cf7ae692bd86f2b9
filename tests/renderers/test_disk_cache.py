"""The cache of what programs made: what is read is what was written, or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitops_ds.source.renderers import disk_cache

KEY = disk_cache.key("a", b"b")


def test_a_cached_entry_is_returned_only_for_its_key(tmp_path: Path) -> None:
    directory = tmp_path / "of" / "mine"
    disk_cache.write(directory, KEY, b"x\ny\n")
    assert (
        disk_cache.read(directory, KEY),
        disk_cache.read(directory, disk_cache.key("c")),
        disk_cache.read(None, KEY),
    ) == (
        b"x\ny\n",
        None,
        None,
    )
    assert (directory.stat().st_mode & 0o777, [file.name for file in directory.iterdir()]) == (
        0o700,
        [KEY],
    )


def test_the_parts_of_a_key_do_not_run_together() -> None:
    assert (
        len(
            {
                disk_cache.key("ab", "c"),
                disk_cache.key("a", "bc"),
                disk_cache.key("abc"),
                disk_cache.key("abc", ""),
            }
        )
        == 4
    )


@pytest.mark.parametrize(
    "damage",
    [lambda d: d[:-1], lambda d: d + b"x", lambda d: b"", lambda d: d.replace(b"\nx", b"\nz")],
)
def test_a_damaged_entry_is_ignored(tmp_path: Path, damage: object) -> None:
    disk_cache.write(tmp_path / "kept", KEY, b"x")
    file = tmp_path / "kept" / KEY
    file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]
    assert disk_cache.read(tmp_path / "kept", KEY) is None


def test_a_directory_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    disk_cache.write(directory, KEY, b"x")
    directory.chmod(0o777)
    disk_cache.write(directory, disk_cache.key("other"), b"x")
    assert (disk_cache.read(directory, KEY), len(list(directory.iterdir()))) == (None, 1)
    link = tmp_path / "link"
    directory.chmod(0o700)
    link.symlink_to(directory)
    assert disk_cache.read(link, KEY) is None


def test_an_entry_unread_for_a_month_is_removed(tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    old, used = disk_cache.key("old"), disk_cache.key("used")
    for key in (old, used):
        disk_cache.write(directory, key, b"x")
        os.utime(directory / key, (0, 0))
    assert disk_cache.read(directory, used) == b"x"
    disk_cache.write(directory, KEY, b"x")
    assert {file.name for file in directory.iterdir()} == {used, KEY}


def test_a_cache_that_cannot_be_written_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    disk_cache.write(tmp_path / "file" / "kept", KEY, b"x")
    assert disk_cache.read(tmp_path / "file" / "kept", KEY) is None
