"""Stops a service, and measures the time on a shared machine."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from pathlib import Path


def asked_to_stop(process: subprocess.Popen[bytes], log: Path) -> int:
    """Its exit code, within the time limit, without the time that it waited for a core of a busy
    machine.
    """
    began, before, waited = time.monotonic(), for_a_core(process.pid), 0.0
    process.send_signal(signal.SIGTERM)
    while process.poll() is None:
        waited = max(waited, for_a_core(process.pid) - before)
        time.sleep(0.01)
    assert time.monotonic() - began - waited < 5, (waited, log.read_text())
    assert "Traceback" not in log.read_text(), log.read_text()
    return process.wait()


def for_a_core(pid: int) -> float:
    """Seconds for which its threads were ready but not running.
    https://docs.kernel.org/scheduler/sched-stats.html
    """
    waited = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            waited += int(thread.read_text().split()[1])
    return waited / 1e9
