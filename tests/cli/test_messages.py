"""Messages that say what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops_ds import errors
from gitops_ds.commands import trace
from tests.cluster import program


@pytest.mark.sampled
@pytest.mark.parametrize("words", [("restart", "ds/agent"), ("apply",)])
def test_outside_of_git_a_command_that_needs_commits_says_so(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    at = program.desk(tmp_path, tmp_path / "no-kubeconfig")
    (tmp_path / "plain").mkdir()
    at.inside = tmp_path / "plain"
    ended = at.run(*words)
    assert (
        ended.code,
        "is not in Git, and this needs commits: name a repository with -C" in ended.err,
    ) == (2, True)


def test_a_repository_without_a_commit_is_told_to_commit(tmp_path: Path) -> None:
    at = program.desk(tmp_path, tmp_path / "no-kubeconfig")
    ended = at.run("apply")
    assert (ended.code, "has no commit yet: commit, or push, a first one" in ended.err) == (3, True)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("pod", "is named x"),
        ("node", "runs on node x"),
        ("commit", "runs the template of commit x"),
    ],
)
def test_nothing_to_trace_is_said_of_the_sort_that_was_asked(kind: str, words: str) -> None:
    with pytest.raises(errors.NoMatch, match=f"no pod of a DaemonSet in namespace y {words}"):
        trace.found((), kind, "x", "y")


@pytest.mark.sampled
@pytest.mark.parametrize(
    "command",
    ["get", "status", "rollback", "restart", "drift", "history", "wait", "trace", "events"],
)
def test_the_namespace_of_a_command_that_looks_is_a_filter(tmp_path: Path, command: str) -> None:
    at = program.desk(tmp_path, tmp_path / "no-kubeconfig")
    assert "The namespace of the DaemonSet" in " ".join(at.run(command, "--help").out.split())
