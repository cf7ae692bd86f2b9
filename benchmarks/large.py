"""The service with 30 agents on 5,000 nodes, 150,000 pods: time to readiness, memory, and the CPU
of a node's heartbeat. The cluster is simulated, behind HTTP.

python -m benchmarks large; GITOPS_DS_BENCH_LARGE_NODES and _LARGE_AGENTS are the numbers of nodes
and agents, GITOPS_DS_BENCH_RUNS that of starts (5), of which the medians are printed. It fails if a
figure exceeds its bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import cluster_objects, figures, processes, simulated_api
from benchmarks.cluster_objects import Fleet
from benchmarks.running_service import PROGRAM, RunningService, running
from benchmarks.simulated_api import SimulatedApi
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.objects import NODE
from gitops_ds.testing.simulator import Client
from gitops_ds.testing.simulator.server import Server
from tests import gitservers

FLEET = Fleet(
    nodes=int(os.environ.get("GITOPS_DS_BENCH_LARGE_NODES", "5000")),
    agents=int(os.environ.get("GITOPS_DS_BENCH_LARGE_AGENTS", "30")),
)
RUNS = int(os.environ.get("GITOPS_DS_BENCH_RUNS", "5"))
# The bounds: seconds of wall and of CPU from the start to readiness, MiB, milliseconds of CPU.
READY, READY_CPU = 60.0, 20.0
MEMORY, PEAK = 200.0, 300.0
HEARTBEAT = 0.4
BEATS, A_SECOND = 1_000, 50  # 5,000 kubelets send 17 per second


@dataclass(frozen=True)
class Start:
    """Seconds of wall and of CPU until readiness; MiB afterwards, and at the peak."""

    wall: float
    cpu: float
    memory: float
    peak: float


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(Path(folder)))


@dataclass(frozen=True)
class FilledCluster:
    """A simulated cluster with the agents of a repository on all nodes."""

    api: SimulatedApi
    upstream: gitservers.Upstream
    folder: Path

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def service(self) -> contextlib.AbstractContextManager[RunningService]:
        """The service of the repository."""
        return running(self.kubeconfig, [self.upstream], self.folder, {"powers": "pace"})


@contextlib.asynccontextmanager
async def filled(folder: Path, fleet: Fleet, history: int = 10_000) -> AsyncIterator[FilledCluster]:
    """The cluster of a fleet; `history` is the number of changes of a kind that it keeps."""
    upstream = gitservers.Upstream(folder / "fleet")
    upstream.commit(fleet.files, "all agents")
    cluster = Client(Server(time.time, history=history))
    cluster_objects.prepare_simulated(cluster.server, fleet)
    async with simulated_api.connected(cluster, folder / "kubeconfig") as api:
        made = FilledCluster(api, upstream, folder)
        await asyncio.to_thread(_apply, made)
        cluster_objects.fill_simulated(cluster.server, fleet)
        yield made


async def _measure(folder: Path) -> None:
    async with filled(folder, FLEET) as made:
        starts, beat = list[Start](), 0.0
        for number in range(RUNS + 1):
            with made.service() as service:
                start = await _started(service)
                if number:  # the first one clones the repository
                    starts.append(start)
                if number == RUNS:
                    beat = await _heartbeat(made.api.cluster, service)
    what = f"{FLEET.agents} agents on {FLEET.nodes} nodes"
    within = [
        figures.bounded(f"{what}, start to ready", median(s.wall for s in starts), "s", READY),
        figures.bounded(f"{what}, CPU of that", median(s.cpu for s in starts), "s", READY_CPU),
        figures.bounded(f"{what}, memory", median(s.memory for s in starts), "MiB", MEMORY),
        figures.bounded(f"{what}, at its peak", median(s.peak for s in starts), "MiB", PEAK),
        figures.bounded(f"{what}, CPU of a heartbeat", beat, "ms", HEARTBEAT),
    ]
    if not all(within):
        raise SystemExit(1)


def _apply(made: FilledCluster) -> None:
    environment = {
        **gitservers.GIT_ENVIRONMENT,
        "GITOPS_DS_CACHE": str(made.folder / "other"),
        "KUBECONFIG": str(made.kubeconfig),
    }
    command: list[str | Path] = [PROGRAM, "apply", f"file://{made.upstream.path}", "-q"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


async def _started(service: RunningService) -> Start:
    wall = await asyncio.to_thread(service.ready)
    cpu, _ = service.cpu()
    await asyncio.to_thread(processes.idle, service.process.pid)
    return Start(wall, cpu, service.memory(), service.memory("VmHWM"))


async def _heartbeat(cluster: Client, service: RunningService) -> float:
    """Milliseconds of CPU of one node's heartbeat, without those of the idle service."""
    seconds = BEATS / A_SECOND
    before, _ = service.cpu()
    await asyncio.sleep(seconds)
    idle, _ = service.cpu()
    began = time.perf_counter()
    for number in range(BEATS):
        node = cluster_objects.node_name(number % FLEET.nodes)
        beat = cluster_objects.heartbeat()
        await cluster.patch(NODE, "", node, beat, type=PatchType.STRATEGIC, subresource="status")
        await asyncio.sleep(max(began + number / A_SECOND - time.perf_counter(), 0.0))
    after, _ = service.cpu()
    return 1000 * ((after - idle) - (idle - before)) / BEATS


if __name__ == "__main__":
    main()
