"""The service beside a full cluster in which nothing happens: what it takes, and how soon it acts.

1,000 DaemonSets on 1,000 nodes, twenty pods on each node; the kubelets' heartbeats continue. A
real API server, no controllers; python -m benchmarks service; GITOPS_DS_BENCH_NODES is the number
of nodes, _IDLE and _AWAY are durations in seconds.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import full_cluster
from tests import controlplane, gitservers
from tests.controlplane import ControlPlane

IDLE = float(os.environ.get("GITOPS_DS_BENCH_IDLE", "180"))
AWAY = float(os.environ.get("GITOPS_DS_BENCH_AWAY", "300"))
POWERS = {"powers": "pace"}
SECRET = "a-secret-of-thirty-two-characters"
WRITES = {"create", "update", "patch", "delete", "deletecollection"}


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as temporary,
        full_cluster.running(Path(temporary)) as (plane, upstream),
    ):
        folder = Path(temporary)
        # a file that is made when the machine is quiet
        if gate := os.environ.get("GITOPS_DS_BENCH_GATE"):
            while not Path(gate).exists():
                time.sleep(1)
        with served(plane, upstream, folder, POWERS) as service:
            print(f"first start: ready after {service.ready():.1f} s", flush=True)
            service.settle()
        with served(plane, upstream, folder, POWERS) as service:
            print(f"start with a clone at hand: ready after {service.ready():.1f} s", flush=True)
            service.settle()
            service.idle(IDLE, IDLE)
            service.idle(IDLE, 30)
            service.hooks(upstream)
            if AWAY:
                service.outage(upstream, AWAY)


@dataclass
class Served:
    """A service that runs."""

    process: subprocess.Popen[bytes]
    port: int
    began: float
    plane: ControlPlane
    log: Path

    def ready(self) -> float:
        """Seconds from the start until it reports readiness."""
        while True:
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5),
            ):
                return time.perf_counter() - self.began
            if self.process.poll() is not None:
                raise RuntimeError(self.log.read_text()[-2000:])
            time.sleep(0.02)

    def settle(self) -> None:
        """Returns when what follows a start is over: the objects with the status of agents are
        written.
        """
        while True:
            before = len(self.writes())
            time.sleep(10)
            if len(self.writes()) == before:
                return

    def idle(self, seconds: float, scraped: float) -> None:
        """Prints what it takes while nothing happens; its metrics are read every so many `scraped`
        seconds.
        """
        writes, requests, used, began = (
            len(self.writes()),
            self.requests(),
            self.cpu(),
            time.perf_counter(),
        )
        peak = self.memory("VmHWM")
        while (left := began + seconds - time.perf_counter()) > 0:
            time.sleep(min(left, scraped))
            if scraped < seconds:
                self.metrics()
        took = time.perf_counter() - began
        own, children = (now - before for now, before in zip(self.cpu(), used, strict=True))
        requested = {
            key: count - requests.get(key, 0)
            for key, count in self.requests().items()
            if count > requests.get(key, 0)
        }
        print(
            f"idle for {took:.0f} s, metrics read every {scraped:.0f} s: "
            f"{len(self.writes()) - writes} writes; requests {requested}"
        )
        print(
            f"CPU: {100 * (own + children) / took:.2f} % of a core ({100 * own / took:.2f} % its "
            "own, the rest git)"
        )
        print(
            f"memory: {self.memory('VmRSS'):.0f} MiB, {peak:.0f} MiB at the peak of its start",
            flush=True,
        )

    def hooks(self, upstream: gitservers.Upstream) -> None:
        """Prints how soon a push is written."""
        result = []
        for n in range(5):
            name = f"agent-{n:04d}.yaml"
            text = (upstream.work / name).read_text()
            commit = upstream.commit(
                {name: re.sub(r"agent:[\d.]+", f"agent:2.0.{n}", text)}, "one image"
            )
            git, writes = self.git(), len(self.writes())
            sent = time.time()
            self._hook(commit)
            while len(after := self.writes()[writes:]) == 0:
                time.sleep(0.05)
            result.append((_at(after[0]) - sent, self.git() - git))
            what = f"{after[0]['verb']} {after[0]['objectRef']['resource']}"
            print(
                f"webhook to the first write ({what}): {result[-1][0]:.2f} s, of it Git "
                f"{result[-1][1]:.2f} s",
                flush=True,
            )
            self.settle()
        print(
            f"beyond Git: {median(seconds - git for seconds, git in result):.2f} s (median of "
            f"{len(result)})",
            flush=True,
        )

    def _hook(self, commit: str) -> None:
        body = json.dumps({"commit": commit}).encode()
        signature = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        headers = {"X-Signature": signature, "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/hook", body, headers)
        with urllib.request.urlopen(request, timeout=10) as reply:
            assert reply.status < 300

    def outage(self, upstream: gitservers.Upstream, seconds: float) -> None:
        """Prints how it reconnects to an API server after an outage, in which time a commit was
        pushed.
        """
        self.plane.stop_api_server()
        time.sleep(seconds / 2)
        text = (upstream.work / "agent-0040.yaml").read_text()
        commit = upstream.commit(
            {"agent-0040.yaml": re.sub(r"agent:[\d.]+", "agent:3.0.0", text)}, "while it was away"
        )
        self._hook(commit)
        time.sleep(seconds / 2)
        back = time.time()
        self.plane.start_api_server()
        ready = time.time()
        path = "/apis/apps/v1/namespaces/default/daemonsets/agent-0040"
        while (
            self.plane.request("GET", path)["metadata"]["annotations"]["gitops-ds.io/commit"]
            != commit
        ):
            time.sleep(0.2)
        took = time.time() - ready
        time.sleep(60)
        times = sorted(at for one in self.audit_events() if (at := _at(one)) > back)
        most = max(sum(at <= other < at + 1 for other in times) for at in times)
        print(f"{seconds:.0f} s away: in step {took:.1f} s after the API server was ready")
        print(
            f"at most {most} requests in a second of the minute after, {len(times)} in all",
            flush=True,
        )

    def audit_events(self) -> list[dict[str, Any]]:
        """The requests to the API server; a watch is counted at its end."""
        return [json.loads(line) for line in self.plane.audit_log.read_text().splitlines()]

    def writes(self) -> list[dict[str, Any]]:
        """What of that was a write; dry runs are none."""
        return [
            one
            for one in self.audit_events()
            if one["verb"] in WRITES and "dryRun" not in one["requestURI"]
        ]

    def cpu(self) -> tuple[float, float]:
        """Seconds of CPU: its own, and that of the programs that it ran."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        own, own_kernel, children, children_kernel = (
            int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:15]
        )
        return own + own_kernel, children + children_kernel

    def memory(self, which: str) -> float:
        """MiB."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return (
            next(int(line.split()[1]) for line in text.splitlines() if line.startswith(which))
            / 1024
        )

    def requests(self) -> dict[str, int]:
        """To the API server, by method and code, as it counts them itself."""
        matches = re.findall(
            r'^gitopsds_api_requests_total\{code="(\d*)",method="(\w+)"\} ([\d.e+]+)',
            self.metrics(),
            re.M,
        )
        return {f"{method} {code}": int(float(count)) for code, method, count in matches}

    def git(self) -> float:
        """Seconds of talks with Git so far."""
        return sum(
            map(
                float,
                re.findall(
                    r"^gitopsds_git_fetch_duration_seconds_sum\S* (\S+)", self.metrics(), re.M
                ),
            )
        )

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as reply:
            return str(reply.read().decode())


def _at(event: dict[str, Any]) -> float:
    """When, in seconds since 1970."""
    return datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()


@contextlib.contextmanager
def served(
    plane: ControlPlane, upstream: gitservers.Upstream, folder: Path, controller: dict[str, str]
) -> Iterator[Served]:
    """The service with the page, metrics and a webhook, and else the settings that it has by
    itself.
    """
    port, log, secret = controlplane.free_port(), folder / "log", folder / "secret"
    secret.write_text(SECRET)
    settings = {
        "repository": {"url": f"file://{upstream.path}", "allowLocal": True, "branch": "main"},
        "cluster": {"kubeconfig": str(folder / "kubeconfig")},
        "controller": controller,
        "listen": {"address": f"127.0.0.1:{port}", "webhook": {"secretFile": str(secret)}},
        "log": {"format": "json", "level": "info"},
    }
    (folder / "settings.yaml").write_text(json.dumps(settings))
    environment = {**gitservers.GIT_ENVIRONMENT, "GITOPS_DS_CACHE": str(folder / "cache")}
    with log.open("ab") as stream:
        began = time.perf_counter()
        words: list[str | Path] = [
            full_cluster.PROGRAM,
            "run",
            "--settings",
            folder / "settings.yaml",
        ]
        process = subprocess.Popen(words, stdout=stream, stderr=stream, env=environment)
    try:
        yield Served(process, port, began, plane, log)
        process.terminate()
        began = time.perf_counter()
        process.wait(30)
        print(f"stopped after {time.perf_counter() - began:.1f} s", flush=True)
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
