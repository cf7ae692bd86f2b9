"""No content of one repository ends or delays the service for another, with the installed program
on a real API server.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import controlplane, gitservers
from tests.service.test_following import agent, image, runs
from tests.service.test_service import PROGRAM, following, read, running, until

pytestmark = [pytest.mark.controlplane, pytest.mark.system]


def named(name: str) -> dict[str, str]:
    return {"gitops-ds.yaml": f"version: v1\nname: {name}\nmanifests: ['*.json']\n"}


class Pair:
    """Two followed repositories, each with an agent in a namespace of its own."""

    def __init__(self, directory: Path, plane: controlplane.ControlPlane, name: str) -> None:
        self.directory, self.plane = directory, plane
        self.page = f"127.0.0.1:{controlplane.free_port()}"
        self.spaces = [f"{name}-{side}" for side in "ab"]
        for space in self.spaces:
            plane.kubectl("create", "namespace", space)
        self.upstreams = [gitservers.Upstream(directory / side) for side in "ab"]
        self.file = directory / "settings.yaml"
        repositories = [following(upstream, retryInterval="1s") for upstream in self.upstreams]
        listen = {"address": self.page}
        self.file.write_text(json.dumps({"repositories": repositories, "listen": listen}))

    def commit(self, side: int, tag: int, name: str) -> None:
        self.upstreams[side].commit({**agent(self.spaces[side], tag), **named(name)})

    def run(self, side: int) -> str:
        return runs(self.plane, self.spaces[side])

    @contextmanager
    def service(self) -> Iterator[Path]:
        """The log of the service, which answers its probes and ends on request."""
        with running(self.directory, self.plane, "--settings", str(self.file)) as (process, log):
            until(lambda: "ready: " in log.read_text(), log.read_text)
            until(lambda: read(f"http://{self.page}/healthz") != "", log.read_text)
            yield log
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0, log.read_text()

    @property
    def sources(self) -> dict[str, str]:
        """The condition of each repository, by its address."""
        return {address: item["condition"] for address, item in self._items.items()}

    def message(self, address: str) -> str:
        """The message of a repository."""
        return str(self._items[address]["message"])

    @property
    def _items(self) -> dict[str, dict[str, Any]]:
        where = ("--kubeconfig", str(self.plane.kubeconfig), "--state-namespace", "service-test")
        words = (str(PROGRAM), "sources", "-o", "json", *where)
        ended = subprocess.run(words, capture_output=True, text=True, check=True)
        items = json.loads(ended.stdout)["items"]
        return {item["repository"]: item for item in items}


@pytest.fixture
def pair(tmp_path: Path, api_server: controlplane.ControlPlane) -> Pair:
    # The directory of another test of the same name may have had this path, and its addresses have
    # their state in the cluster.
    name = f"pair-{uuid.uuid4().hex[:8]}"
    (tmp_path / name).mkdir()
    return Pair(tmp_path / name, api_server, name)


def test_a_name_belongs_to_the_first_repository_and_the_second_is_refused(pair: Pair) -> None:
    name = pair.spaces[0]
    pair.commit(0, 1, name)
    with pair.service() as log:
        until(lambda: pair.run(0) == image(1), log.read_text)
    pair.commit(1, 1, name)
    with pair.service() as log:
        until(lambda: pair.sources.get(str(pair.upstreams[1].path)) == "Refused", log.read_text)
        pair.commit(0, 2, name)
        until(lambda: pair.run(0) == image(2), log.read_text)
        assert f"the name {name} in gitops-ds.yaml of {pair.upstreams[1].path}" in log.read_text()
        assert pair.run(1) == ""
        pair.commit(1, 1, pair.spaces[1])
        until(lambda: pair.run(1) == image(1), log.read_text)
    # a name that is copied later changes no owner
    pair.commit(1, 2, name)
    with pair.service() as log:
        until(lambda: pair.run(1) == image(2), log.read_text)
        pair.commit(0, 3, name)
        until(lambda: pair.run(0) == image(3), log.read_text)


def test_two_new_repositories_with_one_name_start_and_one_is_refused(pair: Pair) -> None:
    name = pair.spaces[0]
    for side in (0, 1):
        pair.commit(side, 1, name)
    with pair.service() as log:
        until(lambda: "Refused" in pair.sources.values(), log.read_text)
        until(lambda: image(1) in (pair.run(0), pair.run(1)), log.read_text)
        assert "" in (pair.run(0), pair.run(1))


@pytest.mark.parametrize("wrong", ["teamA", "startup-taints"])
def test_a_wrong_name_is_read_again_with_each_commit(pair: Pair, wrong: str) -> None:
    pair.commit(0, 1, pair.spaces[0])
    pair.commit(1, 1, wrong)
    with pair.service() as log:
        until(lambda: pair.run(0) == image(1), log.read_text)
        until(lambda: "cannot be the id of an owner" in log.read_text(), log.read_text)
        pair.commit(1, 2, pair.spaces[1])
        until(lambda: pair.run(1) == image(2), log.read_text)


def test_after_a_rewrite_with_a_refused_tip_and_without_the_copy_the_next_commit_is_applied(
    pair: Pair,
) -> None:
    for side in (0, 1):
        pair.commit(side, 1, pair.spaces[side])
    with pair.service() as log:
        until(lambda: pair.run(1) == image(1), log.read_text)
    upstream = pair.upstreams[1]
    upstream.git("update-ref", "-d", "refs/heads/main")
    upstream.git("reflog", "expire", "--all", "--expire=now")
    pair.commit(1, 2, pair.spaces[1])
    upstream.commit({"agent.json": "{"})
    upstream.git("gc", "--quiet", "--prune=now")
    shutil.rmtree(pair.directory / "cache")
    with pair.service() as log:
        address = str(upstream.path)
        until(lambda: pair.sources.get(address) == "Rejected", log.read_text)
        assert "the Git server no longer has it" in pair.message(address)
        assert pair.run(1) == image(1)
        pair.commit(1, 3, pair.spaces[1])
        until(lambda: pair.run(1) == image(3), log.read_text)
