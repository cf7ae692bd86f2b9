"""Freed memory returns to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc, ru_minflt")

# A block that is freed would raise the threshold; the next ones would then be part of the heap.
SCRIPT = """
import re
from pathlib import Path
from gitops_ds.service import event_loop

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

event_loop.return_large_blocks()
bytes(16 * 2**20)
blocks, kept = [], []
for _ in range(40):
    blocks.append(bytearray(b"x") * 2**20)
    kept.append([bytes(600) for _ in range(100)])
full = resident()
del blocks
print(full - resident())
"""


# Like a TLS read: a buffer of 256 KiB, of which a few bytes stay.
READS = """
import os, resource, tempfile
from gitops_ds.service import event_loop

event_loop.return_large_blocks()
with tempfile.TemporaryFile() as file:
    file.write(b"x" * 3000)
    file.flush()
    kept = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(1000):
        kept.append(os.pread(file.fileno(), 256 * 1024, 0))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def printed(script: str) -> float:
    """The number that a script prints in a process of its own: the allocator is one for each."""
    command = [sys.executable, "-c", script]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_the_buffer_of_a_read_is_not_mapped_again_by_each_read() -> None:
    assert printed(READS) < 1500  # the 3,000 bytes of each are a page at most


def test_large_blocks_between_small_ones_that_are_kept_are_returned() -> None:
    assert printed(SCRIPT) > 35
