"""The program as a user runs it: its exit code and output; and a repository with a work tree for
it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gitops_ds import cli
from tests import controlplane
from tests.gitservers import GIT_ENVIRONMENT, git

PROGRAM = Path(sys.executable).parent / "gitops-ds"
T = TypeVar("T")


@dataclass(frozen=True)
class Ended:
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Desk:
    """A user's machine: a work tree, a bare repository as its remote, and a kubeconfig.

    Commands run `inside` a directory, else in the tree.
    """

    directory: Path
    kubeconfig: Path
    environment: dict[str, str]
    inside: Path | None = None

    @property
    def tree(self) -> Path:
        return self.directory / "tree"

    @property
    def origin(self) -> str:
        return f"file://{self.directory}/origin.git"

    def git(self, *words: str) -> str:
        return git(self.tree, *words)

    def write(self, name: str, content: str | dict[str, Any] | None) -> None:
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.unlink()
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))

    def commit(self, message: str, **files: str | dict[str, Any] | None) -> str:
        """The id of a commit with these files: `agent=...` is agent.yaml; pushed."""
        for name, content in files.items():
            self.write(f"{name}.yaml", content)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        self.git("push", "--quiet", "origin", "HEAD:main")
        return self.git("rev-parse", "HEAD")

    def run(self, *words: str, kubeconfig: Path | None = None) -> Ended:
        """Runs a command in this process, without the half second of CPU of the start of one."""
        ended = in_this_process(words, self.inside or self.tree, self._variables(kubeconfig))
        assert "Traceback" not in ended.err, ended.err
        return ended

    def run_program(self, *words: str, kubeconfig: Path | None = None) -> Ended:
        """Runs the installed program."""
        run = subprocess.run(
            (PROGRAM, *words),
            cwd=self.inside or self.tree,
            env=self._variables(kubeconfig),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "Traceback" not in run.stderr, run.stderr
        return Ended(run.returncode, run.stdout, run.stderr)

    def _variables(self, kubeconfig: Path | None) -> dict[str, str]:
        return {**self.environment, "KUBECONFIG": str(kubeconfig or self.kubeconfig)}


def in_this_process(
    words: Iterable[str | Path], directory: Path, variables: Mapping[str, str]
) -> Ended:
    """Runs a command as the installed program does, in a directory and with these variables only,
    without the start of a process.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with (
        contextlib.chdir(directory),
        _environment(variables),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = cli.execute(tuple(str(word) for word in words))
        out.flush()
        err.flush()
    printed = (stream.buffer.getvalue().decode() for stream in (out, err))
    return Ended(code, *printed)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def desk(directory: Path, kubeconfig: Path) -> Desk:
    """A new desk whose repository is empty."""
    home = directory / "home"
    home.mkdir(parents=True)
    environment = {
        **GIT_ENVIRONMENT,
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "GITOPS_DS_CACHE": str(directory / "cache"),
    }
    made = Desk(directory, kubeconfig, environment)
    made.tree.mkdir()
    for words in (
        ("init", "--quiet", "--bare", "--initial-branch=main", str(directory / "origin.git")),
        ("init", "--quiet", "--initial-branch=main"),
        ("remote", "add", "origin", str(directory / "origin.git")),
        ("config", "user.name", "Ada"),
        ("config", "user.email", "ada@example.com"),
    ):
        made.git(*words)
    return made


def eventually(look: Callable[[], T], good: Callable[[T], bool], seconds: float = 60.0) -> T:
    """The first value for which the condition is true. Fails with the last value after the time
    limit.
    """
    deadline = time.monotonic() + seconds
    while not good(seen := look()):
        assert time.monotonic() < deadline, f"still so after {seconds:g} seconds: {seen}"
        time.sleep(0.05)
    return seen


def account(plane: controlplane.ControlPlane, space: str, name: str, role: str, file: Path) -> Path:
    """The kubeconfig of a new ServiceAccount with a ClusterRole on the whole cluster."""
    plane.kubectl("-n", space, "create", "serviceaccount", name)
    bound = (f"--clusterrole={role}", f"--serviceaccount={space}:{name}")
    plane.kubectl("create", "clusterrolebinding", f"{space}-{name}", *bound)
    config = json.loads(plane.kubeconfig.read_text())
    token = plane.kubectl("-n", space, "create", "token", name).strip()
    config["users"][0]["user"] = {"token": token}
    file.write_text(json.dumps(config))
    return file


def rolled_out(plane: controlplane.ControlPlane, namespace: str, name: str) -> None:
    """Waits by kubectl until a DaemonSet is rolled out."""
    plane.kubectl("-n", namespace, "rollout", "status", f"ds/{name}", "--timeout=90s")
