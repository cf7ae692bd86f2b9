"""Manual run: `python -m tests.truth --count 6000 --seed 1`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.controlplane import ControlPlane, Wanted
from tests.truth import verdicts

parser = argparse.ArgumentParser(
    description="Our verdict on mutated manifests against that of a real API server"
)
parser.add_argument("--count", type=int, default=6000)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--only", type=int, help="one case: its file and both verdicts")
options = parser.parse_args()
with tempfile.TemporaryDirectory() as directory:
    server = ControlPlane(Path(directory), Wanted(controllers=False)).start()
    try:
        wanted = list(
            verdicts.cases(
                options.seed, options.count if options.only is None else options.only + 1
            )
        )
        found = asyncio.run(
            verdicts.judged(server, wanted if options.only is None else wanted[-1:])
        )
    finally:
        server.stop()
if options.only is not None:
    sys.stdout.write(f"{found[0].case.data.decode()}\n{found[0]}\n")
else:
    sys.stdout.write(verdicts.summary(options.seed, found) + "\n")
