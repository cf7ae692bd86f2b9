"""`init` writes a repository that is right, all of it or nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gitops_ds import __version__
from gitops_ds.cli.init import scaffold
from gitops_ds.core import errors
from gitops_ds.yaml import parser
from tests.docs.conftest import Run

EVERY = {
    ".github/workflows/gitops-ds.yaml",
    ".gitlab-ci.yml",
    ".pre-commit-config.yaml",
    "agents/node-exporter/daemonset.yaml",
    "clusters/main.yaml",
    "gitops-ds.yaml",
    "shared/namespace.yaml",
}


def test_what_init_writes_is_clean(run: Run, tmp_path: Path) -> None:
    made = run("gitops-ds", "init", "agents-repo")
    assert made.returncode == 0, made.stderr
    assert {line.removeprefix("wrote agents-repo/") for line in made.stdout.splitlines()} == EVERY
    assert "gitops-ds apply" in made.stderr
    checked = run("gitops-ds", "check", "agents-repo", "--fail-on", "info")
    clean, note = checked.stdout.splitlines()
    assert (checked.returncode, clean) == (0, "4 files, 2 objects: 0 errors, 0 warnings, 0 info")
    assert note.startswith("note: no nodes of main are known")
    planned = run("gitops-ds", "plan", "agents-repo", "--simulate", "3")
    assert planned.returncode == 0, planned.stderr
    assert "create DaemonSet node-agents/node-exporter" in planned.stdout
    assert "nodes: 3 gained" in planned.stdout


def test_init_without_a_directory_writes_here(run: Run, tmp_path: Path) -> None:
    assert run("gitops-ds", "init").returncode == 0
    desk = tmp_path / "desk"
    assert {str(p.relative_to(desk)) for p in desk.rglob("*") if p.is_file()} == EVERY


def test_a_second_init_names_the_existing_files_and_writes_nothing(
    run: Run, tmp_path: Path
) -> None:
    desk = tmp_path / "desk"
    (desk / ".gitlab-ci.yml").write_text("mine")
    refused = run("gitops-ds", "init")
    assert refused.returncode == 1
    assert ".gitlab-ci.yml already" in refused.stderr
    assert [p.name for p in desk.iterdir()] == [".gitlab-ci.yml"]
    assert (desk / ".gitlab-ci.yml").read_text() == "mine"


def test_a_dangling_link_counts_as_a_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "gitops-ds.yaml").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(errors.Refused, match=r"has gitops-ds\.yaml already"):
        scaffold.write(tmp_path, scaffold.files())
    assert not (tmp_path / "elsewhere").exists()


def test_what_was_begun_is_taken_back_when_a_file_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "clusters").write_text("a file where a directory should be")
    with pytest.raises(errors.UsageError, match="nothing was written"):
        scaffold.write(tmp_path, scaffold.files())
    assert [p.name for p in tmp_path.iterdir()] == ["clusters"]


def test_every_file_of_ci_is_yaml_and_runs_check() -> None:
    files = {str(path): text for path, text in scaffold.files().items()}
    for name in (".github/workflows/gitops-ds.yaml", ".gitlab-ci.yml", ".pre-commit-config.yaml"):
        parsed = parser.read(name, files[name].encode())
        assert not [f for f in parsed.findings if f.refused], name
        action = f"gitops-ds/gitops-ds@v{__version__}"
        assert "gitops-ds check" in files[name] or action in files[name]
        assert "@" not in re.sub(rf"actions/(checkout|setup-python)@|{action}", "", files[name]), (
            name
        )


@pytest.mark.slow
def test_the_hook_runs_before_a_commit(run: Run, tmp_path: Path) -> None:
    repository = tmp_path / "desk" / "hooked"
    assert run("gitops-ds", "init", "hooked").returncode == 0
    assert run("git", "init", "-q", "-b", "main", cwd=repository).returncode == 0
    assert run("git", "add", ".", cwd=repository).returncode == 0
    clean = run("pre-commit", "run", "--all-files", cwd=repository)
    assert clean.returncode == 0, clean.stdout + clean.stderr
    manifest = repository / "agents/node-exporter/daemonset.yaml"
    manifest.write_text(manifest.read_text().replace("tolerations:", "tolerationz:"))
    wrong = run("pre-commit", "run", "--all-files", cwd=repository)
    assert wrong.returncode == 1
    assert 'did you mean "tolerations"' in wrong.stdout


def test_inside_a_repository_no_other_one_is_made(run: Run, tmp_path: Path) -> None:
    outside = run("gitops-ds", "init", "agents-repo").stderr
    assert "git init" in outside
    assert run("git", "init", "-q", "-b", "main", "agents-repo").returncode == 0
    inside = run("gitops-ds", "init", "agents-repo/sub").stderr
    assert "git init" not in inside
    assert "git add" in inside
