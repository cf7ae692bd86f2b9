"""The files that decide a template."""

from __future__ import annotations

import pytest

from gitops_ds.core.objects import Path
from gitops_ds.core.sources.bundle import ClusterFacts, Origin, Pointer
from gitops_ds.core.sources.file_places import by_place, files_at
from gitops_ds.core.values import replace
from gitops_ds.rollouts.causes import template_files
from tests.staging.staged_objects import bundle, manifest

FILES = frozenset({"agents/agent", "agents/agent/daemonset.yaml"})


@pytest.mark.parametrize(
    ("base", "files"),
    [
        ("agents/agent/daemonset.yaml", FILES),
        ("agents/agent/base/ds.yaml", {"agents/agent", "agents/agent/base/ds.yaml"}),
        ("agents/agent.yaml", {"agents/agent.yaml"}),
        ("apps/agent/ds.yaml", {"apps/agent/ds.yaml"}),
    ],
)
def test_the_own_files_of_a_manifest(base: str, files: set[str]) -> None:
    pointers: dict[Path, tuple[Pointer, ...]] = {("spec",): (Pointer("values.yaml", 0, ()),)}
    one = replace(manifest("1"), origin=Origin(Pointer(base, 0, ()), pointers))
    assert template_files.own(one) == files


READ = frozenset(
    {
        "base/kustomization.yaml",
        "base/daemonset.yaml",
        "part/kustomization.yaml",
        "agents/other/chart/Chart.yaml",
    }
)


@pytest.mark.parametrize(
    ("base", "set_by", "file", "decides"),
    [
        # also values that no file has any more
        ("agents/agent/daemonset.yaml", (), "agents/agent/values/main.yaml", True),
        ("agents/agent/daemonset.yaml", (), "environments/production.yaml", True),
        ("agents/agent/daemonset.yaml", (), "environments/test.yaml", False),
        ("agents/agent/daemonset.yaml", (), "clusters/main.yaml", True),
        ("agents/agent/daemonset.yaml", (), "clusters/other.yaml", False),
        ("agents/agent/daemonset.yaml", (), "gitops-ds.yaml", True),
        ("agents/agent/daemonset.yaml", (), "README.md", False),
        ("agents/agent/daemonset.yaml", (), "agents/other/daemonset.yaml", False),
        ("agents/agent/daemonset.yaml", (), "base/kustomization.yaml", False),
        ("agents/agent/source.yaml", (), "base/kustomization.yaml", True),
        # the place of a kustomization or chart, and the files that have no value in the result
        ("base/daemonset.yaml", (), "agents/agent/source.yaml", True),
        ("base/daemonset.yaml", (), "base/kustomization.yaml", True),
        ("base/daemonset.yaml", (), "base/left.yaml", True),
        ("base/daemonset.yaml", (), "part/kustomization.yaml", True),
        ("base/daemonset.yaml", (), "agents/other/chart/Chart.yaml", False),
        ("base/daemonset.yaml", ("agents/other/x.yaml",), "agents/other/chart/t.yaml", True),
    ],
)
def test_the_files_that_decide_a_template(
    base: str, set_by: tuple[str, ...], file: str, decides: bool
) -> None:
    pointers: dict[Path, tuple[Pointer, ...]] = {
        ("spec",): tuple(Pointer(name, 0, ()) for name in set_by)
    }
    one = replace(manifest("1"), origin=Origin(Pointer(base, 0, ()), pointers))
    facts = ClusterFacts("main", "production")
    whole = replace(bundle(one), cluster=facts, consumed=READ)
    places = template_files.deciding(one, whole)
    assert bool(files_at(by_place([file]), places, "")) is decides


@pytest.mark.parametrize(
    ("file", "path", "inside"),
    [
        ("agents/agent/x.yaml", "", True),
        ("agents/agent", "", True),
        ("agents/agent-2/x.yaml", "", False),
        ("sub/agents/agent/x.yaml", "sub/", True),
        ("agents/agent/x.yaml", "sub", False),
        ("clusters/main.yaml", ".", True),
    ],
)
def test_the_files_of_a_template_are_below_the_followed_folder(
    file: str, path: str, inside: bool
) -> None:
    expected = {"agents/agent", "clusters/main.yaml"}
    assert bool(files_at(by_place([file]), expected, path)) is inside
