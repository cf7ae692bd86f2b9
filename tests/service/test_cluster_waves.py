"""A commit is applied to three real control planes in an order: each has its own installed service,
and they share only a repository on a real git server.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core.rollouts import cluster_report
from gitops_ds.core.rollouts.cluster_report import ClusterReport, ClusterState
from gitops_ds.kube.apimachinery import timestamps
from tests import controlplane, gitservers
from tests.cluster import program
from tests.service import staged
from tests.service.test_service import running, settings
from tests.service.test_service import until as poll

pytestmark = [pytest.mark.controlplane, pytest.mark.system]
SOAK = 4.0  # seconds
ORDER = {
    "staging": "{}\n",
    "eu-1": f"after: {{clusters: [staging], soak: {SOAK:.0f}s}}\n",
    "eu-2": "after: [eu-1]\n",
}
POLICY = """\
stages:
  - {name: canary, nodes: {count: 1}, soak: 1s}
  - {name: rest, soak: 1s, pace: {start: 2}}
limits: {atRisk: {nodes: 2, cluster: 100%}}
onFailure: {revert: {after: 15s, how: commit}}
"""
NODES = 3
PATIENCE = 600.0  # seconds


def until(holds: Any, what: Any) -> None:
    poll(holds, what, PATIENCE)


@dataclass
class Place:
    """One cluster with its service."""

    name: str
    plane: controlplane.ControlPlane
    directory: Path
    settings: str
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = ("--settings", self.settings)
        self.process, _ = self.stack.enter_context(running(self.directory, self.plane, *options))

    def kill(self) -> None:
        """`kill -9`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def tags(self) -> dict[str, float]:
        """The images of the pods, each with the first creation, in seconds since 1970."""
        result: dict[str, float] = {}
        for pod in staged.items(self.plane, "pods"):
            tag = str(pod["spec"]["containers"][0]["image"]).rpartition(":")[2]
            created = timestamps.seconds(pod["metadata"]["creationTimestamp"]) or 0.0
            result[tag] = min(created, result.get(tag, created))
        return result

    def template(self) -> str:
        items = staged.items(self.plane, "daemonsets")
        if not items:
            return ""
        containers = items[0]["spec"]["template"]["spec"]["containers"]
        return str(containers[0]["image"]).rpartition(":")[2]

    def sources(self) -> dict[str, Any]:
        """The only item of `gitops-ds sources`."""
        words = ("sources", "--kubeconfig", str(self.plane.kubeconfig))
        (item,) = run(self.directory, *words, "--state-namespace", "service-test")["items"]
        return dict(item)


def run(directory: Path, *words: str, **variables: str) -> Any:
    """The JSON of a command."""
    own = {
        **gitservers.GIT_ENVIRONMENT,
        "GITOPS_DS_CACHE": str(directory / "cache-of-commands"),
        **variables,
    }
    ended = program.in_this_process((*words, "-o", "json"), directory, own)
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


@dataclass
class World:
    """The clusters, and the repository on its server."""

    server: gitservers.HttpServer
    upstream: gitservers.Upstream
    places: dict[str, Place]

    def commit(self, tag: str) -> str:
        files = staged.files(tag, POLICY)
        del files["clusters/test.yaml"]
        files |= {f"clusters/{name}.yaml": text for name, text in ORDER.items()}
        return self.upstream.commit(files, f"Agent {tag}")

    def report(self, name: str) -> ClusterReport:
        ref = f"refs/gitops-ds/clusters/{name}:cluster.json"
        return cluster_report.decode(self.upstream.git("show", ref).encode())

    def clusters(self) -> dict[str, Any]:
        """`gitops-ds get --all-clusters`, by name."""
        login = {
            "GITOPS_DS_GIT_USER": self.server.user,
            "GITOPS_DS_GIT_PASSWORD": self.server.password,
            "GITOPS_DS_GIT_CA_FILE": str(self.server.root.parent / "ca"),
        }
        words = ("get", "--all-clusters", "-C", f"{self.server.url}/fleet")
        items = run(self.server.root.parent, *words, **login)["items"]
        return {item["cluster"]: item for item in items}

    def templates(self) -> list[str]:
        return [place.template() for place in self.places.values()]

    def logs(self) -> str:
        return "\n".join(f"== {place.name}\n{place.log[-3000:]}" for place in self.places.values())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(gitservers.http_git_server(tmp_path / "git"))
        (tmp_path / "token").write_text(server.password)
        (tmp_path / "ca").write_bytes(server.authority)

        def place(name: str) -> Place:
            directory = tmp_path / name
            directory.mkdir()
            # The last cluster of the order needs no right to push.
            groups = settings_of(server, tmp_path, name, push=name != "eu-2")
            _, file = settings(directory, **groups)
            plane = stack.enter_context(staged.plane_with(directory, NODES))
            return Place(name, plane, directory, file)

        # A control plane ends with the thread that started it.
        pool = stack.enter_context(ThreadPoolExecutor(len(ORDER)))
        places = list(pool.map(place, ORDER))
        for one in places:
            stack.enter_context(one.stack)
        yield World(server, server.repository("fleet"), {one.name: one for one in places})


def settings_of(
    server: gitservers.HttpServer, directory: Path, name: str, *, push: bool
) -> dict[str, Any]:
    return {
        "repository": {
            "url": f"{server.url}/fleet",
            "interval": "1s",
            "retryInterval": "1s",
            "push": push,
            "credentials": {
                "username": server.user,
                "tokenFile": str(directory / "token"),
                "caFile": str(directory / "ca"),
            },
        },
        "cluster": {"name": name},
    }


def test_a_commit_reaches_three_control_planes_and_a_bad_one_only_the_first(
    world: World,
) -> None:
    first = world.commit("1")
    for place in world.places.values():
        place.start()
    until(lambda: world.templates() == ["1"] * 3, world.logs)
    until(lambda: world.report("eu-1").applied == first, world.logs)
    _a_service_is_killed_between_the_waves(world)
    _a_bad_commit_is_reverted_in_the_first_cluster(world)
    for place in world.places.values():
        assert "Traceback" not in place.log, place.log


def _a_service_is_killed_between_the_waves(world: World) -> None:
    staging, eu1, eu2 = world.places.values()
    second = world.commit("2")
    until(lambda: "2" in staging.tags(), world.logs)
    eu1.kill()
    until(lambda: second in world.report("staging").passed(SOAK), world.logs)
    assert [place.template() for place in (eu1, eu2)] == ["1", "1"]
    waits = f"commit {second[:12]} waits for cluster eu-1: it has commit"
    until(lambda: waits in eu2.sources()["message"], world.logs)
    assert eu2.sources()["condition"] == "Waiting"
    eu1.start()
    until(lambda: world.templates() == ["2"] * 3, world.logs)
    until(lambda: eu2.sources()["appliedCommit"] == second, world.logs)
    # The times of pods are whole seconds.
    for before, after, soak in ((staging, eu1, SOAK), (eu1, eu2, 0.0)):
        (proof,) = (one for one in world.report(before.name).proved if one.commit == second)
        assert proof.at + soak <= after.tags()["2"] + 1
    assert "eu-2" not in world.upstream.git("for-each-ref", "refs/gitops-ds")
    until(lambda: world.clusters()["eu-1"]["state"] == "Proved", world.logs)
    clusters = world.clusters()
    assert [(cluster["wave"], cluster["appliedCommit"]) for cluster in clusters.values()] == [
        (1, second),
        (2, second),
        (3, ""),
    ]
    assert clusters["eu-2"]["state"] == "Unknown"


def _a_bad_commit_is_reverted_in_the_first_cluster(world: World) -> None:
    staging, eu1, eu2 = world.places.values()
    bad = world.commit("broken")
    until(lambda: world.report("staging").state is ClusterState.FAILED, world.logs)
    reason = f"commit {bad[:12]} waits for cluster staging: it failed: "
    revert = 'Revert "Agent broken"'
    until(lambda: world.upstream.git("log", "-1", "--format=%s", "main") == revert, world.logs)
    tip = world.upstream.git("rev-parse", "main")
    for place in (staging, eu1, eu2):
        until(lambda place=place: place.sources()["appliedCommit"] == tip, world.logs)
    assert reason in eu1.log
    assert world.templates() == ["2"] * 3
    for place in (eu1, eu2):
        assert "updated DaemonSet" not in place.log.partition(bad[:12])[2]
        assert set(place.tags()) == {"2"}
    until(lambda: world.report("staging").state is ClusterState.PROVED, world.logs)
