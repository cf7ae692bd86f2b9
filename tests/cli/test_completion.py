"""Completion of names, namespaces, contexts and clusters, for shells and for the plugin of
kubectl.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gitops_ds import cli
from gitops_ds.cli import command_table, completion
from gitops_ds.cli.parameters import candidates
from tests.cli import api_server
from tests.cli.commands import COMMANDS
from tests.cli.test_list_options import OBJECTS
from tests.cluster.test_bad_input import kubeconfig

NAMESPACES = [{"metadata": {"name": name}} for name in ("default", "logging", "tracing")]
NODES = [{"metadata": {"name": name}} for name in ("node-1", "node-2")]
KNOWN = {**OBJECTS, "/api/v1/namespaces": NAMESPACES, "/api/v1/nodes": NODES}
KNOWN["/apis/apps/v1/namespaces/tracing/daemonsets"] = OBJECTS["/apis/apps/v1/daemonsets"][2:]

# the parameters whose values are files or directories
FILES = {"repository", "directory", "files", "file", "report", "baseline"}
FILES |= {"kubeconfig", "settings", "snapshot"}


@pytest.fixture
def file(tmp_path: Path) -> Iterator[str]:
    with api_server.serving(KNOWN) as url:
        yield str(kubeconfig(tmp_path, url))


def completed(*words: str) -> list[str]:
    *found, directive = completion.plugin_completions(words).splitlines()
    assert directive == ":4"
    return [line.partition("\t")[0] for line in found]


def test_names_of_objects_come_from_the_cluster(file: str) -> None:
    there = ("--kubeconfig", file)
    assert completed("status", *there, "") == ["alpha", "beta"]
    assert completed("status", *there, "-n", "tracing", "ds/") == ["ds/alpha"]
    assert completed("get", *there, "alpha", "") == ["beta"]
    assert completed("trace", *there, "node/") == ["node/node-1", "node/node-2"]
    assert completed("get", *there, "-n", "l") == ["logging"]


def test_nodes_are_those_of_pods_without_the_right_to_list_nodes(tmp_path: Path) -> None:
    pod = {"metadata": {"name": "a", "namespace": "b"}, "spec": {"nodeName": "node-3"}}
    known = {"/api/v1/pods": [pod, {"metadata": {"name": "c", "namespace": "b"}, "spec": {}}]}
    with api_server.serving(known, "/api/v1/nodes") as url:
        there = ("--kubeconfig", str(kubeconfig(tmp_path, url)))
        assert completed("trace", *there, "node/") == ["node/node-3"]


def test_the_rest_needs_no_cluster(tmp_path: Path) -> None:
    file = str(kubeconfig(tmp_path, "http://127.0.0.1:1"))
    assert completed("get", "--kubeconfig", file, "--context", "") == ["test"]
    assert completed("get", "-o", "j") == ["json", "jsonpath="]
    assert completed("trace", "n") == ["node/"]
    assert completed("stat") == ["status"]
    assert completed("completion", "") == ["bash", "zsh", "fish"]
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/eu-1.yaml").touch()
    with contextlib.chdir(tmp_path):
        assert completed("plan", "--cluster", "") == ["eu-1"]
    assert completed("plan", str(tmp_path), "--cluster", "") == ["eu-1"]


def test_agents_are_those_of_the_repository(tmp_path: Path) -> None:
    for name in ("node-exporter", "fluent-bit"):
        (tmp_path / "agents" / name).mkdir(parents=True)
        (tmp_path / "agents" / name / "daemonset.yaml").touch()
    (tmp_path / "gitops-ds.yaml").write_text("apiVersion: gitops-ds.io/v1\nkind: Repository\n")
    with contextlib.chdir(tmp_path):
        assert completed("explain", "") == ["fluent-bit", "node-exporter"]
    assert completed("render", str(tmp_path), "--agent", "n") == ["node-exporter"]
    assert completed("explain", "-C", "https://git.example.com/agents.git", "") == []


def test_files_and_directories_are_left_to_the_shell() -> None:
    """No option or argument of files is completed with nothing."""
    top = click.Context(cli.cli)
    for name, command in COMMANDS.items():
        context = click.Context(command, parent=top)
        for parameter in command.params:
            if parameter.name in FILES:
                kinds = {one.type for one in parameter.shell_complete(context, "")}
                assert kinds <= {"file", "dir"}, (name, parameter.name)
                assert kinds, (name, parameter.name)
    assert completion.plugin_completions(["get", "--kubeconfig", ""]) == ":0\n"
    assert completion.plugin_completions(["plan", "-C", ""]) == ":16\n"


def test_an_error_gives_no_candidate_and_no_message(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken").write_text("contexts: {")
    for file in (kubeconfig(tmp_path, "http://127.0.0.1:1"), tmp_path / "no", tmp_path / "broken"):
        assert completed("status", "--kubeconfig", str(file), "") == []
    assert completed("get", "--kubeconfig", str(tmp_path / "broken"), "--context", "") == []
    assert capfd.readouterr() == ("", "")


def test_a_cluster_that_does_not_answer_costs_a_bounded_time() -> None:
    def hang() -> list[str]:
        threading.Event().wait(60)
        return ["late"]

    began = time.monotonic()
    assert candidates.matching("", hang, seconds=0.05) == []
    assert time.monotonic() - began < 30


def test_commands_have_their_summaries() -> None:
    summary = command_table.COMMANDS["check"].summary
    assert completion.plugin_completions(["che"]) == f"check\t{summary}\n:4\n"
    assert completion.plugin_completions(["help", "che"]) == f"check\t{summary}\n:4\n"
