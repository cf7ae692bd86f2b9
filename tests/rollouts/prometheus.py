"""A real Prometheus on a free port of this machine, built by `scripts/prometheus`, and an exporter
that it scrapes each second.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests import controlplane
from tests.controlplane import ROOT

PATIENCE = 60.0  # seconds
CONFIGURATION = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: agents
  static_configs: [{{targets: ["{target}"]}}]
"""


@cache
def programs() -> Path:
    """The directory with the program, which is built if it is missing."""
    done = subprocess.run(
        [ROOT / "scripts/prometheus"], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(done.stdout.strip())


class Exporter:
    """An HTTP server of metrics: `text` returns what it serves next, by default nothing."""

    def __init__(self) -> None:
        self.text: Callable[[], str] = str
        exporter = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = exporter.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def target(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Prometheus:
    """A running server that scrapes one target."""

    def __init__(self, directory: Path, target: str) -> None:
        self.directory, self.target = directory, target
        self.port = controlplane.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Prometheus:
        """Returns when it answers queries."""
        self.directory.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "prometheus.yml"
        configuration.write_text(CONFIGURATION.format(target=self.target))
        command = [
            str(programs() / "prometheus"),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        with (self.directory / "out.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env={"PATH": os.environ["PATH"], "HOME": str(self.directory)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._until(self._is_ready)
        return self

    def stop(self) -> None:
        """Ends it."""
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def query(self, text: str) -> list[tuple[dict[str, str], str]]:
        """The labels and values of an instant query."""
        words = urllib.parse.urlencode({"query": text})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{words}", timeout=30) as reply:
            found = json.loads(reply.read())["data"]["result"]
        return [(one["metric"], one["value"][1]) for one in found]

    def until_scraped(self, text: str) -> None:
        """Returns when a query has a result."""
        self._until(lambda: bool(self.query(text)))

    def _is_ready(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/-/ready", timeout=30) as reply:
            return bool(reply.status == 200)

    def _until(self, holds: Any) -> None:
        """Polls it: nothing announces a scrape."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            assert self.process is not None
            log = (self.directory / "out.log").read_text()[-2000:]
            assert self.process.poll() is None, log
            with contextlib.suppress(OSError):
                if holds():
                    return
            time.sleep(0.05)
        raise TimeoutError((self.directory / "out.log").read_text()[-2000:])


@contextlib.contextmanager
def scraped(directory: Path) -> Iterator[tuple[Prometheus, Exporter]]:
    """A server and the exporter that it scrapes."""
    exporter = Exporter()
    server = Prometheus(directory, exporter.target)
    try:
        yield server.start(), exporter
    finally:
        server.stop()
        exporter.stop()
