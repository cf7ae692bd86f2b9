"""A real Prometheus on a free port of this machine, built by `scripts/prometheus`, and an exporter
that it scrapes each second.
"""

from __future__ import annotations

import contextlib
import json
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.http_servers import Reply, http_server
from tests.local_server import LocalServer, program

CONFIGURATION = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: agents
  static_configs: [{{targets: ["{target}"]}}]
"""


@dataclass
class Exporter:
    """Metrics on an HTTP server: `text` returns what it serves next, by default nothing."""

    text: Callable[[], str] = str

    def answer(self, *_: object) -> Reply:
        """The metrics, in the text format."""
        headers = {"Content-Type": "text/plain; version=0.0.4"}
        return Reply(self.text().encode(), headers=headers)


class Prometheus(LocalServer):
    """A running server that scrapes one target."""

    def __init__(self, directory: Path, target: str) -> None:
        super().__init__(directory)
        self.target = target

    def start(self) -> Prometheus:
        """Returns when it answers queries."""
        configuration = self.directory / "prometheus.yml"
        configuration.write_text(CONFIGURATION.format(target=self.target))
        command = [
            str(program("prometheus")),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        self.run(command, {}, self._is_ready)
        return self

    def query(self, text: str) -> list[tuple[dict[str, str], str]]:
        """The labels and values of an instant query."""
        words = urllib.parse.urlencode({"query": text})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{words}", timeout=30) as reply:
            found = json.loads(reply.read())["data"]["result"]
        return [(one["metric"], one["value"][1]) for one in found]

    def until_scraped(self, text: str) -> None:
        """Returns when a query has a result."""
        self.until(lambda: bool(self.query(text)))

    def _is_ready(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/-/ready", timeout=30) as reply:
            return bool(reply.status == 200)


@contextlib.contextmanager
def scraped(directory: Path) -> Iterator[tuple[Prometheus, Exporter]]:
    """A server and the exporter that it scrapes."""
    exporter = Exporter()
    with http_server(exporter.answer) as url:
        server = Prometheus(directory, url.removeprefix("http://"))
        try:
            yield server.start(), exporter
        finally:
            server.stop()
