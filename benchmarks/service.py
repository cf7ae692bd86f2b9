"""The service with a full, idle cluster: its cost, and its reaction times.

1,000 DaemonSets on 1,000 nodes, twenty pods on each node; the kubelets' heartbeats continue. A real
API server, no controllers; python -m benchmarks service; GITOPS_DS_BENCH_NODES is the number of
nodes, _IDLE and _AWAY are durations in seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import figures, full_cluster, running_service
from benchmarks.running_service import RunningService
from tests import gitservers
from tests.controlplane import ControlPlane

IDLE = float(os.environ.get("GITOPS_DS_BENCH_IDLE", "180"))
AWAY = float(os.environ.get("GITOPS_DS_BENCH_AWAY", "300"))
MEMORY = 150.0  # MiB at most
POWERS = {"powers": "pace"}
WRITES = {"create", "update", "patch", "delete", "deletecollection"}


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as temporary,
        full_cluster.running(Path(temporary)) as (plane, upstream),
    ):
        folder = Path(temporary)
        # a file that is created when the machine is idle
        if gate := os.environ.get("GITOPS_DS_BENCH_GATE"):
            while not Path(gate).exists():
                time.sleep(1)
        with served(plane, upstream, folder) as scene:
            print(f"first start: ready after {scene.service.ready():.1f} s", flush=True)
            scene.settle()
        with served(plane, upstream, folder) as scene:
            print(
                f"start with a clone at hand: ready after {scene.service.ready():.1f} s", flush=True
            )
            scene.settle()
            scene.idle(IDLE, IDLE)
            scene.idle(IDLE, 30)
            scene.hooks(upstream)
            if AWAY:
                scene.outage(upstream, AWAY)


@dataclass
class Scene:
    """A running service, and the audit log of the full cluster."""

    service: RunningService
    plane: ControlPlane

    def settle(self) -> None:
        """Returns after the end of the start: when the objects with the status of agents are
        written.
        """
        while True:
            before = len(self.writes())
            time.sleep(10)
            if len(self.writes()) == before:
                return

    def idle(self, seconds: float, scraped: float) -> None:
        """Prints its cost while idle; its metrics are read every `scraped` seconds."""
        writes, requests, used, began = (
            len(self.writes()),
            self.service.requests(),
            self.service.cpu(),
            time.perf_counter(),
        )
        peak = self.service.memory("VmHWM")
        while (left := began + seconds - time.perf_counter()) > 0:
            time.sleep(min(left, scraped))
            if scraped < seconds:
                self.service.metrics()
        took = time.perf_counter() - began
        own, children = (now - before for now, before in zip(self.service.cpu(), used, strict=True))
        requested = {
            key: count - requests.get(key, 0)
            for key, count in self.service.requests().items()
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
        figures.bounded("memory", self.service.memory(), "MiB", MEMORY)
        print(f"at the peak of its start: {peak:.0f} MiB", flush=True)

    def hooks(self, upstream: gitservers.Upstream) -> None:
        """Prints the time from a push to the first write."""
        result = []
        for n in range(5):
            name = f"agent-{n:04d}.yaml"
            text = (upstream.work / name).read_text()
            commit = upstream.commit(
                {name: re.sub(r"agent:[\d.]+", f"agent:2.0.{n}", text)}, "one image"
            )
            git, writes = self.service.git(), len(self.writes())
            sent = time.time()
            self.service.push(commit)
            while len(after := self.writes()[writes:]) == 0:
                time.sleep(0.05)
            result.append((_at(after[0]) - sent, self.service.git() - git))
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

    def outage(self, upstream: gitservers.Upstream, seconds: float) -> None:
        """Prints its reconnection to an API server after an outage with a push."""
        self.plane.stop_api_server()
        time.sleep(seconds / 2)
        text = (upstream.work / "agent-0040.yaml").read_text()
        commit = upstream.commit(
            {"agent-0040.yaml": re.sub(r"agent:[\d.]+", "agent:3.0.0", text)}, "while it was away"
        )
        self.service.push(commit)
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
        """The writes among them, without dry runs."""
        return [
            one
            for one in self.audit_events()
            if one["verb"] in WRITES and "dryRun" not in one["requestURI"]
        ]


def _at(event: dict[str, Any]) -> float:
    """The time in seconds since 1970."""
    return datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()


@contextlib.contextmanager
def served(plane: ControlPlane, upstream: gitservers.Upstream, folder: Path) -> Iterator[Scene]:
    """The service in the full cluster."""
    kubeconfig = folder / "kubeconfig"
    with running_service.running(kubeconfig, [upstream], folder, POWERS) as service:
        yield Scene(service, plane)


if __name__ == "__main__":
    main()
