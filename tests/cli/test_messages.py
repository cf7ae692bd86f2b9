"""Messages that say what was meant."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gitops_ds import errors
from gitops_ds.commands import trace
from tests.cluster import program
from tests.plan.world import daemonset


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


def test_options_before_the_command_are_answered_with_their_place(tmp_path: Path) -> None:
    at = program.desk(tmp_path, tmp_path / "no-kubeconfig")
    ended = at.run("-n", "default", "get")
    assert ended.code == 2
    assert "options follow the command: `gitops-ds COMMAND -n …`" in ended.err


def test_a_reader_that_closes_the_pipe_is_no_verdict(tmp_path: Path) -> None:
    at = program.desk(tmp_path, tmp_path / "no-kubeconfig")
    reading, writing = os.pipe()
    os.close(reading)
    run = subprocess.run(
        (program.PROGRAM, "help"),
        cwd=at.tree,
        env=at.environment,
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert (run.returncode, run.stderr) == (141, b"")


@pytest.mark.parametrize("command", ["plan", "diff"])
def test_without_a_kubeconfig_the_options_without_a_cluster_are_named(
    tmp_path: Path, command: str
) -> None:
    at = program.desk(tmp_path, tmp_path / "no-kubeconfig")
    at.commit("An agent", agent=daemonset())
    ended = at.run(command)
    assert ended.code == 3
    assert "no kubeconfig at " in ended.err
    assert "--simulate NODES or --snapshot FILE need no cluster" in ended.err
