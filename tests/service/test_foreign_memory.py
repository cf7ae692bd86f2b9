"""The memory of the service follows from what it owns, with the installed program on a real control
plane, in a control group with the limit of the pod.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import controlplane, gitservers
from tests.hostile.test_service import limit_of_the_pod
from tests.plan.world import daemonset
from tests.service.test_following import agent, image, runs
from tests.service.test_service import command, following, settings, started, until

pytestmark = [pytest.mark.controlplane, pytest.mark.system, pytest.mark.slow]
NUMBER, MOST = 100, 300 << 20  # DaemonSets of a tenant, and bytes of the service
GROUPS = Path("/sys/fs/cgroup")


def large(name: str, space: str, owner: str) -> dict[str, Any]:
    """A DaemonSet of 1.1 MB without a node, with the labels and annotations of an owned one."""
    body = daemonset(name, "agent:1", space)
    spec = body["spec"]["template"]["spec"]
    spec["nodeSelector"] = {"no": "where"}
    spec["containers"][0]["env"] = [
        {"name": f"V{number}", "value": f"{number}-" + "x" * 1000} for number in range(1000)
    ]
    body["metadata"]["labels"] = {"gitops-ds.io/owner": owner}
    return body


@contextlib.contextmanager
def control_group(limit: int) -> Iterator[tuple[str, ...]]:
    """The words that run a command in a group of this limit, none without the right to make one."""
    is_second = (GROUPS / "cgroup.controllers").exists()
    group = (GROUPS if is_second else GROUPS / "memory") / f"gitops-ds-{uuid.uuid4().hex[:8]}"
    try:
        if is_second:
            (GROUPS / "cgroup.subtree_control").write_text("+memory")
        group.mkdir()
    except OSError:
        yield ()
        return
    (group / ("memory.max" if is_second else "memory.limit_in_bytes")).write_text(str(limit))
    try:
        yield "sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"
    finally:
        # The kernel frees a group some moments after its last process.
        until(lambda: is_removed(group), (group / "cgroup.procs").read_text)


def is_removed(group: Path) -> bool:
    """Removes a control group, unless a process is in it."""
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


def peak(pid: int) -> int:
    """The largest resident size of a process so far, in bytes."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return int(match[1]) << 10


def test_large_daemonsets_of_others_cost_no_memory_while_it_runs_and_when_it_starts(
    tmp_path: Path, control_plane: controlplane.ControlPlane, space: str
) -> None:
    tenant, upstream = f"{space}-tenant", gitservers.Upstream(tmp_path / "git")
    control_plane.kubectl("create", "namespace", tenant)
    named = {"gitops-ds.yaml": f"version: v1\nname: {space}\nmanifests: ['*.json']\n"}
    upstream.commit({**agent(space, 1), **named})
    options = settings(tmp_path, repository=following(upstream))
    variables = {"GITOPS_DS_MEMORY_LIMIT": str(limit_of_the_pod())}

    def path(name: str = "") -> str:
        return f"/apis/apps/v1/namespaces/{tenant}/daemonsets/{name}".rstrip("/")

    def is_observed() -> bool:
        bodies = control_plane.items(tenant, "controllerrevisions", limit="200")
        return len(bodies) == NUMBER

    with control_group(limit_of_the_pod()) as inside:
        words = (*inside, *command(control_plane, *options))
        with started(tmp_path, words, **variables) as (process, log):
            until(lambda: runs(control_plane, space) == image(1), log.read_text)
            for number in range(NUMBER):
                control_plane.request("POST", path(), large(f"large-{number}", tenant, space))
            until(is_observed, log.read_text)
            upstream.commit(agent(space, 2))
            until(lambda: runs(control_plane, space) == image(2), log.read_text)
            assert peak(process.pid) < MOST, peak(process.pid) >> 20
            running = peak(process.pid)
        with started(tmp_path, words, **variables) as (process, log):
            upstream.commit(agent(space, 3))
            until(lambda: runs(control_plane, space) == image(3), log.read_text)
            assert peak(process.pid) < MOST, peak(process.pid) >> 20
            print(f"running {running >> 20} MiB, at the start {peak(process.pid) >> 20} MiB")
    control_plane.request("DELETE", path())
