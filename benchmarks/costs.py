"""Function calls of five works, each in a new process with its imports: figures that no machine and
no other work changes. `tests/benchmarks/test_costs.py` compares them with the recorded ones.

python -m benchmarks costs prints them, and writes tests/benchmarks/costs.json.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

if TYPE_CHECKING:
    from types import FrameType

_ROOT = Path(__file__).parents[1]
RECORDED = _ROOT / "tests/benchmarks/costs.json"
_FILES, _NODES, _STAGED = 40, 100, 20

P = ParamSpec("P")


def main() -> None:
    before = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    measured = costs()
    for work, count in measured.items():
        ratio = f", {count / before[work]:.2f} of the recorded ones" if work in before else ""
        print(f"{work}: {count:,} calls{ratio}")
    RECORDED.write_text(json.dumps(measured, indent=2) + "\n")


def costs() -> Mapping[str, int]:
    """The number of calls of each work."""
    from benchmarks import inputs

    with tempfile.TemporaryDirectory() as folder:
        inputs.write(Path(folder), _FILES)
        return {work: _in_new_process(work, folder) for work in _WORKS}


def _in_new_process(work: str, folder: str) -> int:
    command = (sys.executable, "-m", __name__, work, folder)
    return int(subprocess.run(command, cwd=_ROOT, capture_output=True, check=True).stdout)


def calls(work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> int:
    """The number of function calls of a function, including calls of C functions."""
    count = 0

    def add(_frame: FrameType, event: str, _function: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(add)
    try:
        work(*args, **kwargs)
    finally:
        sys.setprofile(None)
    return count


def _command(*words: str) -> int:
    """The calls of a command with its imports."""

    def run() -> None:
        from gitops_ds import cli

        cli.execute(words)

    with contextlib.redirect_stdout(io.StringIO()):
        return calls(run)


def _decision() -> int:
    """The calls of a decision in the middle of a rollout."""
    from benchmarks import decide
    from gitops_ds.testing.simulator import virtual_time

    cache = decide.filled(virtual_time.run(decide.half_way(_NODES)))
    return calls(decide.turn, cache)


def _rollout() -> int:
    """The calls of a rollout in stages, in virtual time."""
    from benchmarks import stages
    from gitops_ds.rollouts.decisions import staged_forecast

    old, new = stages.templates()
    nodes = staged_forecast.RolloutNodes(stages.census()[:_STAGED], most_looks=_STAGED * 1_000)
    return calls(staged_forecast.of, old, new, stages.POLICY, nodes)


_WORKS: Mapping[str, Callable[[str], int]] = {
    "start": lambda folder: _command("--help"),
    "check": lambda folder: _command("check", "-q", "--no-cache", "-o", "json", folder),
    "plan": lambda folder: _command("plan", "--simulate", str(_NODES), folder),
    "decision": lambda folder: _decision(),
    "rollout": lambda folder: _rollout(),
}

if __name__ == "__main__":
    print(_WORKS[sys.argv[1]](sys.argv[2]))
