"""A real control plane on free ports of this machine, for the tests: etcd, kube-apiserver and
the requested components.

`scripts/controlplane` builds the programs. Everything lives in one directory and ends with
`stop()`: each program leads a process group of its own and dies with its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import io
import json
import os
import random
import secrets
import select
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[2]
STAGES = Path(__file__).resolve().parent / "stages"


@dataclass(frozen=True)
class Wanted:
    """The requested components and options of a control plane."""

    nodes: int = 0
    controllers: bool = True  # kube-controller-manager and kube-scheduler
    daemonset_controller: bool = True
    pod_ready_milliseconds: int = 0
    pod_delete_milliseconds: int = 0
    api_server_options: tuple[str, ...] = ()
    audit: bool = False  # whether `audit_log` has every request
    real_nodes: bool = False  # kwok ignores nodes without its annotation; leases end


# Pods of a kubelet take about a second to end (https://kubernetes.io/docs/concepts/workloads/pods/
# pod-lifecycle/#pod-termination). Where they end at once, the built-in DaemonSet controller may
# create a pod of the proven template before the pinned one, whose node is then updated again.
POD_DELETE_MILLISECONDS: Final = 1000
# Seconds of a node's lease, which kwok renews four times in it; by the kubelet's 40 s the leases of
# 300 idle nodes cost an eighth of a core. No node of a test is lost by its lease.
LEASE: Final = 3600
REAL_LEASE: Final = 15  # beside real nodes, whose kubelets renew theirs every 2.5 seconds
FAKE: Final = {"kwok.x-k8s.io/node": "fake"}  # the annotation of kwok's nodes


@cache
def programs(*options: str) -> Path:
    """The directory with the programs, built when they are not there yet; with `--conformance` also
    e2e.test.
    """
    done = subprocess.run(
        [ROOT / "scripts/controlplane", *options], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(done.stdout.strip())


def free_port() -> int:
    """A port without a listener, below the ports of outgoing connections (32768 and up on Linux).

    It stays reserved until this process ends, so that no other worker gets it before the server of
    the caller listens: a socket that is bound and does not listen refuses this function, but no
    server, as these set SO_REUSEADDR (https://man7.org/linux/man-pages/man7/socket.7.html).
    """
    while True:
        port = random.randrange(10240, 32768)
        reserved = socket.socket()
        try:
            reserved.bind(("127.0.0.1", port))
        except OSError:
            reserved.close()
            continue
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.detach()  # the descriptor stays open without the object
        return port


def _collection(namespace: str, plural: str) -> str:
    groups = {"daemonsets": "apps", "controllerrevisions": "apps"}
    root = f"/apis/{groups[plural]}/v1" if plural in groups else "/api/v1"
    return f"{root}/namespaces/{namespace}/{plural}"


def _shown(body: Any) -> Any:
    body["metadata"].pop("managedFields", None)
    return body


def _die_with_parent() -> None:
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@dataclass
class ControlPlane:
    """One running control plane. `kubeconfig` is a file for an administrator; `url`, `token` and
    `ca` are its parts.
    """

    directory: Path
    wanted: Wanted = Wanted()
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    port: int = 0
    etcd_port: int = 0
    _idle: list[http.client.HTTPSConnection] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        return self.directory / "pki/apiserver.crt"

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """A line of JSON for each request that was answered.
        https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/
        """
        return self.directory / "audit.log"

    @property
    def _key(self) -> Path:
        """Of the server, and of the tokens that it signs."""
        return self.directory / "pki/apiserver.key"

    def start(self) -> ControlPlane:
        """Starts everything and returns when the API server is ready and the nodes are made."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "tokens.csv").write_text(f"{self.token},admin,admin,system:masters\n")
        self._make_certificate()
        self._start_etcd()
        self._start_api_server()
        self._write_kubeconfig()
        self._await_ready()
        if self.wanted.controllers:
            self._start_controllers()
            self._await(
                lambda: self._exists("/api/v1/namespaces/default/serviceaccounts/default"),
                "the default service account",
            )
        if self.wanted.nodes:
            self.add_nodes(node(f"node-{i:03d}") for i in range(self.wanted.nodes))
        if self.wanted.controllers:
            self._start_kwok()
        return self

    def stop(self) -> None:
        """Ends every program, the API server before etcd: without etcd it lingers for a minute and
        holds its port.
        """
        self._close_connections()
        for name in (
            "kwok",
            "scheduler",
            "daemonset-controller",
            "controller-manager",
            "apiserver",
            "etcd",
        ):
            self._end(name)

    def _end(self, name: str) -> None:
        if process := self.processes.pop(name, None):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop_api_server(self) -> None:
        """Ends it at once, regardless of its state."""
        self._end("apiserver")

    def start_api_server(self) -> None:
        """Starts it again where it was, and returns when it is ready."""
        self._start_api_server()
        self._await_ready()

    def backup(self, where: Path) -> None:
        """Copies what etcd holds, in a pause of it."""
        self._end("etcd")
        shutil.copytree(self.directory / "etcd", where)
        self._start_etcd()
        self._await_ready()

    def restore(self, where: Path) -> None:
        """Makes the cluster what it was at a backup; resourceVersions are given out a second time.

        https://kubernetes.io/docs/tasks/administer-cluster/configure-upgrade-etcd/#restoring-an-etcd-cluster
        """
        self._end("apiserver")
        self._end("etcd")
        shutil.rmtree(self.directory / "etcd")
        shutil.copytree(where, self.directory / "etcd")
        self._start_etcd()
        self.start_api_server()

    def restart_controllers(self) -> None:
        """Ends the controllers and the scheduler, and starts them again, as the documentation
        requires after a restore: they rely on what they read before. Another kwok would wait for
        the leases of the nodes.
        """
        for name in ("scheduler", "daemonset-controller", "controller-manager"):
            self._end(name)
        self._start_controllers()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        user: str = "",
    ) -> Any:
        """One request as the administrator or a user; raises urllib's HTTPError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type}
        headers |= {"Impersonate-User": user} if user else {}
        connection = self._connection()
        try:
            connection.request(method, path, data, headers)
            reply = connection.getresponse()
            content = reply.read()
        except BaseException:
            connection.close()
            raise
        if connection.sock is not None:  # the server keeps it
            self._idle.append(connection)
        if reply.status >= 400:
            raise urllib.error.HTTPError(
                self.url + path, reply.status, reply.reason, reply.headers, io.BytesIO(content)
            )
        return json.loads(content)

    def _connection(self) -> http.client.HTTPSConnection:
        """An idle connection, or a new one: each handshake takes 3 ms of CPU of both sides.

        One with something to read was closed by the server. Threads share the list.
        """
        with contextlib.suppress(IndexError):
            while True:
                connection = self._idle.pop()
                readable = select.poll()
                readable.register(connection.sock, select.POLLIN)
                if not readable.poll(0):
                    return connection
                connection.close()
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self._tls)

    def _close_connections(self) -> None:
        while self._idle:
            self._idle.pop().close()

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    def read(self, namespace: str, plural: str, name: str) -> Any:
        """One object without managedFields, as kubectl shows it; None if absent. Tests that poll
        use it: kubectl takes a tenth of a second of CPU for each request.
        """
        try:
            return _shown(self.request("GET", f"{_collection(namespace, plural)}/{name}"))
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return None

    def items(self, namespace: str, plural: str, **query: str) -> list[Any]:
        """The objects of a namespace: `items("default", "pods", labelSelector="app=agent")`."""
        path = f"{_collection(namespace, plural)}?{urllib.parse.urlencode(query)}"
        return [_shown(body) for body in self.request("GET", path)["items"]]

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl printed; raises CalledProcessError."""
        command = [str(programs() / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        return subprocess.run(
            command, input=stdin, stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    def add_nodes(self, nodes: Iterator[Mapping[str, Any]] | Sequence[Mapping[str, Any]]) -> None:
        """Creates the nodes; kwok makes them ready."""
        for body in nodes:
            self.request("POST", "/api/v1/nodes", body)

    def _start(self, name: str, program: str, *options: str) -> None:
        log = (self.directory / f"{name}.log").open("ab")
        with log:
            self.processes[name] = subprocess.Popen(
                [programs() / program, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                # Less CPU: a third by GOGC, for 100 MiB more of memory, and a tenth by GOMAXPROCS,
                # with which no thread looks for work of another one. Benchmarks set their own.
                env={"GOMAXPROCS": "1", **os.environ, "GOGC": "400"},
                preexec_fn=_die_with_parent,  # noqa: PLW1509  none of our threads runs between fork and exec
            )

    def _make_certificate(self) -> None:
        """The API server would make one with an RSA key, which costs 0.2 s of CPU, and 1 ms in each
        handshake.
        """
        self._key.parent.mkdir()
        names = "IP:127.0.0.1,IP:10.0.0.1,DNS:localhost,DNS:kubernetes.default.svc"
        subprocess.run(
            f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 30 "
            f"-subj /CN=apiserver -addext subjectAltName={names} "
            f"-keyout {self._key.name} -out {self.ca.name}".split(),
            cwd=self._key.parent,
            stderr=subprocess.DEVNULL,
            check=True,
        )

    def _start_etcd(self) -> None:
        self.etcd_port, peer = self.etcd_port or free_port(), free_port()
        self._start(
            "etcd",
            "etcd",
            "--data-dir",
            str(self.directory / "etcd"),
            "--unsafe-no-fsync",
            "--log-level",
            "error",
            "--listen-client-urls",
            f"http://127.0.0.1:{self.etcd_port}",
            "--advertise-client-urls",
            f"http://127.0.0.1:{self.etcd_port}",
            "--listen-peer-urls",
            f"http://127.0.0.1:{peer}",
            "--initial-advertise-peer-urls",
            f"http://127.0.0.1:{peer}",
            "--initial-cluster",
            f"default=http://127.0.0.1:{peer}",
        )

    def _start_api_server(self) -> None:
        self.port = self.port or free_port()
        self._start(
            "apiserver",
            "kube-apiserver",
            "--etcd-servers",
            f"http://127.0.0.1:{self.etcd_port}",
            "--bind-address",
            "127.0.0.1",
            "--secure-port",
            str(self.port),
            "--cert-dir",
            str(self.directory / "pki"),
            "--token-auth-file",
            str(self.directory / "tokens.csv"),
            "--authorization-mode",
            "Node,RBAC",
            "--service-cluster-ip-range",
            "10.0.0.0/16",
            "--service-account-issuer",
            "https://kubernetes.default.svc",
            "--service-account-key-file",
            str(self.ca),
            "--service-account-signing-key-file",
            str(self._key),
            "--disable-admission-plugins",
            "TaintNodesByCondition",
            "--allow-privileged",
            *self._audit_options(),
            *self.wanted.api_server_options,
        )

    def _audit_options(self) -> tuple[str, ...]:
        if not self.wanted.audit:
            return ()
        policy = self.directory / "audit-policy.yaml"
        everything = {"omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}
        policy.write_text(
            json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", **everything})
        )
        return (
            "--audit-policy-file",
            str(policy),
            "--audit-log-path",
            str(self.audit_log),
            "--audit-log-mode",
            "blocking",
        )

    def _start_controllers(self) -> None:
        controllers = "*" if self.wanted.daemonset_controller else "*,-daemonset-controller"
        shared = (
            "--kubeconfig",
            str(self.kubeconfig),
            "--leader-elect=false",
            "--secure-port",
            "0",
        )
        limits = ("--kube-api-qps", "5000", "--kube-api-burst", "5000")
        self._start(
            "controller-manager",
            "kube-controller-manager",
            *shared,
            *limits,
            "--controllers",
            controllers,
            "--node-monitor-grace-period",
            f"{REAL_LEASE if self.wanted.real_nodes else LEASE}s",
            "--service-account-private-key-file",
            str(self._key),
            "--root-ca-file",
            str(self.ca),
        )
        self._start("scheduler", "kube-scheduler", *shared, *limits)

    def start_daemonset_controller(self) -> None:
        """Starts the built-in DaemonSet controller in a process of its own."""
        self._start(
            "daemonset-controller",
            "kube-controller-manager",
            "--kubeconfig",
            str(self.kubeconfig),
            "--leader-elect=false",
            "--secure-port",
            "0",
            "--kube-api-qps",
            "5000",
            "--kube-api-burst",
            "5000",
            "--controllers",
            "daemonset-controller",
        )

    def _start_kwok(self) -> None:
        stages = self.directory / "stages.yaml"
        text = "\n---\n".join(path.read_text() for path in sorted(STAGES.glob("*.yaml")))
        text = text.replace("POD_READY_MILLISECONDS", str(self.wanted.pod_ready_milliseconds))
        stages.write_text(
            text.replace("POD_DELETE_MILLISECONDS", str(self.wanted.pod_delete_milliseconds))
        )
        self._start(
            "kwok",
            "kwok",
            "--kubeconfig",
            str(self.kubeconfig),
            *self._managed_nodes(),
            "--config",
            str(stages),
        )

    def _managed_nodes(self) -> tuple[str, ...]:
        if not self.wanted.real_nodes:
            return ("--manage-all-nodes", "--node-lease-duration-seconds", str(LEASE))
        ((annotation, value),) = FAKE.items()
        selector = f"--manage-nodes-with-annotation-selector={annotation}={value}"
        return ("--manage-all-nodes=false", selector, "--node-lease-duration-seconds", "40")

    def _write_kubeconfig(self) -> None:
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "test",
                    "clusters": [
                        {
                            "name": "test",
                            "cluster": {"server": self.url, "certificate-authority": str(self.ca)},
                        }
                    ],
                    "users": [{"name": "admin", "user": {"token": self.token}}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
                }
            )
        )

    def _exists(self, path: str) -> bool:
        try:
            self.request("GET", path)
        except urllib.error.HTTPError:
            return False
        return True

    def _await_ready(self) -> None:
        def ready() -> bool:
            context = ssl.create_default_context(cafile=str(self.ca))
            with urllib.request.urlopen(f"{self.url}/readyz", context=context, timeout=5) as reply:
                return bool(reply.status == 200)

        self._await(ready, "the API server")

    def _await(self, condition: Any, what: str) -> None:
        """Polls a starting program: it has no other signal of its readiness."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise RuntimeError(
                        f"{name} ended: {(self.directory / f'{name}.log').read_text()[-2000:]}"
                    )
            with contextlib.suppress(OSError):
                if condition():
                    return
            time.sleep(0.05)
        raise TimeoutError(f"{what} did not come up in two minutes; its log is in {self.directory}")


def node(
    name: str, labels: Mapping[str, str] | None = None, taints: Sequence[Mapping[str, str]] = ()
) -> dict[str, Any]:
    """A Node object for kwok."""
    every = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    metadata = {
        "name": name,
        "labels": {**every, **(labels or {})},
        "annotations": FAKE,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"taints": list(taints)} if taints else {},
    }
