"""Measured gates with the installed service, a real control plane with the built-in DaemonSet
controller, and a real Prometheus.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import controlplane, gitservers
from tests.rollouts import prometheus
from tests.rollouts.prometheus import Exporter, Prometheus
from tests.service import staged
from tests.service.staged import CANARIES, PodWatch, Soaks
from tests.service.test_service import PROGRAM, running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.controlplane,
    pytest.mark.system,
    pytest.mark.metrics,
    pytest.mark.xdist_group("staged"),
]
NODES, QUICK = 9, Soaks(canary=2)
# Of the new pods alone: a value of the earlier pod of a node would pass until the next scrape.
QUERY = 'max by (node) (agent_errors{version="%s", node=~"$nodes"})'


@dataclass
class Fleet:
    """The parts of a scene."""

    plane: controlplane.ControlPlane
    server: gitservers.HttpServer
    upstream: gitservers.Upstream
    metrics: Prometheus
    exporter: Exporter
    directory: Path

    def commit(self, tag: str) -> str:
        policy = json.loads(staged.policy(QUICK))
        policy["stages"][0]["gates"] = ["pods", "nodes", "errors"]
        policy["gates"] = {"errors": {"prometheus": QUERY % tag, "below": 5, "for": "2s"}}
        policy["onFailure"] = {"revert": {"after": "0s"}}
        return self.upstream.commit(staged.files(tag, json.dumps(policy)), f"Agent {tag}")

    def settings(self) -> str:
        """A service that follows the repository, may push to it, and measures each second."""
        (self.directory / "token").write_text(self.server.password)
        (self.directory / "ca").write_bytes(self.server.authority)
        credentials = {
            "username": self.server.user,
            "tokenFile": str(self.directory / "token"),
            "caFile": str(self.directory / "ca"),
        }
        repository: dict[str, Any] = {
            "url": f"{self.server.url}/fleet",
            "interval": "1s",
            "credentials": credentials,
            "push": True,
        }
        metrics = {"prometheus": {"url": self.metrics.url}, "interval": "1s"}
        file = self.directory / "settings.yaml"
        file.write_text(json.dumps({"repository": repository, "metrics": metrics}))
        return str(file)

    def status(self) -> Any:
        """What the program shows of the rollout, in a process of its own."""
        command = (PROGRAM, "status", "ds/agent", "-n", "default", "-o", "json")
        options = ("--kubeconfig", str(self.plane.kubeconfig), "--state-namespace", staged.STATES)
        done = subprocess.run(
            (*command, *options),
            env=gitservers.GIT_ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.stdout, done.stderr
        return json.loads(done.stdout)["rollout"]

    def last_message(self) -> str:
        return self.upstream.git("log", "-1", "--format=%B", "main")


def test_a_template_that_is_bad_in_a_metric_only_is_reverted_and_no_data_holds(
    tmp_path: Path,
) -> None:
    with (
        staged.plane_with(tmp_path, NODES) as plane,
        gitservers.http_git_server(tmp_path / "git") as server,
        prometheus.scraped(tmp_path / "prometheus") as (metrics, exporter),
    ):
        upstream = server.repository("fleet")
        fleet = Fleet(plane, server, upstream, metrics, exporter, tmp_path)
        fleet.commit("1")
        with running(tmp_path, plane, "--settings", fleet.settings()) as (process, log):
            asyncio.run(_scene(fleet, log))
            assert process.poll() is None
            assert "Traceback" not in log.read_text()


async def _scene(fleet: Fleet, log: Path) -> None:
    async with staged.watching(fleet.plane, QUICK) as watch:
        fleet.exporter.text = lambda: _errors(watch)
        await watch.until(lambda: len(watch.on("1")) == NODES, log)
        await asyncio.to_thread(fleet.metrics.until_scraped, "agent_errors")
        await _a_good_commit(fleet, watch, log)
        await _a_bad_commit(fleet, watch, log)
        await _no_data(fleet, watch, log)


def _errors(watch: PodWatch) -> str:
    """Each ready pod reports its errors; those of the bad image have nine."""
    pods = [(tag, pod.node) for tag, pod in list(watch.pods.values()) if pod.ready]
    return "".join(
        f'agent_errors{{version="{tag}",node="{node}"}} {9 if tag == "bad" else 1}\n'
        for tag, node in sorted(set(pods))
    )


async def _a_good_commit(fleet: Fleet, watch: PodWatch, log: Path) -> None:
    watch.expect("2")
    fleet.commit("2")
    await watch.until(lambda: len(watch.on("2")) == NODES, log)
    await staged.until(lambda: staged.tag_of(fleet.plane) == "2", log.read_text)
    assert not watch.wrong, watch.wrong[:5]


async def _a_bad_commit(fleet: Fleet, watch: PodWatch, log: Path) -> None:
    before = watch.uids("2")
    watch.expect("bad")
    fleet.commit("bad")
    await staged.until(lambda: "halted in stage canary" in log.read_text(), log.read_text)
    await staged.until(lambda: 'Revert "Agent bad"' in fleet.last_message(), log.read_text)
    watch.expect("")
    await watch.until(lambda: len(watch.on("2")) == NODES and not watch.uids("bad"), log)
    assert 0 < len(before - watch.uids("2")) <= CANARIES
    message = fleet.last_message()
    assert "gate errors failed: 9 (" in message
    for fact in (f"- query: {QUERY % 'bad'}", "- value: 9", "- bound: below 5", "- nodes: node-0"):
        assert fact in message


async def _no_data(fleet: Fleet, watch: PodWatch, log: Path) -> None:
    fleet.exporter.text = str
    await staged.until(lambda: not fleet.metrics.query("agent_errors"), log.read_text)
    watch.expect("3")
    commit = fleet.commit("3")
    await staged.until(lambda: _holds(fleet, commit), log.read_text)
    await watch.until(lambda: bool(watch.on("3")), log)
    await watch.quiet(5)
    assert len(watch.uids("3")) == 1
    assert _holds(fleet, commit)
    fleet.exporter.text = lambda: _errors(watch)
    await watch.until(lambda: len(watch.on("3")) == NODES, log)
    assert not watch.wrong, watch.wrong[:5]


def _holds(fleet: Fleet, commit: str) -> bool:
    """Whether the rollout of a commit holds for want of data, until a time."""
    rollout = fleet.status()
    if rollout is None or rollout["commit"] != commit or rollout["hold"] is None:
        return False
    hold = rollout["hold"]
    reason = "gate errors has no data: the query has no result"
    return rollout["halt"] is None and hold["reason"] == reason and hold["until"] is not None
