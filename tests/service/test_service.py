"""The installed program as a service, against a real API server and a real git server."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import controlplane, gitservers

pytestmark = [pytest.mark.controlplane, pytest.mark.system]
PROGRAM = Path(sys.executable).parent / "gitops-ds"


def until(condition: Callable[[], bool], what: Callable[[], str], seconds: float = 120.0) -> None:
    """Polls until the condition holds; the program sends no other signal."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def read(url: str) -> str:
    """The response; empty while no server listens."""
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            return str(reply.read().decode())
    except OSError:
        return ""


def settings(directory: Path, **groups: Any) -> tuple[str, str]:
    """The options for a settings file of these groups."""
    file = directory / "settings.yaml"
    file.write_text(json.dumps(groups))
    return "--settings", str(file)


def following(upstream: gitservers.Upstream, **more: Any) -> dict[str, Any]:
    """The settings of a repository of this machine."""
    return {"url": str(upstream.path), "allowLocal": True, "interval": "1s", **more}


def command(plane: controlplane.ControlPlane, *options: str) -> tuple[str, ...]:
    """The command line of the service on this cluster."""
    where = ("--kubeconfig", str(plane.kubeconfig), "--state-namespace", "service-test")
    return str(PROGRAM), "run", *where, *options


@contextlib.contextmanager
def started(
    directory: Path, words: tuple[str, ...], **variables: str
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A process, and the file of its log; it is gone afterwards."""
    log, cache = directory / "log", str(directory / "cache")
    environment = {**gitservers.GIT_ENVIRONMENT, "GITOPS_DS_CACHE": cache, **variables}
    with log.open("wb") as stream:
        process = subprocess.Popen(words, stderr=stream, stdout=stream, env=environment)
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


def running(
    directory: Path, plane: controlplane.ControlPlane, *options: str, **variables: str
) -> contextlib.AbstractContextManager[tuple[subprocess.Popen[bytes], Path]]:
    """The service, and the file of its log; it is gone afterwards."""
    return started(directory, command(plane, *options), **variables)


def test_an_unreachable_server_is_reported_once_and_the_service_ends_on_request(
    tmp_path: Path, api_server: controlplane.ControlPlane
) -> None:
    url = f"https://localhost:{controlplane.free_port()}/none"
    with running(tmp_path, api_server, "-C", url, "--interval", "1s") as (process, log):
        until(lambda: "next attempt in" in log.read_text(), log.read_text)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0
        assert log.read_text().count("next attempt in") == 1


def test_wrong_credentials_end_the_start(
    tmp_path: Path, api_server: controlplane.ControlPlane
) -> None:
    with gitservers.http_git_server(tmp_path / "git") as server:
        server.repository("fleet").commit({"a.yaml": "{}"})
        credentials = server.credentials(tmp_path)
        Path(str(credentials["tokenFile"])).write_text("wrong")
        repository = {"url": f"{server.url}/fleet", "credentials": credentials}
        options = settings(tmp_path, repository=repository)
        with running(tmp_path, api_server, *options) as (process, log):
            assert process.wait(30) == 3, log.read_text()
            assert "\nerror: " in log.read_text()
