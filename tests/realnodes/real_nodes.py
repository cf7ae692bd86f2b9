"""Real nodes beside a control plane of `tests.controlplane`: kubelets with containerd and runc.

`scripts/realnodes` builds the programs. A node needs root and control groups; `problem` is the
reason why this machine can't run one.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.controlplane import ROOT, ControlPlane
from tests.realnodes import images

AGENT_IMAGES: Final = ("localhost/agent:1", "localhost/agent:2", "localhost/agent:3")
NAMESPACES: Final = (
    *("--mount", "--net", "--pid", "--ipc", "--uts"),
    *("--fork", "--kill-child", "--mount-proc"),
)
DISK: Final = 512 << 20  # bytes of a node
SERVICE: Final = "10.0.0.1"  # the address of the API server for pods


def problem() -> str:
    """Why this machine can't run real nodes; empty if it can."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "real nodes need Linux on x86_64"
    if os.geteuid() != 0:
        return "real nodes need root"
    if not os.access("/sys/fs/cgroup", os.W_OK):
        return "real nodes need writable control groups in /sys/fs/cgroup"
    done = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "true"], capture_output=True, check=False
    )
    return f"real nodes need namespaces: {done.stderr.decode()}" if done.returncode else ""


@cache
def programs() -> Path:
    """The directory with the programs, built if missing."""
    done = subprocess.run(
        [ROOT / "scripts/realnodes"], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(done.stdout.strip())


# https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
KUBELET: Final[dict[str, Any]] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "failCgroupV1": False,
    "failSwapOn": False,
    "makeIPTablesUtilChains": False,
    "resolvConf": "",
    "clusterDNS": ["10.0.0.10"],
    "clusterDomain": "cluster.local",
    "evictionHard": {"nodefs.available": "64Mi", "imagefs.available": "32Mi"},
    "evictionPressureTransitionPeriod": "5s",
    "nodeStatusUpdateFrequency": "2s",
    "nodeStatusReportFrequency": "5s",
    "nodeLeaseDurationSeconds": 10,
    "syncFrequency": "5s",
    "maxPods": 110,
    "enableControllerAttachDetach": False,
    "crashLoopBackOff": {"maxContainerRestartPeriod": "20s"},
}


@dataclass
class RealNode:
    """One node: its process, which ends with this one."""

    name: str
    process: subprocess.Popen[str]
    directory: Path

    def do(self, *command: str) -> None:
        """Sends a command of `node_process.Node` and waits for its end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(command) + "\n")
        self.process.stdin.flush()
        self.answer("done")

    def answer(self, expected: str) -> None:
        """Reads the answer; raises RuntimeError with the end of its log for another one."""
        assert self.process.stdout is not None
        if self.process.stdout.readline().strip() != expected:
            log = self.directory.with_name(f"{self.name}.log").read_text()
            raise RuntimeError(f"{self.name}: {log[-3000:]}")

    @property
    def data(self) -> Path:
        """The disk of the node, as long as it runs: logs of pods, and what containerd has."""
        return Path(f"/proc/{self.process.pid}/root/mnt/data")

    def end(self) -> None:
        """Ends the node, and waits until nothing of it is left."""
        with contextlib.suppress(BrokenPipeError), self.process:  # closes its input, and waits
            pass


@dataclass
class RealNodes:
    """The real nodes of a control plane, by name. `archives` are images beside those of the agents,
    as archives of Docker, and `servers` ports of the machine by the address that pods use.
    `kubelet` is added to the configuration of kubelets.
    """

    plane: ControlPlane
    directory: Path
    archives: Sequence[Path] = ()
    servers: Mapping[str, int] = field(default_factory=dict)
    disk: int = DISK
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    nodes: dict[str, RealNode] = field(default_factory=dict)

    def start(self, *names: str) -> RealNodes:
        """Starts nodes side by side, and returns when their containerd runs."""
        made = self._images()
        for name in names:
            self.nodes[name] = self._process(name, made)
        for name in names:
            self.nodes[name].answer("started")
        return self

    def stop(self) -> None:
        """Ends all nodes."""
        for node in self.nodes.values():
            node.end()

    def _images(self) -> list[Path]:
        folder = self.directory / "images"
        folder.mkdir(parents=True, exist_ok=True)
        made = list[Path]()
        for name in ("localhost/pause:1", *AGENT_IMAGES):
            program = name.partition("/")[2].partition(":")[0]
            made.append(folder / f"{name.replace('/', '-').replace(':', '-')}.tar")
            images.write(made[-1], name, programs() / program)
        return made

    def _process(self, name: str, made: Sequence[Path]) -> RealNode:
        number = 1 + len(self.nodes)
        directory = self.directory / name
        (directory / "images").mkdir(parents=True)
        for archive in made:
            os.link(archive, directory / "images" / archive.name)
        for archive in self.archives:
            (directory / "images" / archive.name).symlink_to(archive)
        (directory / "kubeconfig").write_text(self.plane.kubeconfig.read_text())
        network = os.open("/proc/self/ns/net", os.O_RDONLY)
        settings = {
            "name": name,
            "number": number,
            "programs": str(programs()),
            "port": self.plane.port,
            "service": SERVICE,
            "servers": dict(self.servers),
            "disk": self.disk,
            "host_network": network,
            "kubelet": {**KUBELET, **self.kubelet},
            "labels": "type=real",
        }
        (directory / "node.json").write_text(json.dumps(settings))
        program = f"{sys.executable} {Path(__file__).with_name('node_process.py')} {directory}"
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                # The shell is the first process of the namespace, and waits for orphans.
                ["unshare", *NAMESPACES, "sh", "-c", f"{program}; exit $?"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                pass_fds=[network],
            )
        os.close(network)
        return RealNode(name, process, directory)
