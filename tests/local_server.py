"""A real server of another project on a free port of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from tests import controlplane
from tests.controlplane import ROOT

PATIENCE = 120.0  # seconds


@cache
def program(name: str) -> Path:
    """The program, built by `scripts/NAME` if it is missing."""
    script = [ROOT / "scripts" / name]
    built = subprocess.run(script, stdout=subprocess.PIPE, text=True, check=True)
    return Path(built.stdout.strip()) / name


class LocalServer:
    """A process in its own directory, with its log in `out.log`."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.port = directory, controlplane.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    def stop(self) -> None:
        """Kills it."""
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        is_ready: Callable[[], bool],
    ) -> None:
        """Starts it, and returns when it is ready."""
        with (self.directory / "out.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env={"PATH": os.environ["PATH"], "HOME": str(self.directory), **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.until(is_ready)

    def until(self, holds: Callable[[], bool]) -> None:
        """Polls it, since it sends no notification. Connection errors are ignored."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            assert self.process is not None
            assert self.process.poll() is None, self._log
            with contextlib.suppress(OSError):
                if holds():
                    return
            time.sleep(0.05)
        raise TimeoutError(self._log)

    @property
    def _log(self) -> str:
        return (self.directory / "out.log").read_text()[-2000:]
