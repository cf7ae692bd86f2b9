"""A service whose repository and cluster are in sync sends no requests to the API server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import controlplane, gitservers
from tests.plan.world import config_map, daemonset
from tests.service.test_service import read, running, until

pytestmark = [pytest.mark.controlplane]


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[controlplane.ControlPlane]:
    """An API server on which nothing acts by itself, that writes every request into audit.log: its
    metrics don't have the user of a request.
    """
    policy = tmp_path / "audit.json"
    policy.write_text(
        json.dumps(
            {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
        )
    )
    options = ("--audit-policy-file", str(policy), "--audit-log-path", str(tmp_path / "audit.log"))
    plane = controlplane.ControlPlane(
        tmp_path / "plane", controlplane.Wanted(controllers=False, api_server_options=options)
    )
    try:
        yield plane.start()
    finally:
        plane.stop()


def requests_of(audit: Path) -> list[str]:
    """The requests of the user of the kubeconfig, without the ends of watches."""
    entries = [json.loads(line) for line in audit.read_text().splitlines()]
    ours = [
        request
        for request in entries
        if request["user"]["username"] == "admin" and request["stage"] == "RequestReceived"
    ]
    return [
        f"{request['verb']} {request['requestURI']}"
        for request in ours
        if request["verb"] != "watch"
    ]


def unchanged(port: int) -> int:
    """How many ticks ended because nothing had changed."""
    text = read(f"http://127.0.0.1:{port}/metrics")
    match = re.search(
        r'^gitopsds_reconcile_total\{result="unchanged"\} ([0-9.]+)$', text, re.MULTILINE
    )
    return int(float(match[1])) if match else 0


def test_twenty_fetches_of_an_unchanged_repository_send_the_cluster_no_request(
    tmp_path: Path, audited: controlplane.ControlPlane
) -> None:
    audited.kubectl("create", "namespace", "quiet")
    upstream = gitservers.Upstream(tmp_path / "fleet")
    files = {
        f"agent-{n}.json": json.dumps(daemonset(f"agent-{n}", namespace="quiet")) for n in range(5)
    }
    upstream.commit(
        {**files, "settings.json": json.dumps(config_map("settings", "quiet", key="value"))}
    )
    port = controlplane.free_port()
    before = len(requests_of(tmp_path / "audit.log"))
    words = ("-C", str(upstream.path), "--interval", "200ms", "--listen", f"127.0.0.1:{port}")
    with running(tmp_path, audited, *words) as (_, log):
        until(lambda: unchanged(port) >= 20, log.read_text)
        settled, ticks = requests_of(tmp_path / "audit.log"), unchanged(port)
        assert any("agent-4" in request for request in settled[before:])
        until(lambda: unchanged(port) >= ticks + 20, log.read_text)
        assert requests_of(tmp_path / "audit.log")[len(settled) :] == []
