"""examples-repo/ rendered for each of its clusters. An upgrade that changed one of these goldens
would restart fleets.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gitops_ds.core.finding import Severity
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.source import render
from tests import goldens
from tests.cluster import program
from tests.render import snapshots

REPOSITORY = Path(__file__).parents[2] / "examples-repo"
GOLDENS = Path(__file__).parent / "examples"
CLUSTERS = ("dev-1", "eu-1", "staging-1", "us-1")


def snapshot() -> SourceTree:
    """The example repository."""
    return snapshots.of_folder(REPOSITORY)


def test_the_goldens_are_of_all_clusters() -> None:
    assert render.clusters(snapshot()) == CLUSTERS


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_examples_render_as_they_always_did(cluster: str) -> None:
    bundle = render.render(snapshot(), cluster=cluster)
    assert [finding for finding in bundle.findings if finding.severity is not Severity.INFO] == []
    assert bundle.skipped == ()
    goldens.check(GOLDENS / f"{cluster}.yaml", render.as_yaml(bundle))


def test_a_held_agent_is_named_with_the_file_that_holds_it() -> None:
    assert render.render(snapshot(), cluster="us-1").held == {"tetragon": "clusters/us-1.yaml"}


def test_the_examples_hold_twelve_agents() -> None:
    assert len(render.agents(snapshot())) == 12


def test_the_examples_have_no_findings(tmp_path: Path) -> None:
    """Each finding is fixed, or suppressed where it is with a reason; every suppression counts."""
    done = program.in_this_process(
        ("check", REPOSITORY, "--no-cache", "-o", "json"), tmp_path, {"PATH": os.environ["PATH"]}
    )
    report = json.loads(done.out)
    assert (done.code, report["findings"]) == (0, [])
    assert report["summary"]["files"] > 50
