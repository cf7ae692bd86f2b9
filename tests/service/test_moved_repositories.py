"""A repository keeps its objects when its address changes, with the installed program on a real API
server; a fork does not get them.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import controlplane, gitservers
from tests.cluster import program
from tests.service.test_following import agent, settings
from tests.service.test_service import running, until

pytestmark = [pytest.mark.controlplane, pytest.mark.system]
_numbers = itertools.count()


class Place:
    """A namespace with an agent, one for states, a work tree without a remote, and a server."""

    def __init__(
        self, directory: Path, plane: controlplane.ControlPlane, server: gitservers.HttpServer
    ) -> None:
        self.space, self.states = (f"moved-{next(_numbers)}" for _ in range(2))
        self.directory, self.plane, self.server = directory, plane, server
        plane.kubectl("create", "namespace", self.space)
        self.desk = program.desk(directory / "dana", plane.kubeconfig)
        self.desk.git("remote", "remove", "origin")
        self.commit(1)

    def commit(self, tag: int) -> None:
        for name, content in agent(self.space, tag).items():
            self.desk.write(name, content)
        self.desk.git("add", ".")
        self.desk.git("commit", "--quiet", "--message", f"agent {tag}")

    def pushed(self, name: str) -> str:
        """The address of a new repository on the server with the commits, the remote `origin`."""
        upstream, url = self.server.repository(name), f"{self.server.url}/{name}"
        self.desk.git("push", "--quiet", str(upstream.path), "HEAD:main")
        if self.desk.git("remote"):
            self.desk.git("remote", "remove", "origin")
        self.desk.git("remote", "add", "origin", url)
        return url

    def run(self, *words: str) -> program.Ended:
        return self.desk.run(*words, "--state-namespace", self.states)

    def followed(self, url: str) -> Iterator[str]:
        """The log of a service that follows an address; it ends on request."""
        file = settings(self.directory, url, **self.server.credentials(self.directory))
        options = ("--settings", str(file), "--state-namespace", self.states)
        with running(self.directory, self.plane, *options) as (process, log):
            until(lambda: " written" in log.read_text(), log.read_text)
            yield log.read_text()
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0

    @property
    def live(self) -> dict[str, Any]:
        (one,) = self.plane.items(self.space, "daemonsets")
        return one

    @property
    def owner(self) -> str:
        return str(self.live["metadata"]["labels"]["gitops-ds.io/owner"])

    @property
    def sources(self) -> list[tuple[str, str]]:
        items = self.run("sources", "-o", "json").json["items"]
        return [(item["name"], item["repository"]) for item in items]


@pytest.fixture
def place(tmp_path: Path, api_server: controlplane.ControlPlane) -> Iterator[Place]:
    with gitservers.http_git_server(tmp_path / "git") as server:
        yield Place(tmp_path, api_server, server)


def test_a_directory_that_gets_a_remote_and_a_service_keeps_its_objects(place: Place) -> None:
    assert place.run("apply").code == 0
    before, tree = place.live, str(place.desk.tree)
    url = place.pushed("agents")
    for words in ((), ("--revision", "HEAD")):
        planned = place.run("plan", *words).out
        assert (" 1 to update" in planned, "belongs to" in planned) == (True, False), planned
    for log in place.followed(url):
        assert "belongs to" not in log
        assert f"is now at {url} (it was at {tree})" in log
    after = place.live
    assert place.owner == before["metadata"]["labels"]["gitops-ds.io/owner"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["spec"] == before["spec"]
    assert place.sources == [(place.owner, url)]
    assert "0 written, 1 unchanged" in place.run("apply").out


def test_a_repository_that_is_renamed_on_the_server_keeps_its_objects_in_the_service(
    place: Place,
) -> None:
    for _ in place.followed(place.pushed("agents")):
        owner = place.owner
    renamed = place.pushed("node-agents")
    for log in place.followed(renamed):
        assert "belongs to" not in log
    assert (place.owner, place.sources) == (owner, [(owner, renamed)])


def test_a_fork_gets_no_object_until_a_person_takes_them_over(place: Place) -> None:
    url = place.pushed("agents")
    assert place.run("apply").code == 0
    first, before = place.owner, place.live
    fork = place.pushed("fork")
    place.commit(2)
    refused = place.run("apply")
    assert refused.code == 1
    belongs = f"DaemonSet {place.space}/agent belongs to gitops-ds of {url} (owner {first})"
    assert f"{belongs}, which has the same history at another address" in refused.err
    assert "take it over with `gitops-ds apply --adopt`" in refused.err
    assert place.live["metadata"] == before["metadata"]

    adopted = place.run("apply", "--adopt")
    assert adopted.code == 0, adopted.err
    assert place.owner != first
    assert place.sources == [(place.owner, fork)]
    assert place.run("plan", "--exit-code").code == 0


def test_another_repository_is_named_as_such(place: Place) -> None:
    url = place.pushed("agents")
    assert place.run("apply").code == 0
    other = Place(place.directory / "other", place.plane, place.server)
    other.space, other.states = place.space, place.states
    other.commit(3)
    last = place.desk.git("rev-parse", "HEAD")
    refused = other.run("apply")
    assert refused.code == 1
    assert f"gitops-ds of {url}" in refused.err
    assert f"another repository: its commit {last[:12]} is not in this history" in refused.err
