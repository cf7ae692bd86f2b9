"""One Gitea for the tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.forges.gitea import Gitea


@pytest.fixture(scope="session")
def gitea(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gitea]:
    """A running Gitea with an administrator and nothing else."""
    server = Gitea(tmp_path_factory.mktemp("gitea"))
    try:
        yield server.start()
    finally:
        server.stop()
