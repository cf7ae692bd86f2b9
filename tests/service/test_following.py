"""The installed service follows a repository on a real git server, through faults of the server and
of the cluster.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import controlplane, gitservers
from tests.plan.world import daemonset
from tests.service.test_service import PROGRAM, running, until

pytestmark = [
    pytest.mark.controlplane,
    pytest.mark.system,
]


def agent(space: str, tag: int) -> dict[str, str]:
    return {"agent.json": json.dumps(daemonset("agent", image(tag), space), indent=2)}


def image(tag: int) -> str:
    return f"registry.example.com/agent:{tag}"


def runs(plane: controlplane.ControlPlane, space: str) -> str:
    return " ".join(
        body["spec"]["template"]["spec"]["containers"][0]["image"]
        for body in plane.items(space, "daemonsets")
    )


def settings(directory: Path, url: str, **credentials: str | bytes) -> Path:
    """A settings file for a repository; every credential but the user is a file beside it."""
    paths: dict[str, str] = {}
    for name, content in credentials.items():
        paths[name] = str(content)
        if isinstance(content, bytes):
            paths[name] = str(directory / name)
            (directory / name).write_bytes(content)
            (directory / name).chmod(0o600)
    file = directory / "settings.yaml"
    file.write_text(
        json.dumps(
            {
                "repository": {
                    "url": url,
                    "interval": "1s",
                    "retryInterval": "1s",
                    "credentials": paths,
                }
            }
        )
    )
    return file


def test_the_service_follows_an_https_server_through_good_and_bad_commits(
    tmp_path: Path, api_server: controlplane.ControlPlane, space: str
) -> None:
    with gitservers.http_git_server(tmp_path / "git") as server:
        upstream = server.repository("fleet")
        first = upstream.commit(agent(space, 1))
        file = settings(tmp_path, f"{server.url}/fleet", **server.credentials(tmp_path))
        with running(tmp_path, api_server, "--settings", str(file)) as (_, log):
            until(lambda: runs(api_server, space) == image(1), log.read_text)
            upstream.commit(agent(space, 2))
            until(lambda: runs(api_server, space) == image(2), log.read_text)

            bad = upstream.commit(
                {
                    "agent.json": json.dumps(daemonset("agent", image(3), space)).replace(
                        '{"containers"', '\n{"nope"'
                    )
                }
            )
            until(
                lambda: f"commit {bad[:12]} is not applied: agent.json:2:1: " in log.read_text(),
                log.read_text,
            )
            before = len(server.requests)
            until(lambda: len(server.requests) > before + 6, log.read_text)
            # that it is there, and what is wrong with it
            assert log.read_text().count(bad[:12]) == 2
            assert runs(api_server, space) == image(2)

            # The last good commit stays the one to be kept.
            api_server.kubectl("-n", space, "set", "image", "ds/agent", f"agent={image(9)}")
            until(lambda: runs(api_server, space) == image(2), log.read_text)

            upstream.git("reset", "--quiet", "--hard", first)
            forced = upstream.commit(agent(space, 4), "another future")
            until(lambda: runs(api_server, space) == image(4), log.read_text)
            assert (
                f"new commit {forced[:12]} 'another future' by Ada <ada@example.com> (the branch "
                "was rewritten" in log.read_text()
            )
            assert "Traceback" not in log.read_text()


def test_a_service_that_starts_while_git_is_away_keeps_the_last_commit_applied_from_its_cache(
    tmp_path: Path, api_server: controlplane.ControlPlane, space: str
) -> None:
    def sources() -> str:
        words = (
            "sources",
            "-o",
            "wide",
            "--kubeconfig",
            str(api_server.kubeconfig),
            "--state-namespace",
            "service-test",
        )
        return subprocess.run((PROGRAM, *words), capture_output=True, text=True, check=True).stdout

    with gitservers.http_git_server(tmp_path / "git") as server:
        upstream = server.repository("fleet")
        named = f"version: v1\nname: {space}\nmanifests: ['*.json']\n"
        commit = upstream.commit({**agent(space, 1), "gitops-ds.yaml": named})
        file = settings(tmp_path, f"{server.url}/fleet", **server.credentials(tmp_path))
        with running(tmp_path, api_server, "--settings", str(file)) as (_, log):
            until(lambda: runs(api_server, space) == image(1), log.read_text)
            until(lambda: f"commit {commit[:12]} is applied" in sources(), log.read_text)
    lost = (
        f"the last applied commit, {commit[:12]}, is not in the local copy, so drift is not "
        "corrected"
    )
    for has_cache in (True, False):
        if not has_cache:
            shutil.rmtree(tmp_path / "cache")
        with running(tmp_path, api_server, "--settings", str(file)) as (_, log):
            until(lambda: "next attempt in" in log.read_text(), log.read_text)
            api_server.kubectl("-n", space, "delete", "daemonset", "agent")
            if has_cache:
                until(lambda: runs(api_server, space) == image(1), log.read_text)
            else:
                until(lambda: lost in sources(), lambda: sources() + log.read_text())
                assert runs(api_server, space) == ""
            until(
                lambda: f"{space}  " in sources() and "Unreachable" in sources(),
                lambda: sources() + log.read_text(),
            )
            assert "Traceback" not in log.read_text()


def test_the_service_follows_an_ssh_server_with_the_keys_of_its_settings(
    tmp_path: Path, api_server: controlplane.ControlPlane, space: str
) -> None:
    with gitservers.ssh_git_server(tmp_path / "git") as server:
        upstream = server.repository("fleet")
        upstream.commit(agent(space, 1))
        file = settings(
            tmp_path, server.url("fleet"), sshKeyFile=server.key, knownHostsFile=server.known_hosts
        )
        with running(tmp_path, api_server, "--settings", str(file)) as (_, log):
            until(lambda: runs(api_server, space) == image(1), log.read_text)
            upstream.commit(agent(space, 2))
            until(lambda: runs(api_server, space) == image(2), log.read_text)
