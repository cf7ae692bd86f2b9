"""A wrong directory is an error; a command below the root of a work tree reports its directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent_manifest import agent
from tests.cluster import program
from tests.cluster.program import Desk


@pytest.fixture
def at(tmp_path: Path) -> Desk:
    return program.desk(tmp_path, tmp_path / "no-kubeconfig")


COMMANDS = [("check",), ("check", "-o", "json"), ("plan", "--simulate", "2")]


@pytest.mark.sampled
@pytest.mark.parametrize("words", COMMANDS)
def test_a_directory_with_nothing_for_a_cluster_is_wrong_usage(
    at: Desk, words: tuple[str, ...]
) -> None:
    at.write("README.md", "words")
    at.write("mkdocs.yml", "site_name: words\n")
    ended = at.run(*words)
    assert (ended.code, ended.out) == (2, "")
    assert "has no Kubernetes object and no file of gitops-ds: name the directory" in ended.err


@pytest.mark.sampled
@pytest.mark.parametrize("words", COMMANDS)
def test_a_repository_of_gitops_ds_may_have_no_agent(at: Desk, words: tuple[str, ...]) -> None:
    at.write("gitops-ds.yaml", "version: v1\nname: agents\n")
    assert at.run(*words).code == 0


def test_a_change_that_takes_the_last_object_away_is_checked_against_its_base(at: Desk) -> None:
    at.commit("An agent", agent=agent())
    at.commit("None", agent=None)
    assert at.run("check").code == 2
    assert at.run("check", "--base", at.git("rev-parse", "HEAD^")).code == 0


def test_what_may_be_deleted_is_planned(at: Desk) -> None:
    at.commit("An agent", agent=agent())
    at.commit("None", agent=None)
    assert at.run("plan", "--simulate", "2").code == 2
    assert at.run("plan", "--simulate", "2", "--prune").code == 0


@pytest.mark.sampled
@pytest.mark.parametrize("words", COMMANDS)
def test_below_the_root_the_tree_is_named(at: Desk, words: tuple[str, ...]) -> None:
    at.commit("An agent", agent=agent())
    (at.tree / "below").mkdir()
    below = Desk(at.directory, at.kubeconfig, at.environment, at.tree / "below")
    assert f"using the whole work tree {at.tree}" in below.run(*words).err
    assert "work tree" not in below.run(*words, "-q").err
    assert "work tree" not in at.run(*words).err
    assert below.run(words[0], ".", *words[1:]).code == 2


PARTS = (
    "spec:\n  selector: {matchLabels: {app: agent}}\n",
    "metadata: {name: agent}\nspec: {}\n",
    "metadata: {name: agent, namespace: default}\ndata: {key: value}\n",
    "metadata: {name: agent}\ncontainers: [{name: agent}]\n",
)


@pytest.mark.sampled
@pytest.mark.parametrize("text", PARTS)
def test_a_part_of_an_object_is_a_warning(at: Desk, text: str) -> None:
    at.write("part.yaml", text)
    ended = at.run("check")
    assert (ended.code, "part.yaml:1:1: warning DS016" in ended.out) == (0, True)
    assert at.run("check", "--fail-on", "warning").code == 1
