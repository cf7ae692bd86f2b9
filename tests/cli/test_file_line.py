"""The file that a long check processes, on a terminal."""

from __future__ import annotations

import io
from pathlib import Path

from gitops_ds.cli import check
from gitops_ds.core import progress
from tests.cluster import program
from tests.plan.world import daemonset


def test_the_line_begins_after_a_second_and_is_erased() -> None:
    stream, times = io.StringIO(), iter([0.0, 0.5, 1.5, 1.55, 2.0])
    with check.file_shown(stream, 30, lambda: next(times)):
        for file in ("early.yaml", "agents/a.yaml", "soon.yaml", "agents/" + "b" * 40):
            progress.at(file)
    erase = "\r\x1b[K"
    lines = ["checking, 2 s: agents/a.yaml", "checking, 2 s: agents/bbbbbbb", ""]
    assert stream.getvalue() == "".join(erase + line for line in lines)
    progress.at("later.yaml")


def test_a_short_check_shows_nothing() -> None:
    stream = io.StringIO()
    with check.file_shown(stream, 80):
        progress.at("a.yaml")
    assert stream.getvalue() == ""


def test_the_rules_report_the_file_that_they_check(tmp_path: Path) -> None:
    at = program.desk(tmp_path, tmp_path / "kubeconfig")
    # A text of its own: a process reads the same text once.
    at.commit("An agent", agent=daemonset(image=f"registry.example.com/{tmp_path.name}:1"))
    seen: list[str] = []
    token = progress.listener.set(seen.append)
    try:
        assert at.run("check", "--no-cache").code == 0
    finally:
        progress.listener.reset(token)
    assert seen.count("agent.yaml") == 2  # read and checked
