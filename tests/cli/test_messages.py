"""Messages that say what was meant."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from gitops_ds.cli.requests import service_requests
from gitops_ds.cli.trace import traced_pods
from gitops_ds.core import errors
from gitops_ds.core.events import requests
from gitops_ds.core.objects import CommitId
from gitops_ds.core.values import replace
from tests.cluster import program
from tests.cluster.test_bad_input import kubeconfig
from tests.plan.world import daemonset


@pytest.mark.sampled
@pytest.mark.parametrize("words", [("restart", "ds/agent"), ("apply",)])
@pytest.mark.slow
def test_outside_of_git_a_command_that_needs_commits_reports_it(
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


def test_the_advice_for_a_repository_without_a_commit_is_to_commit(tmp_path: Path) -> None:
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
def test_a_trace_without_a_result_names_the_requested_kind(kind: str, words: str) -> None:
    with pytest.raises(errors.NoMatch, match=f"no pod of a DaemonSet in namespace y {words}"):
        traced_pods.found((), kind, "x", "y")


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


def test_a_reader_that_closes_the_pipe_is_not_a_verdict(tmp_path: Path) -> None:
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


@pytest.mark.sampled
@pytest.mark.parametrize("command", ["help", "get", "nonsense"])
def test_a_reader_of_both_streams_that_closes_the_pipe_is_not_a_verdict(
    tmp_path: Path, command: str
) -> None:
    at = program.desk(tmp_path, tmp_path / "no-kubeconfig")
    reading, writing = os.pipe()
    os.close(reading)
    run = subprocess.run(
        (program.PROGRAM, command),
        cwd=at.tree,
        env=at.environment,
        stdout=writing,
        stderr=writing,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert run.returncode == 141


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


def test_a_closed_port_of_the_api_server_is_named_in_words(tmp_path: Path) -> None:
    at = program.desk(tmp_path, tmp_path / "kubeconfig")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{closed.getsockname()[1]}"
        kubeconfig(tmp_path, server)
        ended = at.run("wait", "ds/agent", "--timeout", "5s")
    assert ended.code == 3
    assert f"the API server {server} can't be reached: connection refused; is " in ended.err


@pytest.mark.parametrize(
    ("suspended", "changed", "words"),
    [
        (True, True, "ds is suspended"),
        (True, False, "ds is already suspended"),
        (False, True, "ds is resumed"),
        (False, False, "ds is not suspended"),
    ],
)
def test_a_suspension_names_what_changed(suspended: bool, changed: bool, words: str) -> None:
    assert service_requests.Suspension("ds", changed, {}).words(suspended=suspended) == words


def test_a_suspended_repository_without_changes_has_no_number() -> None:
    event = requests.Suspended(1.0, CommitId("a" * 40), 0)
    assert event.text() == "suspended: commit aaaaaaaaaaaa has no pending change"
    assert replace(event, changes=1).text().startswith("suspended: 1 change of commit")
