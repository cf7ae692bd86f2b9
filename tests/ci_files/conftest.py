"""The files for CIs run as in a CI; they install from a directory of wheels that is built once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.agent_manifest import agent
from tests.ci_files import files
from tests.gitservers import git


class Work:
    """A repository of agents: `upstream` is the server's, `clone` that of a user or a job."""

    def __init__(self, directory: Path) -> None:
        self.upstream, self.clone = directory / "upstream.git", directory / "clone"
        init = ("init", "--quiet", "--initial-branch=main")
        git(directory, *init, "--bare", str(self.upstream))
        git(self.upstream, "config", "uploadpack.allowAnySHA1InWant", "true")
        git(directory, *init, str(self.clone))
        self.git("remote", "add", "origin", self.upstream.as_uri())
        (self.clone / "other.yaml").write_text(agent("other"))
        self.write("agent")
        self.commit("agents")
        self.git("push", "--quiet", "origin", "main")

    def write(self, label: str) -> None:
        """Writes the manifest with that label; `agent` is the valid one."""
        (self.clone / "agent.yaml").write_text(agent(label=label))

    def commit(self, message: str) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self.git("rev-parse", "HEAD")

    def git(self, *words: str) -> str:
        return git(self.clone, *words)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment in which pip finds the program and all it needs in one directory, and uses no
    index.

    The packages are those of the lock file, with their hashes, and of them what builds the program.
    """
    house = tmp_path_factory.mktemp("wheels")
    words = ("--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", house)
    pip = (sys.executable, "-m", "pip", "wheel", *words)
    subprocess.run([*pip, "--require-hashes", "-r", files.LOCK], check=True)
    subprocess.run([*pip, "--no-build-isolation", files.ROOT], check=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(house),
        "PIP_NO_INDEX": "1",
        "PIP_COMPILE": "0",  # half of the CPU of an installation
        "PIP_FIND_LINKS": str(house),
        "LC_ALL": "C.UTF-8",
    }
