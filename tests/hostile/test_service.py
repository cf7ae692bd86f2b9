"""One service follows more than twenty hostile repositories, and a good one among them."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests import controlplane, gitservers, renderers
from tests.hostile import corpus
from tests.plan.world import daemonset
from tests.service.test_service import running, until
from tests.stopping import asked_to_stop

pytestmark = [
    pytest.mark.slow,
    pytest.mark.controlplane,
    pytest.mark.system,
    pytest.mark.renderers,
    pytest.mark.xdist_group("hostile"),
]
DEPLOYMENT = Path(__file__).parents[2] / "deploy/base/deployment.yaml"
PROBE_SECONDS = 5.0  # the kubelet's timeout
# The time of a chart that never ends, which uses a core for as long; tests/service/
# test_prepare_process.py checks the default.
RENDER_TIMEOUT = "5s"
# Of the hostile repositories. Each fetch of some takes a second of a core, for the limit of memory.
INTERVAL, RETRY_INTERVAL = "60s", "10s"


def limit_of_the_pod() -> int:
    container = YAML(typ="safe").load(DEPLOYMENT.read_text())["spec"]["template"]["spec"][
        "containers"
    ][0]
    limit = container["resources"]["limits"]["memory"]
    assert limit.endswith("Mi")
    return int(limit.removesuffix("Mi")) << 20


class Watch(threading.Thread):
    """Requests /healthz repeatedly, and adds up the memory of the service with all that it
    started, meanwhile.
    """

    def __init__(self, port: int, pid: int) -> None:
        super().__init__(daemon=True)
        self.port, self.pid = port, pid
        self.over = threading.Event()
        self.answers = 0
        self.unanswered: list[str] = []
        self.most, self.processes = 0, ""

    def run(self) -> None:
        while not self.over.wait(0.1):
            self._measure()
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{self.port}/healthz", timeout=PROBE_SECONDS
                ) as reply:
                    self.answers += reply.status == 200
            except OSError as error:
                if self.answers:  # it listens
                    self.unanswered.append(str(error))

    def _measure(self) -> None:
        sizes = {}
        for pid in _tree(self.pid):
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                kib = sum(
                    int(line.split()[1])
                    for line in lines
                    if line.startswith(("Pss_Anon:", "Pss_Shmem:"))
                )
                sizes[
                    Path(f"/proc/{pid}/cmdline")
                    .read_bytes()[-60:]
                    .replace(b"\0", b" ")
                    .decode("utf-8", "replace")
                ] = kib << 10
        if sum(sizes.values()) > self.most:
            self.most, self.processes = sum(sizes.values()), str(sizes)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in file.read_text().split():
                yield from _tree(int(child))


def image(tag: int) -> str:
    return f"registry.example.com/good:{tag}"


def good(space: str, tag: int) -> dict[str, str]:
    return {"agent.json": json.dumps(daemonset("good", image(tag), space))}


def settings(tmp_path: Path, hostile: list[Path], fleet: Path) -> Path:
    intervals = {**dict.fromkeys(hostile, (INTERVAL, RETRY_INTERVAL)), fleet: ("1s", "1s")}
    content: dict[str, Any] = {
        "render": {"timeout": RENDER_TIMEOUT},
        "repositories": [
            {"url": str(path), "interval": interval, "retryInterval": retry, "allowLocal": True}
            for path, (interval, retry) in intervals.items()
        ],
    }
    file = tmp_path / "settings.yaml"
    file.write_text(json.dumps(content))
    return file


def test_others_go_on_probes_are_answered_memory_stays_below_the_pods_limit_and_sigterm_ends_it(
    tmp_path: Path, api_server: controlplane.ControlPlane
) -> None:
    space, port, limit = "hostile", controlplane.free_port(), limit_of_the_pod()
    api_server.kubectl("create", "namespace", space)
    everyone = list(corpus.every())
    upstreams = {one.name: gitservers.Upstream(tmp_path / one.name) for one in everyone}
    for one in everyone:
        one.make(upstreams[one.name])
    fleet = gitservers.Upstream(tmp_path / "good")
    fleet.commit(good(space, 1))
    file = settings(tmp_path, [upstream.path for upstream in upstreams.values()], fleet.path)
    words = ("--settings", str(file), "--listen", f"127.0.0.1:{port}")
    variables = {
        "GITOPS_DS_MEMORY_LIMIT": str(limit),
        "PATH": f"{renderers.programs()}:{os.environ['PATH']}",
    }

    def runs() -> str:
        return " ".join(
            body["spec"]["template"]["spec"]["containers"][0]["image"]
            for body in api_server.items(space, "daemonsets")
        )

    with running(tmp_path, api_server, *words, **variables) as (process, log):
        watch = Watch(port, process.pid)
        watch.start()
        for tag in (1, 2, 3):
            began = time.monotonic()
            fleet.commit(good(space, tag))
            until(lambda tag=tag: runs() == image(tag), log.read_text, 600)  # type: ignore[misc]
            print(f"commit {tag} of the good repository after {time.monotonic() - began:.0f} s")
        until(lambda: not unready(port), lambda: f"{unready(port)}\n{log.read_text()}", 900)
        watch.over.set()
        watch.join()
        assert asked_to_stop(process, log) == 0
    print(f"most memory: {watch.most >> 20} MiB: {watch.processes}")
    assert watch.answers
    assert not watch.unanswered
    assert watch.most < limit, watch.processes


def unready(port: int) -> str:
    """The missing parts in /readyz: none when every repository was read."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60) as reply:
            return "" if reply.status == 200 else str(reply.status)
    except urllib.error.HTTPError as error:
        return error.read().decode()


def test_sigterm_ends_it_while_a_commit_that_never_ends_is_prepared(
    tmp_path: Path, api_server: controlplane.ControlPlane
) -> None:
    endless = next(one for one in corpus.every() if one.name == "schema-two-hundred-of-them")
    upstream = gitservers.Upstream(tmp_path / "endless")
    endless.make(upstream)
    with running(tmp_path, api_server, "-C", str(upstream.path), "--interval", "1s") as (
        process,
        log,
    ):
        until(
            lambda: any("prepare_worker" in commands(pid) for pid in _tree(process.pid)),
            log.read_text,
        )
        assert asked_to_stop(process, log) == 0
        assert not list((tmp_path / "cache" / "attempts").iterdir())


def commands(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""
