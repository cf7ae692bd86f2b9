"""Which repository `-C` means where a bare one lies in a work tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops_ds.pipeline import open_repository
from tests.gitservers import git


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "init", "--quiet", "--bare", "agents")
    return tmp_path / "agents"


def test_it_is_the_repository_that_was_named(bare: Path) -> None:
    named = open_repository.named(str(bare))
    assert (named.display, named.path, named.directory) == (str(bare), "", None)


def test_one_that_the_work_tree_holds_is_files_of_the_work_tree_like_others(bare: Path) -> None:
    (bare / "objects/kept").touch()
    git(bare.parent, "add", "agents")
    named = open_repository.named(str(bare))
    assert (named.display, named.path, named.directory) == (str(bare.parent), "agents", bare.parent)
