"""A real node: containerd and a kubelet in namespaces of their own (processes, mounts, network).

A program: `unshare ... python node_process.py DIRECTORY`, as root. The directory has `node.json`,
the fields of `Settings`. It reads commands from its standard input, one in each line, and answers
each with a line. At the end of the input it ends every process of the node and removes its control
groups and its directory, also if the caller was killed: the kernel closes the input.

The kernel parameters that a kubelet writes, and the boot ID, are files of the node, mounted over
those of the machine. The only routes out of the network are relays to ports of the machine, one of
them to the API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Written by kubelets (setupKernelTunables in pkg/kubelet/cm/container_manager_linux.go), with the
# values that they want.
TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
DIRECTORY = Path("/mnt")  # of the node in its namespace: paths of sockets are short
CGROUPS = Path("/sys/fs/cgroup")
CLONE_NEWNET = 0x40000000
PATIENCE = 180.0  # seconds until containerd answers, on a busy machine


@dataclass(frozen=True)
class Settings:
    """`name` of the node, its `number`, which makes its addresses, the directory of the
    `programs`, the `port` of the API server on 127.0.0.1 and `service`, its address for pods.
    `servers` are ports of the machine on 127.0.0.1 by an address that reaches them on port 443.
    `host_network` is a descriptor of the network namespace of the machine.
    """

    name: str
    number: int
    programs: str
    port: int
    service: str
    servers: dict[str, int]
    disk: int
    host_network: int
    kubelet: dict[str, Any]
    labels: str


class Node:
    """The processes of the node in the directory `origin`."""

    def __init__(self, origin: Path, settings: Settings) -> None:
        self.origin, self.directory, self.settings = origin, DIRECTORY, settings
        self.programs = Path(settings.programs)
        self.cgroup = f"gitops-ds-{os.getppid()}-{settings.name}-{uuid.uuid4().hex[:6]}"
        self.relay = Relay(settings.host_network)
        self.kubelet: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Everything, until containerd answers."""
        self._mount()
        self._network()
        self._make_cgroups()
        port = self.settings.port
        targets = {("127.0.0.1", port): port, (self.settings.service, 443): port}
        self.relay.start(
            targets | {(one, 443): there for one, there in self.settings.servers.items()}
        )
        self._write_configuration()
        self._boot()

    def _mount(self) -> None:
        _run("mount", "--bind", str(self.origin), str(self.directory))
        for path, value in TUNABLES.items():
            self._mount_file(Path("/proc/sys") / path, value)
        self._mount_file(BOOT_ID, str(uuid.uuid4()))
        data = self.directory / "data"
        data.mkdir()
        _run("mount", "-t", "tmpfs", "-o", f"size={self.settings.disk}", "node", str(data))

    def _mount_file(self, target: Path, value: str) -> None:
        if not target.exists():
            return
        source = self.directory / "kernel" / str(target).strip("/").replace("/", "-")
        source.parent.mkdir(exist_ok=True)
        source.write_text(value + "\n")
        _run("mount", "--bind", str(source), str(target))

    def _network(self) -> None:
        _run("ip", "link", "set", "lo", "up")
        for address in (self.settings.service, self._address, *self.settings.servers):
            _run("ip", "address", "add", f"{address}/32", "dev", "lo")

    @property
    def _address(self) -> str:
        return f"10.88.{self.settings.number}.254"

    @property
    def _cgroup_paths(self) -> list[Path]:
        """A control group of each hierarchy (version 1), or the only one (version 2)."""
        if (CGROUPS / "cgroup.controllers").exists():
            return [CGROUPS / self.cgroup]
        mounted = (one for one in CGROUPS.iterdir() if (one / "cgroup.procs").exists())
        return [one / self.cgroup for one in mounted if not one.is_symlink()]

    def _make_cgroups(self) -> None:
        for path in self._cgroup_paths:
            path.mkdir()
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (path / name).exists() and (path.parent / name).exists():
                    (path / name).write_text((path.parent / name).read_text())

    def _write_configuration(self) -> None:
        directory, data = self.directory, self.directory / "data"
        (directory / "cni").mkdir()
        network = {
            "type": "ptp",
            "ipMasq": False,
            "ipam": {
                "type": "host-local",
                "dataDir": str(data / "ipam"),
                "ranges": [[{"subnet": f"10.88.{self.settings.number}.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        conflist = {"cniVersion": "1.0.0", "name": "pods", "plugins": [network]}
        (directory / "cni/10-pods.conflist").write_text(json.dumps(conflist))
        (directory / "containerd.toml").write_text(
            CONTAINERD.format(directory=directory, data=data, programs=self.programs)
        )
        kubelet = {
            "cgroupRoot": f"/{self.cgroup}",
            "containerRuntimeEndpoint": f"unix://{directory}/containerd.sock",
            "podLogsDir": str(data / "logs"),
            **self.settings.kubelet,
        }
        (directory / "kubelet.json").write_text(json.dumps(kubelet))

    def _boot(self) -> None:
        self._start("containerd", "--config", str(self.directory / "containerd.toml"))
        deadline = time.monotonic() + PATIENCE
        while self._ctr("version").returncode != 0:
            if time.monotonic() > deadline:
                log = (self.directory / "containerd.log").read_text()
                raise RuntimeError(f"containerd does not answer: {log[-2000:]}")
            time.sleep(0.1)
        self.import_images()
        self.start_kubelet()

    def _ctr(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        address = str(self.directory / "containerd.sock")
        command = [str(self.programs / "ctr"), "--address", address, "--namespace", "k8s.io"]
        return subprocess.run([*command, *arguments], capture_output=True, check=False)

    def _start(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        """Starts a program, and again whenever it exits, as `Restart=always` of systemd: a kubelet
        exits if containerd does not answer in time.
        """
        with (self.directory / f"{program}.log").open("ab") as log:
            path = f"{self.programs}:{os.environ['PATH']}"
            # Less CPU, as for the programs of the control plane.
            environment = {"GOMAXPROCS": "1", **os.environ, "GOGC": "400", "PATH": path}
            again = 'while :; do "$0" "$@"; sleep 1; done'
            return subprocess.Popen(
                ["sh", "-c", again, str(self.programs / program), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.directory,
                start_new_session=True,
            )

    def start_kubelet(self) -> None:
        """Starts the kubelet, as after an update of it."""
        self.kubelet = self._start(
            "kubelet",
            f"--config={self.directory}/kubelet.json",
            f"--kubeconfig={self.directory}/kubeconfig",
            f"--hostname-override={self.settings.name}",
            f"--node-ip={self._address}",
            f"--root-dir={self.directory}/data/kubelet",
            f"--cert-dir={self.directory}/pki",
            f"--node-labels={self.settings.labels}",
            "--v=2",
        )

    def stop_kubelet(self) -> None:
        """Ends the kubelet; its pods continue."""
        if self.kubelet is not None:
            os.killpg(self.kubelet.pid, signal.SIGKILL)
            self.kubelet.wait()

    def reboot(self) -> None:
        """Ends every process of the node at once, and starts them again with another boot ID."""
        self._end_all()
        (self.directory / "kernel/proc-sys-kernel-random-boot_id").write_text(f"{uuid.uuid4()}\n")
        self._boot()

    def power_off(self) -> None:
        """Ends every process of the node at once."""
        self._end_all()

    def disconnect(self) -> None:
        """The node loses the API server and every other server."""
        self.relay.connected = False

    def connect(self) -> None:
        """The node reaches its servers again."""
        self.relay.connected = True

    def fill(self, left: str) -> None:
        """Fills the disk until only `left` bytes are free."""
        data = self.directory / "data"
        with (data / "full").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, shutil.disk_usage(data).free - int(left)))

    def free(self) -> None:
        """Undoes `fill`."""
        (self.directory / "data/full").unlink()

    def import_images(self) -> None:
        """Adds the images of the node's directory."""
        for image in sorted((self.directory / "images").glob("*.tar")):
            done = self._ctr("images", "import", str(image))
            if done.returncode != 0:
                raise RuntimeError(f"{image} cannot be imported: {done.stderr.decode()}")

    def tag_image(self, name: str, other: str) -> None:
        """Gives an image of the node another name, as a new version."""
        if self._ctr("images", "tag", name, other).returncode != 0:
            raise RuntimeError(f"{name} cannot be named {other}")

    def remove_image(self, name: str) -> None:
        """Removes an image from the node."""
        self._ctr("images", "rm", "--sync", name)

    def _end_all(self) -> None:
        for _ in range(100):
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    continue
            others = [one for one in Path("/proc").iterdir() if one.name.isdigit()]
            if all(other.name in ("1", str(os.getpid())) or _is_ended(other) for other in others):
                return
            time.sleep(0.05)

    def end(self) -> None:
        """Ends every process, and removes what the node had outside of its namespaces."""
        self._end_all()
        for path in self._cgroup_paths:
            for directory, _, _ in os.walk(path, topdown=False):
                with contextlib.suppress(OSError):
                    Path(directory).rmdir()
        _run("umount", "--recursive", "--lazy", str(self.directory))
        shutil.rmtree(self.origin, ignore_errors=True)


class Relay:
    """Connections to addresses of the node, relayed to ports of 127.0.0.1 of the machine by a
    thread in the network namespace of the machine.
    """

    def __init__(self, host_network: int) -> None:
        self.host_network = host_network
        self._connected = True
        self._open = set[asyncio.StreamWriter]()
        self._loop = asyncio.new_event_loop()

    @property
    def connected(self) -> bool:
        """Whether connections are relayed; otherwise they are accepted, and nothing is answered."""
        return self._connected

    @connected.setter
    def connected(self, connected: bool) -> None:
        self._connected = connected
        if not connected:
            self._loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    def start(self, targets: dict[tuple[str, int], int]) -> None:
        """Listens on addresses with a port, and relays to the port of the machine that each has."""
        sockets = [(socket.create_server(one, backlog=64), port) for one, port in targets.items()]
        threading.Thread(target=self._serve, args=(sockets,), daemon=True).start()

    def _serve(self, sockets: list[tuple[socket.socket, int]]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(self.host_network, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        asyncio.set_event_loop(self._loop)
        for one, port in sockets:
            relay = functools.partial(self._relay, port)
            self._loop.run_until_complete(asyncio.start_server(relay, sock=one))
        self._loop.run_forever()

    async def _relay(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if not self._connected:
            self._open.add(writer)
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        self._open |= {writer, back}
        try:
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        finally:
            self._open -= {writer, back}


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while content := await source.read(65536):
            target.write(content)
            await target.drain()
    target.close()


def _is_ended(process: Path) -> bool:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


# https://github.com/containerd/containerd/blob/main/docs/cri/config.md
CONTAINERD = """
version = 3
root = "{data}/containerd"
state = "{data}/state"
[grpc]
  address = "{directory}/containerd.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{programs}"]
  conf_dir = "{directory}/cni"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = "{programs}/runc"
  Root = "{data}/runc"
# Its socket in /run would be that of all nodes: a node would now and then end at its start.
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.internal.v1.opt"]
  path = "{data}/opt"
"""


def main() -> None:
    """Runs the node until the end of the input."""
    directory = Path(sys.argv[1])
    settings = Settings(**json.loads((directory / "node.json").read_text()))
    node = Node(directory, settings)
    try:
        node.start()
        print("started", flush=True)
        for line in sys.stdin:
            name, *arguments = line.split()
            getattr(node, name)(*arguments)
            print("done", flush=True)
    finally:
        node.end()


if __name__ == "__main__":
    main()
