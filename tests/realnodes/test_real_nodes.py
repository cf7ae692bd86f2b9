"""The laboratory leaves nothing of its nodes behind, also if the test run is killed."""

from __future__ import annotations

import fnmatch
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.realnodes.node_process import BOOT_ID, TUNABLES

pytestmark = [
    pytest.mark.realnodes,
    pytest.mark.slow,
    pytest.mark.system,
    pytest.mark.xdist_group("realnodes"),
]

# The node starts without an API server: the kubelet only tries.
PROGRAM = """
import sys, time
from pathlib import Path
from tests.realnodes.real_nodes import RealNodes
class Plane:
    port = 1
    kubeconfig = Path(sys.argv[1]) / "kubeconfig"
Plane.kubeconfig.write_text("{}")
nodes = RealNodes(Plane, Path(sys.argv[1]) / "nodes").start(sys.argv[2])
print("started", flush=True)
time.sleep(600)
"""


def _traces(directory: Path, name: str) -> list[str]:
    """What a node has outside of its namespaces: processes, mounts, control groups, files."""
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    lines = [line for line in processes.stdout.splitlines() if f"{directory}/nodes" in line]
    lines += [
        line for line in Path("/proc/mounts").read_text().splitlines() if str(directory) in line
    ]
    # `walk` ignores a group that is removed meanwhile, `rglob` does not.
    groups = (group for _, groups, _ in os.walk("/sys/fs/cgroup") for group in groups)
    lines += fnmatch.filter(groups, f"gitops-ds-*-{name}-*")
    return lines + [str(one) for one in directory.glob(f"nodes/{name}/*")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_node_after_a_signal(tmp_path: Path, number: int) -> None:
    kernel = {path: (Path("/proc/sys") / path).read_text() for path in TUNABLES}
    boot, name = BOOT_ID.read_text(), f"node-{os.getpid()}-{number}"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), name], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    assert _traces(tmp_path, name)
    assert {path: (Path("/proc/sys") / path).read_text() for path in TUNABLES} == kernel
    process.send_signal(number)
    with process:
        process.wait()
    deadline = time.monotonic() + 60
    while traces := _traces(tmp_path, name):
        assert time.monotonic() < deadline, json.dumps(traces, indent=1)
        time.sleep(0.1)
    assert BOOT_ID.read_text() == boot
