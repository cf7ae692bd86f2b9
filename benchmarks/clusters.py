"""Commands on a real API server, compared with kubectl in the same run: seconds and requests."""

from __future__ import annotations

import compileall
import contextlib
import re
import ssl
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import gitops_ds
from benchmarks import processes
from benchmarks.processes import Cost
from tests import controlplane
from tests.controlplane import ControlPlane, Wanted

# An API server is busy for some seconds after it is ready, with OpenAPI and its own objects.
QUIET_SHARE, QUIET_SECONDS, MOST_SECONDS = 0.1, 1.0, 60.0


@dataclass(frozen=True)
class Run:
    """The cost of a command, and its requests by verb."""

    cost: Cost
    requests: Mapping[str, int]


def compile_program() -> None:
    """Writes the bytecode of gitops-ds, as pip does for an installed one."""
    compileall.compile_dir(Path(gitops_ds.__file__).parent, quiet=2)


@contextlib.contextmanager
def pair(folder: Path, wanted: Wanted) -> Iterator[tuple[ControlPlane, ControlPlane]]:
    """Two new idle control planes: the peer's and our own."""
    peer, own = (ControlPlane(folder / name, wanted) for name in ("peer", "own"))
    try:
        peer.start()
        own.start()
        rest(peer, own)
        yield peer, own
    finally:
        peer.stop()
        own.stop()


def rest(*planes: ControlPlane) -> None:
    """Waits until the API servers are idle."""
    for _ in range(int(MOST_SECONDS / QUIET_SECONDS)):
        before = sum(map(_cpu, planes))
        time.sleep(QUIET_SECONDS)
        if sum(map(_cpu, planes)) - before < QUIET_SHARE * QUIET_SECONDS * len(planes):
            return


def _cpu(plane: ControlPlane) -> float:
    """The seconds of CPU of an API server so far."""
    own, _ = processes.cpu(plane.processes["apiserver"].pid)
    return own


def kubectl(plane: ControlPlane, *arguments: str | Path) -> list[str | Path]:
    """A command line of kubectl, with a separate discovery cache."""
    program, cache = controlplane.programs() / "kubectl", plane.directory / "kubectl"
    return [program, "--kubeconfig", plane.kubeconfig, "--cache-dir", cache, *arguments]


def run(plane: ControlPlane, command: Sequence[str | Path]) -> Run:
    """The run of a command against that cluster."""
    before = requests(plane)
    cost = processes.cost(command, plane.directory / "cache", {"KUBECONFIG": str(plane.kubeconfig)})
    return Run(cost, since(before, plane))


def requests(plane: ControlPlane) -> dict[str, int]:
    """The requests so far by verb, as the API server counted them: those for objects and
    discovery, without its own.
    """
    text = _metrics(plane)
    result: dict[str, int] = {}
    for labels, count in re.findall(r"^apiserver_request_total\{([^}]*)\} (\S+)", text, re.M):
        sample = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        # the API server itself watches, renews its lease, and keeps these up to date
        if sample["verb"] == "WATCH" or sample.get("resource") in ("leases", "endpointslices"):
            continue
        verb = sample["verb"] + (" (dry run)" if sample.get("dry_run") else "")
        result[verb] = result.get(verb, 0) + int(float(count))
    return result


def since(before: Mapping[str, int], plane: ControlPlane) -> dict[str, int]:
    """The requests by verb since a count."""
    return {
        verb: count - before.get(verb, 0)
        for verb, count in requests(plane).items()
        if count > before.get(verb, 0)
    }


def _metrics(plane: ControlPlane) -> str:
    request = urllib.request.Request(
        plane.url + "/metrics", headers={"Authorization": f"Bearer {plane.token}"}
    )
    with urllib.request.urlopen(
        request, context=ssl.create_default_context(cafile=str(plane.ca))
    ) as reply:
        return str(reply.read().decode())


def summary(requests: Mapping[str, int]) -> str:
    """The requests by verb, as text."""
    return "requests: " + (
        ", ".join(f"{count} {verb}" for verb, count in sorted(requests.items())) or "none"
    )


def show(what: str, ours: Sequence[Run], theirs: Sequence[Run], goal: float | None) -> None:
    """The medians of both, the ratio of their wall with its goal, and the requests."""
    own, peer = median(_walls(ours)), median(_walls(theirs))
    wanted = "" if goal is None else f" (wanted: {goal})"
    print(
        f"{what}: wall {own:.2f} s ({min(_walls(ours)):.2f}-{max(_walls(ours)):.2f}), "
        f"{own / peer:.2f} of kubectl's {peer:.2f} s{wanted}; CPU {_cpus(ours):.2f} s, kubectl's "
        f"{_cpus(theirs):.2f} s\n    {summary(ours[-1].requests)}\n    kubectl's "
        f"{summary(theirs[-1].requests)}",
        flush=True,
    )


def _walls(runs: Sequence[Run]) -> list[float]:
    return [one.cost.wall for one in runs]


def _cpus(runs: Sequence[Run]) -> float:
    return median(one.cost.cpu for one in runs)
