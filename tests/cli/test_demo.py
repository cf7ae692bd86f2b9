"""The demo leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cluster.program import PROGRAM


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT], ids=lambda one: one.name)
def test_a_signal_leaves_no_directory(tmp_path: Path, ending: signal.Signals) -> None:
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "HOME": str(tmp_path),
        "GITOPS_DS_CACHE": str(tmp_path / "cache"),
    }
    words = (PROGRAM, "demo", "--page", "--speed", "50")
    with subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(ending)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == []
