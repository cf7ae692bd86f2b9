"""The installed service reverts the commit of a halted rollout on a real git server.

The API server is real. The record of the halt, and its digest in the state, are written as the
service writes them, while it does not run.
"""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gitops_ds.core import names
from gitops_ds.core.rollouts.staged_rollout import FailedNode, Halt, RolloutRecord
from gitops_ds.rollouts.state import attested_records, keys, rollout_ledger
from tests import controlplane, gitservers
from tests.plan.world import daemonset
from tests.service.test_service import running, settings, until

pytestmark = [pytest.mark.controlplane, pytest.mark.system]
_numbers = itertools.count()
# It never becomes ready, so no stage passes.
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "revert-node"}}


@dataclass
class Fleet:
    """A repository on a git server, its agent in a namespace, and the settings of the service."""

    plane: controlplane.ControlPlane
    server: gitservers.HttpServer
    upstream: gitservers.Upstream
    directory: Path
    space: str

    def files(self, tag: int, policy: str) -> dict[str, str]:
        body = daemonset("agent", image(tag), self.space)
        return {
            "gitops-ds.yaml": f"version: v1\nname: {self.space}\n",
            "agents/agent/agent-ds.yaml": json.dumps(body, indent=2),
            "agents/agent/rollout.yaml": policy,
        }

    def settings(self, **more: Any) -> str:
        repository = {
            "url": f"{self.server.url}/fleet",
            "interval": "1s",
            "retryInterval": "1s",
            "credentials": self.server.credentials(self.directory),
            **more,
        }
        return settings(self.directory, repository=repository)[1]

    def image(self) -> str:
        items = self.plane.items(self.space, "daemonsets")
        return str(items[0]["spec"]["template"]["spec"]["containers"][0]["image"]) if items else ""

    def annotations(self) -> dict[str, str]:
        return dict(self.plane.read(self.space, "daemonsets", "agent")["metadata"]["annotations"])

    def targets(self) -> list[dict[str, Any]]:
        return self.plane.items(self.space, "controllerrevisions", labelSelector=names.ROLLOUT)

    def halt(self) -> str:
        """Records a halt on the only target revision; returns the commit."""
        (target,) = self.targets()
        nodes = (FailedNode("revert-node", "CrashLoopBackOff", "agent exited with 1"),)
        halt = Halt(time.time(), "canary", "CrashLoopBackOff on revert-node", nodes)
        record = msgspec.json.encode(RolloutRecord(began=1.0, halt=halt)).decode()
        name, metadata = target["metadata"]["name"], target["metadata"]
        self.plane.kubectl(
            *("-n", self.space, "annotate", "--overwrite", "controllerrevision", name),
            f"{keys.ROLLOUT_RECORD}={record}",
        )
        digests = attested_records.digests_of(keys.ROLLOUT_RECORD, record)
        key = attested_records.key_of(metadata["uid"], keys.ROLLOUT_RECORD)
        self.plane.kubectl(
            *("-n", "service-test", "patch", "configmap", rollout_ledger.CONFIG_MAP_NAME),
            *("--type=merge", "-p", json.dumps({"data": {key: " ".join(sorted(digests))}})),
        )
        return str(metadata["annotations"][names.COMMIT])

    def is_begun(self) -> bool:
        """Whether a rollout has its first record."""
        return any(
            keys.ROLLOUT_RECORD in target["metadata"]["annotations"] for target in self.targets()
        )

    def log(self) -> list[str]:
        return self.upstream.git("log", "--format=%s", "main").splitlines()


def image(tag: int) -> str:
    return f"registry.example.com/agent:{tag}"


def policy(after: str = "0s", how: str = "commit") -> str:
    revert = f"{{after: {after}, how: {how}}}"
    return f"stages: [canary, rest]\nonFailure: {{revert: {revert}}}\n"


@pytest.fixture
def fleet(tmp_path: Path, api_server: controlplane.ControlPlane) -> Any:
    space = f"revert-{next(_numbers)}"
    api_server.kubectl("create", "namespace", space)
    (tmp_path / "node.json").write_text(json.dumps(NODE))
    api_server.kubectl("create", "-f", str(tmp_path / "node.json"))
    try:
        with gitservers.http_git_server(tmp_path / "git") as server:
            yield Fleet(api_server, server, server.repository("fleet"), tmp_path, space)
    finally:
        api_server.kubectl("delete", "node", "revert-node")
        api_server.kubectl("delete", "namespace", space, "--wait=false")


def test_a_halted_rollout_is_reverted_by_a_commit_and_its_template_stays_on_hold(
    fleet: Fleet,
) -> None:
    fleet.upstream.commit(fleet.files(1, policy()), "Agent 1")
    options = ("--settings", fleet.settings(push=True))
    with running(fleet.directory, fleet.plane, *options) as (_, log):
        until(lambda: fleet.image() == image(1), log.read_text)
        bad = fleet.upstream.commit(fleet.files(2, policy()), "Agent 2")
        until(fleet.is_begun, log.read_text)
    assert fleet.halt() == bad
    with running(fleet.directory, fleet.plane, *options) as (_, log):
        until(lambda: fleet.log()[0] == 'Revert "Agent 2"', log.read_text)
        message = fleet.upstream.git("log", "-1", "--format=%B", "main")
        assert f"Gitops-Ds-Reverts: {bad}" in message
        assert "CrashLoopBackOff on revert-node" in message
        assert "- revert-node: CrashLoopBackOff: agent exited with 1" in message
        trailer = fleet.upstream.git("log", "-1", "--format=%(trailers:only)", "main")
        assert trailer == f"Gitops-Ds-Reverts: {bad}"
        until(lambda: not fleet.targets(), log.read_text)
        assert fleet.image() == image(1)
        assert "RevertCommitted" in fleet.plane.kubectl("-n", fleet.space, "get", "events")

    fleet.upstream.git("reset", "--quiet", "--hard")
    with running(fleet.directory, fleet.plane, *options) as (_, log):
        fleet.upstream.commit(fleet.files(2, policy()), "Agent 2, once more")
        until(lambda: len(fleet.targets()) == 1, log.read_text)
        until(lambda: "this template was halted before" in log.read_text(), log.read_text)
        assert bad in fleet.annotations()[keys.HALTED]
        assert fleet.image() == image(1)
        assert fleet.log()[0] == "Agent 2, once more"
        assert "Traceback" not in log.read_text()


def test_the_revert_waits_for_its_time_and_for_git(fleet: Fleet) -> None:
    fleet.upstream.commit(fleet.files(1, policy("5s")), "Agent 1")
    options = ("--settings", fleet.settings(push=True))
    with running(fleet.directory, fleet.plane, *options) as (_, log):
        until(lambda: fleet.image() == image(1), log.read_text)
        fleet.upstream.commit(fleet.files(2, policy("5s")), "Agent 2")
        until(fleet.is_begun, log.read_text)
        hook = fleet.upstream.path / "hooks/pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\necho read-only for a while >&2\nexit 1\n")
        hook.chmod(0o755)
    fleet.halt()
    halted = time.monotonic()
    with running(fleet.directory, fleet.plane, *options) as (_, log):
        until(lambda: "read-only for a while" in log.read_text(), log.read_text)
        assert time.monotonic() - halted > 4
        assert fleet.log() == ["Agent 2", "Agent 1"]
        hook.unlink()
        until(lambda: fleet.log()[0] == 'Revert "Agent 2"', log.read_text)
        until(lambda: not fleet.targets(), log.read_text)
        assert log.read_text().count("is not reverted") == 1
