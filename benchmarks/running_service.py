"""A running service for a benchmark, with figures from the operating system and its metrics."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import processes
from tests import controlplane, gitservers

SECRET = "a-secret-of-thirty-two-characters"
PROGRAM = Path(sys.executable).with_name("gitops-ds")


@dataclass
class RunningService:
    """The process of a service, with its metrics at `port`; `began` is the time of its start."""

    process: subprocess.Popen[bytes]
    port: int
    began: float
    log: Path

    @property
    def is_ready(self) -> bool:
        """Whether it reports readiness. Raises RuntimeError if it ended."""
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5),
        ):
            return True
        if self.process.poll() is not None:
            raise RuntimeError(self.log.read_text()[-2000:])
        return False

    def ready(self) -> float:
        """Seconds from the start until it reports readiness."""
        while not self.is_ready:
            time.sleep(0.02)
        return time.perf_counter() - self.began

    def push(self, commit: str) -> None:
        """Sends the webhook of a commit."""
        body = json.dumps({"commit": commit}).encode()
        signature = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        headers = {"X-Signature": signature, "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/hook", body, headers)
        with urllib.request.urlopen(request, timeout=10) as reply:
            assert reply.status < 300

    def cpu(self) -> tuple[float, float]:
        """Seconds of CPU: its own, and that of the programs that it ran."""
        return processes.cpu(self.process.pid)

    def memory(self, which: str = "VmRSS") -> float:
        """MiB."""
        return processes.memory(self.process.pid, which)

    def requests(self) -> dict[str, int]:
        """Requests to the API server, by method and code, from its metrics."""
        matches = re.findall(
            r'^gitopsds_api_requests_total\{code="(\d*)",method="(\w+)"\} ([\d.e+]+)',
            self.metrics(),
            re.M,
        )
        return {f"{method} {code}": int(float(count)) for code, method, count in matches}

    def git(self) -> float:
        """Seconds of requests to Git so far."""
        sums = r"^gitopsds_git_fetch_duration_seconds_sum\S* (\S+)"
        return sum(map(float, re.findall(sums, self.metrics(), re.M)))

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as reply:
            return str(reply.read().decode())


@contextlib.contextmanager
def running(
    kubeconfig: Path,
    upstreams: Sequence[gitservers.Upstream],
    folder: Path,
    controller: Mapping[str, str],
) -> Iterator[RunningService]:
    """The service with the page, metrics and a webhook, and otherwise its default settings."""
    port, log, secret = controlplane.free_port(), folder / "log", folder / "secret"
    secret.write_text(SECRET)
    repositories = [
        {"url": f"file://{upstream.path}", "allowLocal": True, "branch": "main"}
        for upstream in upstreams
    ]
    settings = {
        "repositories": repositories,
        "cluster": {"kubeconfig": str(kubeconfig)},
        "controller": dict(controller),
        "listen": {"address": f"127.0.0.1:{port}", "webhook": {"secretFile": str(secret)}},
        "log": {"format": "json", "level": "info"},
    }
    (folder / "settings.yaml").write_text(json.dumps(settings))
    environment = {**gitservers.GIT_ENVIRONMENT, "GITOPS_DS_CACHE": str(folder / "cache")}
    with log.open("ab") as stream:
        began = time.perf_counter()
        command: list[str | Path] = [PROGRAM, "run", "--settings", folder / "settings.yaml"]
        process = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment)
    try:
        yield RunningService(process, port, began, log)
        process.terminate()
        began = time.perf_counter()
        process.wait(30)
        print(f"stopped after {time.perf_counter() - began:.1f} s", flush=True)
    finally:
        process.kill()
        process.wait()
