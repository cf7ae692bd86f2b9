"""The program in a user's environment: a separate home, without kubeconfig and settings of this
machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.cluster import program

PROGRAMS = Path(sys.executable).parent
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a user after the installation."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = Dana\n\temail = dana@example.com\n")
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "KUBECONFIG": str(home / "none"),
    }


@pytest.fixture
def run(tmp_path: Path, environment: Mapping[str, str]) -> Run:
    """Runs a command in `desk/` or `cwd`, and returns its output and exit code.

    `gitops-ds` runs in this process; the pages' own commands (test_pages.py) start the installed
    program.
    """
    desk = tmp_path / "desk"
    desk.mkdir()

    def given(
        *command: str | Path, cwd: Path = desk, **more: str
    ) -> subprocess.CompletedProcess[str]:
        if command[0] == "gitops-ds":
            words = tuple(str(word) for word in command[1:])
            ended = program.in_this_process(words, cwd, {**environment, **more})
            return subprocess.CompletedProcess(command, ended.code, ended.out, ended.err)
        return subprocess.run(
            command,
            cwd=cwd,
            env={**environment, **more},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    return given
