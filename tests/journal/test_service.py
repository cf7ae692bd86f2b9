"""The service's own journal: written while it works, left by a kill, and replayed."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest

from gitops_ds.controller.journal import files, replay
from tests import controlplane
from tests.cluster import program
from tests.plan.world import daemonset
from tests.service.test_service import PROGRAM, running, until

pytestmark = pytest.mark.controlplane
PLANES = {"observe": "control_plane", "full": "control_plane_without_daemonsets"}
_numbers = itertools.count()


def turns(journal: Path, space: str) -> int:
    """How many turns of that namespace's DaemonSets can be read just now."""
    found = (read for file in files.files(journal) for read in replay.turns(file))
    return sum(
        1
        for read in found
        if not isinstance(read, replay.Unread) and read[1].daemonset.namespace == space
    )


@pytest.mark.parametrize("powers", PLANES)
def test_a_service_that_was_killed_leaves_a_journal_that_replays(
    tmp_path: Path, powers: str, request: pytest.FixtureRequest
) -> None:
    plane: controlplane.ControlPlane = request.getfixturevalue(PLANES[powers])
    space, journal = f"journal-{next(_numbers)}", tmp_path / "journal"
    plane.kubectl("create", "namespace", space)
    with running(tmp_path, plane, "--powers", powers, "--journal", str(journal)) as (process, log):
        plane.request(
            "POST",
            f"/apis/apps/v1/namespaces/{space}/daemonsets",
            daemonset("agent", "example.com/agent:1", space),
        )
        program.rolled_out(plane, space, "agent")
        until(lambda: turns(journal, space) > 0, log.read_text)
        process.kill()
        process.wait()
    done = subprocess.run(
        [PROGRAM, "replay", journal], stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "no differences" in done.stdout
    assert "Traceback" not in log.read_text()
