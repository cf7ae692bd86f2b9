""".pre-commit-hooks.yaml with pre-commit itself: it clones the repository of the hooks, installs it
in an environment, commits.

The clone is made of this tree's files, and pip takes its packages from a directory instead of an
index; all else is as at a desk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.ci_files import files
from tests.ci_files.conftest import Work
from tests.gitservers import GIT_ENVIRONMENT, git

pytestmark = [pytest.mark.slow, pytest.mark.system, pytest.mark.xdist_group("ci_files")]
PROGRAM = Path(sys.executable).with_name("pre-commit")


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A repository with the hooks and the program, and its commit."""
    repository = tmp_path_factory.mktemp("hooks")
    for name in ("gitops_ds", "schemas", "examples-repo"):
        shutil.copytree(
            files.ROOT / name,
            repository / name,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    for name in (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        ".pre-commit-hooks.yaml",
    ):
        shutil.copy(files.ROOT / name, repository)
    subprocess.run(("git", "init", "--quiet", repository), env=GIT_ENVIRONMENT, check=True)
    git(repository, "add", "--all", "--force")
    git(repository, "commit", "--quiet", "--message", "hooks")
    return repository, git(repository, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pre-commit keeps environments."""
    return tmp_path_factory.mktemp("pre-commit")


@pytest.fixture
def desk(
    work: Work, hooks: tuple[Path, str], home: Path, wheels: Mapping[str, str]
) -> Mapping[str, str]:
    """The environment of a user whose repository has both hooks."""
    repository, revision = hooks
    (work.clone / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {repository}\n  rev: {revision}\n  hooks: [{{id: gitops-ds-files}}, "
        f"{{id: gitops-ds-check}}]\n"
    )
    work.commit("hooks")
    return {
        **GIT_ENVIRONMENT,
        **wheels,
        "PRE_COMMIT_HOME": str(home),
        "PATH": f"{PROGRAM.parent}{os.pathsep}{wheels['PATH']}",
    }


def run(work: Work, desk: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=work.clone, env=desk, capture_output=True, text=True, check=False, timeout=600
    )


def test_a_commit_with_an_error_is_stopped_and_one_without_is_created(
    work: Work, desk: Mapping[str, str]
) -> None:
    assert run(work, desk, "pre-commit", "install").returncode == 0
    before = work.git("rev-parse", "HEAD")
    work.write("another")
    work.git("add", "--all")
    stopped = run(work, desk, "git", "commit", "--quiet", "--message", "break it")
    assert stopped.returncode == 1, stopped.stdout + stopped.stderr
    output = stopped.stdout + stopped.stderr
    assert output.count("agent.yaml:5") == 2  # by each hook
    assert "DS101" in output
    assert work.git("rev-parse", "HEAD") == before
    work.write("agent")
    (work.clone / "more.yaml").write_text(
        (work.clone / "agent.yaml").read_text().replace("agent", "more")
    )
    work.git("add", "--all")
    made = run(work, desk, "git", "commit", "--quiet", "--message", "more agents")
    assert made.returncode == 0, made.stdout + made.stderr
    assert work.git("rev-parse", "HEAD") != before


def test_the_hook_for_files_reports_no_other_file(work: Work, desk: Mapping[str, str]) -> None:
    work.write("another")
    work.git("add", "--all")
    other = run(work, desk, "pre-commit", "run", "gitops-ds-files", "--files", "other.yaml")
    assert other.returncode == 0, other.stdout
    broken = run(
        work, desk, "pre-commit", "run", "gitops-ds-files", "--files", "other.yaml", "agent.yaml"
    )
    assert broken.returncode == 1
    assert "DS101" in broken.stdout
    whole = run(work, desk, "pre-commit", "run", "gitops-ds-check", "--files", "other.yaml")
    assert whole.returncode == 1
