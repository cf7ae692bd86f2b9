"""The process of the service: errors that its event loop reports, and memory that returns to the
system.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import subprocess
import sys

import pytest

from gitops_ds.service import event_loop


class Connection(asyncio.Transport):
    def __init__(self, *, closed: bool) -> None:
        super().__init__()
        self._closed = closed

    def is_closing(self) -> bool:
        return self._closed


HANDLE = RuntimeError(
    "unable to perform operation on <TCPTransport closed=True reading=False 0x1>; the handler is "
    "closed"
)


@pytest.mark.parametrize(
    ("error", "closed", "reported"),
    [
        (ssl.SSLError("bad record"), True, False),
        (ssl.SSLError("bad record"), False, True),
        (HANDLE, False, False),
        (RuntimeError("another"), False, True),
    ],
)
def test_only_a_tls_error_on_a_closed_connection_is_not_reported(
    caplog: pytest.LogCaptureFixture, error: Exception, *, closed: bool, reported: bool
) -> None:
    loop = asyncio.new_event_loop()
    try:
        with caplog.at_level(logging.ERROR, "asyncio"):
            event_loop.report(
                loop,
                {
                    "message": "Fatal error on SSL protocol",
                    "exception": error,
                    "transport": Connection(closed=closed),
                },
            )
            event_loop.report(loop, {"message": "Task exception was never retrieved"})
    finally:
        loop.close()
    messages = [record.getMessage().splitlines()[0] for record in caplog.records]
    assert messages == ["Fatal error on SSL protocol"] * reported + [
        "Task exception was never retrieved"
    ]


on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc, ru_minflt")

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


@on_linux
def test_the_buffer_of_a_read_is_not_mapped_again_by_each_read() -> None:
    assert printed(READS) < 1500  # the 3,000 bytes of each are a page at most


@on_linux
def test_large_blocks_between_small_ones_that_are_kept_are_returned() -> None:
    assert printed(SCRIPT) > 35
