"""The name of the followed branch, also of the server's default branch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from gitops_ds.service.git.git_source import GitSource
from gitops_ds.service.prepare_process import Preparing
from gitops_ds.service.settings.repository import RepositorySettings
from gitops_ds.source.git import address
from gitops_ds.source.git.repository import Repository
from tests.gitservers import Upstream


def detached(upstream: Upstream) -> None:
    upstream.git("checkout", "--quiet", "--detach")


def renamed(upstream: Upstream) -> None:
    upstream.git("branch", "-m", "trunk")


@pytest.mark.parametrize(
    ("branch", "change", "name"),
    [("", renamed, "trunk"), ("", detached, "HEAD"), ("main", detached, "main")],
)
def test_without_a_branch_in_the_settings_the_name_is_that_of_the_servers_default_branch(
    tmp_path: Path, branch: str, change: Callable[[Upstream], None], name: str
) -> None:
    upstream = Upstream(tmp_path / "fleet")
    upstream.commit({"a.yaml": "a: 1\n"})
    settings = RepositorySettings(url=str(upstream.path), allow_local=True, branch=branch)
    where = address.parse(str(upstream.path), allow_local=True)

    async def names() -> tuple[str, str, str]:
        async with Repository(where, tmp_path / "cache") as repository:
            source = GitSource(repository, settings, "", cast("Preparing", None)).revisions()
            before = source.branch()
            await source.tip()
            first = source.branch()
            change(upstream)
            upstream.commit({"a.yaml": "a: 2\n"})
            await source.tip()
            return before, first, source.branch()

    assert asyncio.run(names()) == (branch or "HEAD", "main", name)
