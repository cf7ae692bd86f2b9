"""A minute of fuzzing with a fixed seed and number of inputs, and all earlier failures. `make fuzz`
runs for an hour.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import targets

RUNS = {"manifest": 500, "repository": 120, "answers": 250, "reports": 400}


@pytest.mark.parametrize("target", targets.TARGETS)
@pytest.mark.slow
def test_the_seeds_and_the_earlier_failures_of_the_fuzzer_pass(target: str) -> None:
    for data in targets.seeds(target):
        targets.TARGETS[target](data)


@pytest.mark.slow
@pytest.mark.parametrize("target", targets.TARGETS)
def test_random_bytes(target: str, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.fuzz",
        target,
        f"-runs={RUNS[target]}",
        "-seed=1",
        "-timeout=60",
        "-rss_limit_mb=2048",
        "-max_len=8000",
    ]
    done = subprocess.run(
        [*command, f"-artifact_prefix={tmp_path}/"],
        cwd=targets.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    kept = "".join(f"\n{path.name}: {path.read_bytes()!r}" for path in tmp_path.iterdir())
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:] + kept
