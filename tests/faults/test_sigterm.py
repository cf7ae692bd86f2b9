"""SIGTERM at any instant: the service ends within five seconds, leaves nothing half done, and the
next one continues.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests import controlplane, gitservers
from tests.faults.fleets import agents, image, images, there
from tests.service.test_service import running, until
from tests.stopping import asked_to_stop

pytestmark = [
    pytest.mark.slow,
    pytest.mark.controlplane,
    pytest.mark.system,
    pytest.mark.xdist_group("faults"),
]
AGENTS, TIMES = 30, 20
COMMIT = "gitops-ds.io/commit"


def test_twenty_times_at_any_instant(
    tmp_path: Path, plane: controlplane.ControlPlane, space: str
) -> None:
    upstream, chance = gitservers.Upstream(tmp_path / "fleet"), random.Random(20)
    words = ("-C", str(upstream.path), "--interval", "1s")
    commits: dict[str, str] = {}
    for tag in range(1, TIMES + 1):
        commits[upstream.commit(agents(space, AGENTS, tag))] = image(tag)
        with running(tmp_path, plane, *words) as (process, log):
            if tag % 5 == 0:  # before it is anything
                time.sleep(chance.uniform(0.0, 0.5))
                assert asked_to_stop(process, log) in (0, -signal.SIGTERM)
            else:
                until(lambda log=log: "ready: " in log.read_text(), log.read_text)  # type: ignore[misc]
                time.sleep(chance.uniform(0.0, 1.5))
                assert asked_to_stop(process, log) == 0
        # each is complete: as in one commit, and with the hash of its content
        for body in there(plane, space).values():
            containers = body["spec"]["template"]["spec"]["containers"]
            assert [container["image"] for container in containers] == [
                commits[body["metadata"]["annotations"][COMMIT]]
            ]
        assert not list((tmp_path / "cache").rglob("access-*"))
        assert not list((tmp_path / "cache").rglob("*.lock"))
    with running(tmp_path, plane, *words) as (_, log):
        until(lambda: list(images(plane, space).values()) == [image(TIMES)] * AGENTS, log.read_text)


def test_while_the_git_server_hangs(tmp_path: Path, plane: controlplane.ControlPlane) -> None:
    with (
        gitservers.silent_server() as port,
        running(tmp_path, plane, "-C", f"https://127.0.0.1:{port}/fleet", "--interval", "1s") as (
            process,
            log,
        ),
    ):
        until(lambda: "ready: " in log.read_text(), log.read_text)
        until(lambda: bool(list((tmp_path / "cache").rglob("access-*"))), log.read_text)
        time.sleep(0.5)
        assert asked_to_stop(process, log) == 0
        assert not list((tmp_path / "cache").rglob("access-*"))


def test_while_the_api_server_hangs(
    tmp_path: Path, plane: controlplane.ControlPlane, space: str
) -> None:
    upstream = gitservers.Upstream(tmp_path / "fleet")
    upstream.commit(agents(space, AGENTS))
    with running(tmp_path, plane, "-C", str(upstream.path), "--interval", "1s") as (process, log):
        until(lambda: len(there(plane, space)) >= AGENTS // 3, log.read_text)
        server = plane.processes["apiserver"]
        server.send_signal(signal.SIGSTOP)
        try:
            assert asked_to_stop(process, log) == 0
        finally:
            server.send_signal(signal.SIGCONT)
