"""Cost as the work grows: a check of 100, 1,000 and 10,000 manifests; the controller on 50, 500 and
5,000 nodes; a service with 1, 10 and 50 repositories, and on 1,000, 5,000 and 15,000 nodes.

python -m benchmarks growth; GITOPS_DS_BENCH_RUNS (3) is the number of runs of a process, of which
the medians count. It prints the table of docs/performance.md and writes the plot beside it.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, median
from typing import ParamSpec, TypeVar

from benchmarks import (
    cluster_objects,
    costs,
    decide,
    growth_plot,
    inputs,
    large,
    processes,
    simulated_api,
)
from benchmarks.cluster_objects import Fleet
from benchmarks.running_service import PROGRAM, RunningService, running
from gitops_ds.core.objects import DAEMONSET
from gitops_ds.testing.simulator import Client, virtual_time
from gitops_ds.testing.simulator.server import Server
from tests import gitservers

MANIFESTS, NODES, REPOSITORIES = (100, 1_000, 10_000), (50, 500, 5_000), (1, 10, 50)
LARGE = (1_000, 5_000, 15_000)
PAGES = 20
RUNS = int(os.environ.get("GITOPS_DS_BENCH_RUNS", "3"))
PLOT = Path(__file__).parents[1] / "docs/images/growth.svg"

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Growth:
    """Costs by the amount of work, relative to an origin: the start, which each run has once."""

    work: str
    unit: str
    costs: dict[int, float]
    origin: tuple[int, float] = (0, 0.0)

    @property
    def points(self) -> list[tuple[float, float]]:
        """The amounts and costs beyond the origin."""
        amount, start = self.origin
        return [(x - amount, cost - start) for x, cost in self.costs.items() if x > amount]

    @property
    def exponent(self) -> float:
        """The exponent: 1 if twice the work has twice the cost."""
        return exponent(self.points)


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the line through the logarithms, by least squares."""
    logarithms = [(math.log(x), math.log(y)) for x, y in points]
    return linear_regression(*zip(*logarithms, strict=True)).slope


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rows = [checks(place), *controllers(), *services(place), *large_clusters(place)]
    print(table(rows))
    PLOT.write_text(growth_plot.svg({one.work: one.points for one in rows}), encoding="utf-8")
    print(f"\nwritten: {PLOT}", flush=True)


def table(rows: Sequence[Growth]) -> str:
    """The table in Markdown."""
    lines = ["| cost | measured | exponent |", "|---|---|---|"]
    for row in rows:
        costs = "; ".join(f"{x:,}: {_digits(cost)}" for x, cost in row.costs.items())
        lines.append(f"| {row.work} | {costs} {row.unit} | {row.exponent:.2f} |")
    return "\n".join(lines)


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def checks(folder: Path) -> Growth:
    """`gitops-ds check` on one processor: a second process would check some files twice."""
    cpu: dict[int, float] = {}
    for count in (1, *MANIFESTS):
        files = folder / f"{count}-manifests"
        files.mkdir()
        # beside them a file of namespaces: a repository has at most 10,000 files
        inputs.write(files, max(count - 1, 1))
        command: list[str | Path] = [
            PROGRAM, "check", "-q", "-o", f"json={os.devnull}", "--no-cache", files
        ]  # fmt: skip
        with _one_processor():
            cpu[count] = median(processes.cost(command, folder / "cache").cpu for _ in range(RUNS))
    return Growth("check, manifests: CPU", "s", cpu, (1, cpu[1]))


@contextmanager
def _one_processor() -> Iterator[None]:
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(every)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)


def controllers() -> Iterator[Growth]:
    """Our controller on the simulated cluster, in virtual time: a decision in the middle of a
    rollout; a DaemonSet that is created and updated, with the CPU of the simulated cluster.
    """
    decisions = {nodes: _in_new_process(decision, nodes) for nodes in NODES}
    calls = {nodes: float(one.calls) for nodes, one in decisions.items()}
    yield Growth("decision, nodes: CPU", "ms", {nodes: one.ms for nodes, one in decisions.items()})
    yield Growth("decision, nodes: function calls", "calls", calls)
    rollouts = {nodes: _in_new_process(rollout, nodes) for nodes in NODES}
    yield Growth("rollout, nodes: CPU", "s", rollouts)


@dataclass(frozen=True)
class Decision:
    """Milliseconds of CPU; calls of functions, which do not depend on the machine."""

    ms: float
    calls: int


def decision(nodes: int) -> Decision:
    lists = virtual_time.run(decide.half_way(nodes))
    return Decision(1_000 * decide.decision(lists), costs.calls(decide.turn, decide.filled(lists)))


def rollout(nodes: int) -> float:
    """Seconds of CPU, including those of the simulated cluster."""
    began = time.process_time()
    virtual_time.run(decide.rollout(nodes))
    return time.process_time() - began


def _in_new_process(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a function in a new process, with separate memory."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args, **kwargs).result()


@dataclass(frozen=True)
class Start:
    """Seconds of CPU from the start until each repository is in sync, including Git's; MiB at that
    time.
    """

    cpu: float
    memory: float


def services(folder: Path) -> Iterator[Growth]:
    """The installed program as a service, each repository with its own agent, until all are in
    sync.
    """
    starts: dict[int, Start] = {}
    for count in REPOSITORIES:
        runs = [
            asyncio.run(_service(folder / f"{count}-repositories-{run}", count))
            for run in range(RUNS)
        ]
        starts[count] = Start(median(s.cpu for s in runs), median(s.memory for s in runs))
    first = starts[REPOSITORIES[0]]
    cpu = {count: one.cpu for count, one in starts.items()}
    memory = {count: one.memory for count, one in starts.items()}
    yield Growth("service, repositories: CPU", "s", cpu, (1, first.cpu))
    yield Growth("service, repositories: memory", "MiB", memory, (1, first.memory))


def large_clusters(folder: Path) -> Iterator[Growth]:
    """A service with an agent on all nodes: its memory, the CPU of a page of the agent, and that of
    the command `status`; beyond those on one node.
    """
    costs = {
        nodes: asyncio.run(_large_cluster(folder / f"{nodes}-nodes", nodes))
        for nodes in (1, *LARGE)
    }
    for name, unit in (("memory", "MiB"), ("page", "ms"), ("status", "s")):
        by_nodes: dict[int, float] = {nodes: getattr(one, name) for nodes, one in costs.items()}
        what = name if name == "memory" else f"{name}, CPU"
        yield Growth(f"an agent on all nodes: {what}", unit, by_nodes, (1, by_nodes[1]))


@dataclass(frozen=True)
class LargeCluster:
    """MiB of the service, milliseconds of CPU of a page, seconds of CPU of `gitops-ds status`."""

    memory: float
    page: float
    status: float


async def _large_cluster(folder: Path, nodes: int) -> LargeCluster:
    async with large.filled(folder, Fleet(nodes=nodes, agents=1)) as made:
        with made.service() as service:
            await asyncio.to_thread(service.ready)
            return await asyncio.to_thread(_views, service, made.kubeconfig)


def _views(service: RunningService, kubeconfig: Path) -> LargeCluster:
    processes.idle(service.process.pid)
    memory = service.memory()
    before, _ = service.cpu()
    for _ in range(PAGES):
        url = f"http://127.0.0.1:{service.port}/agents/default/agent-0000"
        with urllib.request.urlopen(url) as reply:
            reply.read()
    page = 1_000 * (service.cpu()[0] - before) / PAGES
    command: list[str | Path] = [PROGRAM, "status", "agent-0000", "--kubeconfig", kubeconfig]
    runs = (processes.cost(command, kubeconfig.parent / "cache").cpu for _ in range(RUNS))
    return LargeCluster(memory, page, median(runs))


async def _service(folder: Path, count: int) -> Start:
    fleet = Fleet(nodes=50, agents=count)
    upstreams = []
    for number, (name, text) in enumerate(fleet.files.items()):
        upstreams.append(gitservers.Upstream(folder / f"upstream-{number}"))
        upstreams[-1].commit({name: text}, "an agent")
    cluster = Client(Server(time.time))
    cluster_objects.prepare_simulated(cluster.server, fleet)
    kubeconfig = folder / "kubeconfig"
    async with simulated_api.connected(cluster, kubeconfig):
        with running(kubeconfig, upstreams, folder, {"powers": "pace"}) as service:
            start = await asyncio.to_thread(_in_sync, service)
            assert len(cluster.server.store.all(DAEMONSET)) == count
            return start


def _in_sync(service: RunningService) -> Start:
    """Waits until each repository is in sync and its status is written."""
    while not service.is_ready:  # each request for readiness costs the service 1 ms
        time.sleep(0.5)
    processes.idle(service.process.pid)
    return Start(sum(service.cpu()), service.memory())


if __name__ == "__main__":
    main()
