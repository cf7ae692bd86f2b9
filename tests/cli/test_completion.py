"""Completion of names, namespaces, contexts and clusters, for shells and for the plugin of
kubectl.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops_ds.cli import completion
from gitops_ds.cli.parameters import candidates
from tests.cli import api_server
from tests.cli.test_list_options import OBJECTS
from tests.cluster.test_bad_input import kubeconfig

NAMESPACES = [{"metadata": {"name": name}} for name in ("default", "logging", "tracing")]
NODES = [{"metadata": {"name": name}} for name in ("node-1", "node-2")]
KNOWN = {**OBJECTS, "/api/v1/namespaces": NAMESPACES, "/api/v1/nodes": NODES}
KNOWN["/apis/apps/v1/namespaces/tracing/daemonsets"] = OBJECTS["/apis/apps/v1/daemonsets"][2:]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[str]:
    with api_server.serving(KNOWN) as url:
        yield str(kubeconfig(tmp_path, url))


def completed(*words: str) -> list[str]:
    *found, directive = completion.plugin_completions(words).splitlines()
    assert directive in (":0", ":4")
    return [line.partition("\t")[0] for line in found]


def test_names_of_objects_come_from_the_cluster(file: str) -> None:
    there = ("--kubeconfig", file)
    assert completed("status", *there, "") == ["alpha", "beta"]
    assert completed("status", *there, "-n", "tracing", "ds/") == ["ds/alpha"]
    assert completed("get", *there, "alpha", "") == ["beta"]
    assert completed("trace", *there, "node/") == ["node/node-1", "node/node-2"]
    assert completed("get", *there, "-n", "l") == ["logging"]


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
    assert any(
        line.startswith("check\tCheck a repository")
        for line in completion.plugin_completions(["che"]).splitlines()
    )
