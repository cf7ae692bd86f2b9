"""Freed memory returns to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

# A block that is freed would raise the threshold; the next ones would then be part of the heap.
SCRIPT = """
import re
from pathlib import Path
from gitops_ds.service import allocator

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

allocator.return_large_blocks()
bytes(16 * 2**20)
blocks, kept = [], []
for _ in range(40):
    blocks.append(bytearray(b"x") * 2**20)
    kept.append([bytes(600) for _ in range(100)])
full = resident()
del blocks
print(full - resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_large_blocks_between_small_ones_that_are_kept_are_returned() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert float(run.stdout) > 35
