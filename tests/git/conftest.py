"""Servers shared by the tests of one worker; each test makes repositories of its own on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import gitservers


@pytest.fixture
def http_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[gitservers.HttpServer]:
    with gitservers.http_git_server(tmp_path_factory.mktemp("http")) as server:
        yield server


@pytest.fixture(scope="session")
def ssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[gitservers.SshServer]:
    with gitservers.ssh_git_server(tmp_path_factory.mktemp("ssh")) as server:
        yield server
