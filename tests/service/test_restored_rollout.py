"""etcd of a real control plane is restored from a copy of its data directory while the service
runs: a rollout of before meets the cluster of after, and no more pods are deleted than its limit.
"""

from __future__ import annotations

import json
import time
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from tests import controlplane, gitservers
from tests.service import staged
from tests.service.test_service import running, until

pytestmark = staged.MARKS
NODES, LIMIT = 8, 4
POLICY = json.dumps(
    {
        "stages": [
            {"name": "canary", "nodes": {"count": 2}, "soak": "1s"},
            {"name": "rest", "soak": "5s", "pace": {"start": LIMIT, "max": "50%"}},
        ],
        "limits": {"atRisk": {"cluster": "50%"}},
        "onFailure": {"revert": {"how": "none"}},
    }
)


def on(plane: controlplane.ControlPlane, tag: str) -> int:
    """The ready pods of an image that are not ending."""
    return sum(
        pod["spec"]["containers"][0]["image"] == staged.image(tag)
        and "deletionTimestamp" not in pod["metadata"]
        and any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in pod.get("status", {}).get("conditions", ())
        )
        for pod in staged.items(plane, "pods")
    )


def is_done(plane: controlplane.ControlPlane, tag: str) -> bool:
    """Whether the rollout of a tag has ended."""
    return on(plane, tag) == NODES and staged.tag_of(plane) == tag


def deletes(plane: controlplane.ControlPlane, since: float) -> list[float]:
    """The times of the service's deletes of pods since then, in seconds since 1970."""
    times = {}
    for line in plane.audit_log.read_text().splitlines():
        if '"userAgent":"gitops-ds' in line and '"verb":"delete"' in line:
            entry: dict[str, Any] = json.loads(line)
            at = datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()
            if (entry.get("objectRef") or {}).get("resource") == "pods" and at >= since:
                times[entry["auditID"]] = at
    return sorted(times.values())


def test_a_restore_of_etcd_deletes_no_more_pods_than_the_limit(tmp_path: Path) -> None:
    options = controlplane.Wanted(
        pod_ready_milliseconds=100,
        pod_delete_milliseconds=controlplane.POD_DELETE_MILLISECONDS,
        audit=True,
    )
    upstream = gitservers.Upstream(tmp_path / "fleet")
    upstream.commit(staged.files("1", POLICY))
    plane = controlplane.ControlPlane(tmp_path / "plane", options)
    try:
        plane.start()
        plane.add_nodes(staged.nodes(range(NODES)))
        with running(tmp_path, plane, *staged.words(upstream)) as (process, log):
            until(lambda: on(plane, "1") == NODES, log.read_text)
            upstream.commit(staged.files("2", POLICY))
            # All pods are ready, and not proved: kwok repeats no write that fails while etcd stops.
            until(lambda: on(plane, "2") == NODES, log.read_text)
            plane.backup(tmp_path / "backup")
            for tag in ("2", "3"):
                upstream.commit(staged.files(tag, POLICY))
                until(partial(is_done, plane, tag), log.read_text)
            restored = time.time()
            plane.restore(tmp_path / "backup")
            plane.restart_controllers()
            until(partial(is_done, plane, "3"), log.read_text)
            times = deletes(plane, restored)
            assert max(sum(0 <= b - a < 1 for b in times) for a in times) <= LIMIT
            assert process.poll() is None
            assert "Traceback" not in log.read_text()
    finally:
        plane.stop()
