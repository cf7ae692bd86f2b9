"""The commands that steer a service, from outside, on a real API server: its answers, its pauses,
its errors.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import controlplane, gitservers
from tests.cluster import program
from tests.service.test_following import agent, image, runs
from tests.service.test_service import read, running, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.controlplane,
    pytest.mark.system,
]


@dataclass
class Scene:
    """A service that looks at Git once an hour, and a person beside it."""

    directory: Path
    plane: controlplane.ControlPlane
    space: str
    upstream: gitservers.Upstream
    url: str
    log: Path

    def execute(self, *words: str, here: bool = True) -> subprocess.CompletedProcess[str]:
        where = ("-C", self.url) if here else ()
        connection = (
            "--kubeconfig",
            str(self.plane.kubeconfig),
            "--state-namespace",
            f"{self.space}-home",
        )
        environment: Mapping[str, str] = {
            **gitservers.GIT_ENVIRONMENT,
            "GITOPS_DS_CACHE": str(self.directory / "desk"),
        }
        ended = program.in_this_process((*words, *where, *connection), self.directory, environment)
        return subprocess.CompletedProcess(words, ended.code, ended.out, ended.err)

    def output_of(self, *words: str) -> str:
        done = self.execute(*words)
        assert done.returncode == 0, done.stderr + self.log.read_text()
        assert "Traceback" not in done.stderr
        return done.stdout

    def runs(self) -> str:
        return runs(self.plane, self.space)

    def log_text(self) -> str:
        return self.log.read_text()


@contextlib.contextmanager
def service(
    directory: Path, plane: controlplane.ControlPlane, space: str, **settings: object
) -> Iterator[Scene]:
    with gitservers.http_git_server(directory / "git") as server:
        upstream = server.repository("fleet")
        upstream.commit(agent(space, 1))
        url = f"{server.url}/fleet"
        file = directory / "settings.yaml"
        document = {
            "repository": {
                "url": url,
                "interval": "1h",
                "retryInterval": "1s",
                "credentials": server.credentials(directory),
            },
            "cluster": {"namespace": f"{space}-home"},
            **settings,
        }
        file.write_text(json.dumps(document))
        with running(
            directory, plane, "--state-namespace", f"{space}-home", "--settings", str(file)
        ) as (_, log):
            scene = Scene(directory, plane, space, upstream, url, log)
            until(lambda: scene.runs() == image(1), scene.log_text)
            until(lambda: "is applied" in scene.log_text(), scene.log_text)
            yield scene
            assert "Traceback" not in scene.log_text()


def test_a_reconciliation_is_requested_and_its_outcome_reported(
    tmp_path: Path, api_server: controlplane.ControlPlane, space: str
) -> None:
    with service(tmp_path, api_server, space) as scene:
        commit = scene.upstream.commit(agent(space, 2))
        # the pass that looks back on the first one may have found it already
        output = scene.output_of("reconcile", "--wait")
        assert re.fullmatch(
            f"success: commit {commit[:12]} is (unchanged|applied: [01] written)\n", output
        ), output
        assert scene.runs() == image(2)
        assert scene.output_of("reconcile").startswith("reconciliation of ")

        bad = scene.upstream.commit({"agent.json": "{"})
        refused = scene.execute("reconcile", "--wait", "-o", "json")
        assert refused.returncode == 1
        document = json.loads(refused.stdout)
        assert document["kind"] == "Steering"
        assert document["outcome"].startswith(f"failure: commit {bad[:12]} is not applied")
        assert document["handledAt"] == document["requestedAt"] != ""


def test_what_a_person_requests_of_a_service_is_done_until_it_is_taken_back(
    tmp_path: Path, api_server: controlplane.ControlPlane, space: str
) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{space}"}}
    (tmp_path / "node.json").write_text(json.dumps(node))
    api_server.kubectl("apply", "-f", str(tmp_path / "node.json"))
    guards = {"prune": True, "guards": {"maxNodesLost": 0}}
    with service(tmp_path, api_server, space, apply=guards) as scene:
        _a_pause_and_a_held_commit(scene)
        _one_agent_pauses(scene)
        _a_plan_is_approved(scene)


def _a_pause_and_a_held_commit(scene: Scene) -> None:
    assert "nothing is written" in scene.output_of("suspend")
    second = scene.upstream.commit(agent(scene.space, 2))
    waiting = scene.execute("reconcile", "--wait")
    assert (waiting.returncode, waiting.stdout) == (
        1,
        f"suspended: 1 change of commit {second[:12]} not applied\n",
    )
    assert scene.runs() == image(1)
    scene.output_of("resume")
    until(lambda: scene.runs() == image(2), scene.log_text)

    scene.output_of("suspend")
    third = scene.upstream.commit(agent(scene.space, 3))
    assert json.loads(scene.output_of("hold", third[:12], "-o", "json"))["hold"] == [third[:12]]
    scene.output_of("resume")
    assert scene.execute("reconcile", "--wait").stdout.startswith(
        f"failure: commit {third[:12]} is not applied; the last good one stays"
    )
    assert scene.runs() == image(2)
    scene.output_of("release", third)
    until(lambda: scene.runs() == image(3), scene.log_text)
    again = scene.execute("release", third)
    assert (again.returncode, "is not on hold" in again.stderr) == (1, True)


def _one_agent_pauses(scene: Scene) -> None:
    scene.output_of("suspend", "ds/agent", "-n", scene.space)
    scene.upstream.commit(agent(scene.space, 4))
    assert "is suspended (`gitops-ds resume agent`)" in scene.output_of("reconcile", "--wait")
    assert scene.runs() == image(3)
    scene.output_of("resume", "agent", "-n", scene.space)
    until(lambda: scene.runs() == image(4), scene.log_text)
    missing = scene.execute("suspend", "absent", "-n", scene.space)
    assert (missing.returncode, "not found" in missing.stderr) == (3, True)


def _a_plan_is_approved(scene: Scene) -> None:
    kept = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kept", "namespace": scene.space},
    }
    scene.upstream.commit({"agent.json": json.dumps(kept)})
    refused = scene.output_of("reconcile", "--wait")
    assert "approve" in refused
    assert scene.runs() == image(4)
    (hash,) = re.findall(r"\b[0-9a-f]{16}-\d+", refused)
    scene.output_of("approve", "0" * 16)
    scene.output_of("reconcile", "--wait")
    assert scene.runs() == image(4)
    scene.output_of("approve", hash)
    until(lambda: scene.runs() == "", scene.log_text)


def test_a_request_without_one_matching_state_is_an_error(
    tmp_path: Path, api_server: controlplane.ControlPlane, space: str
) -> None:
    no_server: Any = None
    unknown = Scene(
        tmp_path, api_server, space, no_server, "https://git.example.com/fleet", tmp_path / "log"
    )
    for words in (
        ("reconcile",),
        ("suspend",),
        ("resume",),
        ("approve", "0" * 16),
        ("hold", "a" * 40),
        ("release", "a" * 40),
    ):
        done = unknown.execute(*words)
        assert (done.returncode, done.stdout) == (3, ""), words
        assert f"no state is in namespace {space}-home" in done.stderr
    for words in (("approve", "what?"), ("hold", "a..b"), ("release", "HEAD:file")):
        assert unknown.execute(*words).returncode == 2, words

    for number in (1, 2):  # what `apply` leaves, of two repositories
        directory = tmp_path / f"repository-{number}"
        directory.mkdir()
        for name, text in agent(space, number).items():
            (directory / name).write_text(text.replace('"agent"', f'"agent-{number}"'))
        for git in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "one")):
            subprocess.run(
                ("git", "-C", str(directory), *git), env=gitservers.GIT_ENVIRONMENT, check=True
            )
        done = unknown.execute("apply", str(directory), here=False)
        assert done.returncode == 0, done.stderr
    several = unknown.execute("reconcile", here=False)
    assert (several.returncode, "choose one with -C or --id" in several.stderr) == (2, True)
    other = unknown.execute("reconcile", "--id", "unknown", here=False)
    assert (other.returncode, "no state unknown" in other.stderr) == (3, True)
    elsewhere = unknown.execute("reconcile")
    assert (
        elsewhere.returncode,
        "no service follows https://git.example.com/fleet" in elsewhere.stderr,
    ) == (3, True)
    late = unknown.execute(
        "reconcile", "--wait", "--timeout", "1s", "-C", str(tmp_path / "repository-1"), here=False
    )
    assert (late.returncode, "not answered after 1 seconds" in late.stderr) == (1, True)


def test_a_webhook_that_reaches_the_standby_is_forwarded(
    tmp_path: Path, api_server: controlplane.ControlPlane, space: str
) -> None:
    election = {"enabled": True}
    with service(tmp_path, api_server, space, election=election) as scene:
        port, beside = controlplane.free_port(), tmp_path / "standby"
        beside.mkdir()
        (beside / "secret").write_text("a long random secret\n")
        listen = {"address": f"127.0.0.1:{port}", "webhook": {"secretFile": str(beside / "secret")}}
        file = beside / "settings.yaml"
        file.write_text(
            json.dumps({**json.loads((tmp_path / "settings.yaml").read_text()), "listen": listen})
        )
        with running(
            beside, api_server, "--state-namespace", f"{space}-home", "--settings", str(file)
        ) as (_, log):
            probe = f"http://127.0.0.1:{port}/readyz"
            until(lambda: "on standby: " in log.read_text() and bool(read(probe)), log.read_text)
            commit = scene.upstream.commit(agent(space, 2))
            headers = {"Authorization": "Bearer a long random secret"}
            body = json.dumps({"repository": scene.url, "commit": commit}).encode()
            hook = urllib.request.Request(
                f"http://127.0.0.1:{port}/hook", body, headers, method="POST"
            )
            with urllib.request.urlopen(hook, timeout=60) as reply:
                assert reply.status == 202
            until(lambda: scene.runs() == image(2), lambda: scene.log_text() + log.read_text())
            assert "another replica received a push" in scene.log_text()
            assert "Traceback" not in log.read_text()
