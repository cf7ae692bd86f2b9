"""`check --fix` leaves the output of helm and kustomize unchanged, and reports it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_fix import AGENT
from tests.renderers.test_commands import gitops_ds, repository

pytestmark = pytest.mark.renderers

__all__ = ["repository"]


@pytest.mark.parametrize("option", ["--fix", "--fix-unsafe"])
def test_output_of_helm_and_kustomize_is_not_fixed_and_a_message_has_the_reason(
    repository: Path, option: str
) -> None:
    (repository / "agents/b/c.yaml").write_text(AGENT)
    before = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    _, output = gitops_ds(repository, "check", option, "--allow", "helm,kustomize")
    left = [line for line in output.splitlines() if line.startswith("not fixed ")]
    for folder in ("agents/a/chart/", "agents/b/"):
        mine = [line for line in left if line.startswith(f"not fixed {folder}")]
        assert mine, output
        ways = (
            "no single place in the files has the rendered value:",
            "helm or kustomize generates DaemonSet ",
        )
        assert all(any(way in line for way in ways) for line in mine), "\n".join(mine)
    assert "0 fixed in 0 files" in output
    assert {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()} == before
