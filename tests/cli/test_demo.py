"""The demo leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from gitops_ds.cli import demo
from gitops_ds.core.daemonset import Counts, DaemonSet
from gitops_ds.core.decision import Observation
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.health import Health, HealthState, NodeCounts
from gitops_ds.core.objects import Key
from gitops_ds.core.values import replace
from gitops_ds.status.agents import Agent
from tests.cluster.program import PROGRAM


@pytest.mark.sampled
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT], ids=lambda one: one.name)
@pytest.mark.slow
def test_a_signal_leaves_no_directory(tmp_path: Path, ending: signal.Signals) -> None:
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "HOME": str(tmp_path),
        "GITOPS_DS_CACHE": str(tmp_path / "cache"),
    }
    words = (PROGRAM, "demo", "--page", "--speed", "50")
    with subprocess.Popen(
        words,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_interruptible,  # noqa: PLW1509  none of our threads runs between fork and exec
    ) as process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(ending)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == []


def _interruptible() -> None:
    """A background job of a shell without job control ignores SIGINT, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def agent(updated: int) -> Agent:
    """An agent of four nodes in a rollout."""
    key = Key("apps", "DaemonSet", "logging", "agent")
    seen = replace(DaemonSet(key, "", {}, {}, ()), counts=Counts(desired=4))
    health = Health(HealthState.PROGRESSING, "", node_counts=NodeCounts(updated=updated))
    return Agent(Observation(0.0, seen, ()), health, DeployerState())


def test_the_title_of_the_table_has_the_nodes_done_and_the_time_left() -> None:
    title = demo.TableTitle()
    begin = "agent: Progressing, "
    assert title.text(agent(0), 10) == f"{begin}0 of 4 nodes done, cluster time 10 s"
    left = "1 of 4 nodes done, about 60 s left"
    assert title.text(agent(1), 30) == f"{begin}{left}, cluster time 30 s"
    assert title.text(agent(4), 90) == f"{begin}4 of 4 nodes done, cluster time 90 s"
    # another rollout begins
    assert title.text(agent(1), 100) == f"{begin}1 of 4 nodes done, cluster time 100 s"
    left = "2 of 4 nodes done, about 20 s left"
    assert title.text(agent(2), 110) == f"{begin}{left}, cluster time 110 s"
