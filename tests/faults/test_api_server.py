"""An API server that crashes, is unreachable, or is restored to an older state: the installed
service continues, and floods no server.
"""

from __future__ import annotations

import collections
import datetime
import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests import controlplane, gitservers
from tests.faults.conftest import NODES
from tests.faults.fleets import agents, image, images, there
from tests.service.test_service import following, running, settings, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.controlplane,
    pytest.mark.system,
    pytest.mark.xdist_group("faults"),
]
AGENTS = 40


def owned(plane: controlplane.ControlPlane, space: str) -> list[Any]:
    """The pods whose DaemonSet is there; what a lost one left behind is the garbage collector's,
    which this plane doesn't have.
    """
    living = {body["metadata"]["uid"] for body in there(plane, space).values()}
    items = plane.request("GET", f"/api/v1/namespaces/{space}/pods")["items"]
    return [pod for pod in items if pod["metadata"]["ownerReferences"][0]["uid"] in living]


def pods(plane: controlplane.ControlPlane, space: str) -> list[tuple[str, str]]:
    """Agent and node of each pod, sorted."""
    owned_objects = owned(plane, space)
    return sorted(
        (pod["metadata"]["ownerReferences"][0]["name"], pod["spec"].get("nodeName", ""))
        for pod in owned_objects
    )


def everywhere(count: int) -> list[tuple[str, str]]:
    return [(f"agent-{n:02d}", f"node-{node:03d}") for n in range(count) for node in range(NODES)]


def test_an_api_server_that_is_killed_in_mid_apply_gets_the_rest_when_it_is_back(
    tmp_path: Path, plane: controlplane.ControlPlane, space: str
) -> None:
    upstream = gitservers.Upstream(tmp_path / "fleet")
    upstream.commit(agents(space, AGENTS))
    with running(tmp_path, plane, "-C", str(upstream.path), "--interval", "1s") as (process, log):
        until(lambda: len(there(plane, space)) >= AGENTS // 4, log.read_text)
        plane.stop_api_server()
        # it must send a request, also if it was faster than the test
        commit = upstream.commit(agents(space, AGENTS + 1))
        until(lambda: "can't be reached" in log.read_text(), log.read_text)
        plane.start_api_server()
        survivors = there(plane, space)
        until(lambda: f"commit {commit[:12]} is applied" in log.read_text(), log.read_text)
        running_agents = there(plane, space)
        assert len(running_agents) == AGENTS + 1
        # What was there is not written again.
        versions = {
            name: body["metadata"]["generation"]
            for name, body in running_agents.items()
            if name in survivors
        }
        assert set(versions.values()) == {1}
        assert process.poll() is None
        assert "Traceback" not in log.read_text()


def requests_after(plane: controlplane.ControlPlane, since: float) -> list[float]:
    """The times of the service's later requests; seconds since 1970."""
    result = {}
    for line in plane.audit_log.read_text().splitlines():
        if '"userAgent":"gitops-ds' in line:
            entry = json.loads(line)
            result[entry["auditID"]] = datetime.datetime.fromisoformat(
                entry["requestReceivedTimestamp"]
            ).timestamp()
    return sorted(at for at in result.values() if at >= since)


def in_a_second(times: list[float]) -> int:
    """The largest number of requests within one second."""
    window: collections.deque[float] = collections.deque()
    most = 0
    for at in times:
        window.append(at)
        while window[0] <= at - 1:
            window.popleft()
        most = max(most, len(window))
    return most


def test_a_restarted_api_server_is_not_flooded_and_everything_is_in_sync_soon(
    tmp_path: Path, plane: controlplane.ControlPlane, space: str
) -> None:
    upstream = gitservers.Upstream(tmp_path / "fleet")
    first = upstream.commit(agents(space, AGENTS))
    with running(tmp_path, plane, "-C", str(upstream.path), "--interval", "1s") as (process, log):
        until(lambda: f"commit {first[:12]} is applied" in log.read_text(), log.read_text)
        until(lambda: time.time() - requests_after(plane, 0)[-1] > 3, log.read_text)
        plane.stop_api_server()
        upstream.commit(agents(space, 5, tag=2))
        time.sleep(20)  # the time away is what is tried: until the longest waits are reached
        back = time.time()
        plane.start_api_server()
        ready = time.time()
        until(lambda: list(images(plane, space).values()).count(image(2)) == 5, log.read_text)
        assert time.time() - ready < 30
        plane.request("DELETE", f"/apis/apps/v1/namespaces/{space}/daemonsets/agent-07")
        until(lambda: len(there(plane, space)) == AGENTS, log.read_text)
        assert in_a_second(requests_after(plane, back)) <= 20
        assert process.poll() is None


def refused_twice(log: str) -> bool:
    """Whether two requests of each watch of the controller were refused in an outage."""
    refused = collections.Counter(
        kind for kind, why in re.findall(r"watch of (\w+) failed: (.*)", log) if "refused" in why
    )
    kinds = ("daemonsets", "controllerrevisions", "nodes", "pods")
    return all(refused[kind] >= 2 for kind in kinds)


@pytest.mark.parametrize("writes", [0, 1500])  # its versions are then behind, or ahead
def test_a_cluster_that_is_restored_from_a_backup_is_brought_up_to_date(
    tmp_path: Path, plane: controlplane.ControlPlane, space: str, writes: int
) -> None:
    upstream = gitservers.Upstream(tmp_path / "fleet")
    direct = {"powers": "full", "scheduling": "direct"}
    options = settings(tmp_path, repository=following(upstream), controller=direct)
    upstream.commit(agents(space, 2))
    with running(tmp_path, plane, *options) as (process, log):
        until(lambda: pods(plane, space) == everywhere(2), log.read_text)
        plane.backup(tmp_path / "backup")
        for tag in range(2, 7):  # so that the world gets well ahead of its backup
            upstream.commit(agents(space, 4, tag))
            until(lambda tag=tag: set(images(plane, space).values()) == {image(tag)}, log.read_text)  # type: ignore[misc]
        until(lambda: pods(plane, space) == everywhere(4), log.read_text)
        before = {name: body["metadata"]["uid"] for name, body in there(plane, space).items()}
        plane.stop_api_server()
        # The second refused request of these is later than the first of every other watch.
        until(lambda: refused_twice(log.read_text()), log.read_text)
        process.send_signal(signal.SIGSTOP)  # the writes of others come first
        plane.restore(tmp_path / "backup")
        for n in range(writes):
            labels = {"metadata": {"labels": {"number": str(n)}}}
            plane.request(
                "PATCH", f"/api/v1/namespaces/{space}", labels, "application/merge-patch+json"
            )
        process.send_signal(signal.SIGCONT)
        until(lambda: set(images(plane, space).values()) == {image(6)}, log.read_text)
        until(lambda: pods(plane, space) == everywhere(4), log.read_text)
        after = {name: body["metadata"]["uid"] for name, body in there(plane, space).items()}
        # the others were lost
        assert {name for name in after if after[name] == before[name]} == {"agent-00", "agent-01"}
        # No watch is silent: what happens now is seen, though its version is one that was seen
        # before.
        patch = {
            "spec": {"template": {"spec": {"containers": [{"name": "agent", "image": image(99)}]}}}
        }
        path = f"/apis/apps/v1/namespaces/{space}/daemonsets/agent-01"
        plane.request("PATCH", path, patch, "application/strategic-merge-patch+json")
        until(lambda: images(plane, space)["agent-01"] == image(6), log.read_text)
        gone = owned(plane, space)[0]["metadata"]["name"]
        plane.request("DELETE", f"/api/v1/namespaces/{space}/pods/{gone}?gracePeriodSeconds=0")
        until(lambda: pods(plane, space) == everywhere(4), log.read_text)
        assert process.poll() is None
        assert "Traceback" not in log.read_text()
