"""examples-repo/ rendered for each of its clusters. An upgrade that changed one of these goldens
would restart fleets.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from gitops_ds import render
from gitops_ds.model.finding import Severity
from gitops_ds.model.sources.source_tree import SourceTree
from tests import goldens
from tests.render import snapshots

REPOSITORY = Path(__file__).parents[2] / "examples-repo"
GOLDENS = Path(__file__).parent / "examples"
KUSTOMIZED = PurePosixPath("agents/node-problem-detector")
CLUSTERS = ("dev-1", "eu-1", "staging-1", "us-1")


def snapshot() -> SourceTree:
    """The example repository, with what `kustomize build` makes of its kustomization as a file of
    its own.
    """
    found = snapshots.of_folder(REPOSITORY)
    made = (GOLDENS / "kustomized-node-problem-detector.yaml").read_bytes()
    consumed = frozenset(path for path in found.files if path.parent == KUSTOMIZED)
    return replace(found, expanded={KUSTOMIZED: made}, consumed=consumed)


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
