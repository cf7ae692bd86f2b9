"""`plan` looks at the work tree, `apply` takes the commit: the difference is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent_manifest import agent
from tests.cluster import program
from tests.cluster.program import Desk, Ended


@pytest.fixture
def at(tmp_path: Path) -> Desk:
    return program.desk(tmp_path, tmp_path / "no-kubeconfig")


def plan(at: Desk, *words: str) -> Ended:
    ended = at.run("plan", "--simulate", "2", *words)
    assert ended.code == 0, ended.err
    return ended


def test_a_plan_of_a_clean_work_tree_names_it_and_warns_of_nothing(at: Desk) -> None:
    at.commit("An agent", agent=agent())
    ended = plan(at)
    assert "Source: the work tree, not a commit\n" in ended.out
    assert ended.err == ""


def test_a_plan_of_changes_names_the_files_and_the_commit_that_apply_takes(at: Desk) -> None:
    commit = at.commit("An agent", agent=agent(), other=agent("other"))
    at.write("agent.yaml", agent(image="registry.example/agent:2.0.0"))
    at.write("new.yaml", agent("new"))
    at.write("other.yaml", None)
    ended = plan(at)
    assert (
        f"not committed: agent.yaml, new.yaml, other.yaml; `apply` takes commit {commit[:12]}, "
        "without them" in ended.err
    )
    assert plan(at, "-q").err == ""
    markdown = plan(at, "-o", "markdown")
    assert "of the work tree, not a commit" in markdown.out


def test_changes_of_files_that_nothing_reads_are_not_named(at: Desk) -> None:
    at.commit("An agent", agent=agent())
    (at.tree / "README.md").write_text("words")
    assert plan(at).err == ""


def test_a_plan_of_a_revision_names_the_commit(at: Desk) -> None:
    commit = at.commit("An agent", agent=agent())
    at.write("agent.yaml", agent(image="registry.example/agent:2.0.0"))
    ended = plan(at, "--revision", "main")
    assert f"Source: commit {commit[:12]}\n" in ended.out
    assert ended.err == ""


def test_a_plan_before_the_first_commit_reports_the_missing_commit(at: Desk) -> None:
    at.write("agent.yaml", agent())
    assert (
        "not committed: agent.yaml; `apply` takes commits, and the repository has none"
        in plan(at).err
    )
