"""Small repositories in, bundle.yaml and findings.txt out, for each of their clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.source import render
from tests import goldens
from tests.render import snapshots

CASES = Path(__file__).parent / "cases"


def findings(bundle: Bundle) -> str:
    lines = [
        f"{finding.place}: {finding.rule} "
        f"{finding.severity}{' refused' if finding.refused else ''}: {finding.message}\n"
        for finding in bundle.findings
    ]
    return "".join(
        [
            *lines,
            *(f"skipped {path}\n" for path in bundle.skipped),
            *(f"held {name}\n" for name in sorted(bundle.held)),
        ]
    )


@pytest.mark.parametrize("name", sorted(path.name for path in CASES.iterdir()))
def test_a_repository_renders_as_expected(name: str) -> None:
    folder = CASES / name
    snapshot = snapshots.of_folder(folder / "repo")
    for cluster in render.clusters(snapshot) or ("",):
        bundle = render.render(snapshot, cluster=cluster)
        again = render.render(snapshots.of_folder(folder / "repo"), cluster=cluster)
        suffix = f"-{cluster}" if cluster else ""
        goldens.check(folder / f"bundle{suffix}.yaml", render.as_yaml(bundle))
        goldens.check(folder / f"findings{suffix}.txt", findings(bundle))
        assert (render.as_yaml(again), again.findings) == (render.as_yaml(bundle), bundle.findings)
