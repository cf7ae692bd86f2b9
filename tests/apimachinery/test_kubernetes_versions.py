"""Everything that names a version of Kubernetes agrees with the one list,
`apimachinery/kubernetes_versions.py`; each failure names the file to change.
"""

from __future__ import annotations

import re
import runpy
from itertools import pairwise
from pathlib import Path

import pytest

from gitops_ds.kube.apimachinery.kubernetes_versions import (
    NEWEST,
    OLDEST,
    RANGE,
    RELEASES,
    VERSIONS,
)
from gitops_ds.testing.simulator import client

ROOT = Path(__file__).resolve().parents[2]
RELEASE = RELEASES[NEWEST]
# Pages and files with the supported range, the newest version or its release, and their texts.
NAMED = {
    "README.md": (f"Kubernetes {RANGE};",),
    "docs/reference/commands/version.md": (f"kubernetes {RANGE}\n",),
    "docs/reference/commands/doctor.md": (f"cluster: Kubernetes v{RELEASE}\n",),
    "docs/guides/service.md": (f"Kubernetes v{RELEASE}\n",),
    "docs/api-server-differences.md": (f"\nKubernetes {NEWEST}. ", f"are those of {NEWEST} |"),
    "gitops_ds/cli/init/repository/clusters/main.yaml": (
        f'kubernetes: ["{NEWEST}"]',
        f"{RANGE}\n",
    ),
    "schemas/cluster.schema.json": (f'such as \\"{NEWEST}\\"',),
    "schemas/gitops-ds.schema.json": (f'such as \\"{NEWEST}\\"',),
}
# Files whose lists `kubernetes: [...]` are examples of supported versions.
EXAMPLES = (
    "docs/repository-format.md",
    "examples-repo/gitops-ds.yaml",
    "examples-repo/clusters/dev-1.yaml",
    "examples-repo/clusters/us-1.yaml",
    "gitops_ds/checks/pages/DS009.md",
    "gitops_ds/cli/init/repository/clusters/main.yaml",
)


def test_the_list_is_ordered_without_gaps_and_each_release_is_of_its_version() -> None:
    minors = [int(version.removeprefix("1.")) for version in VERSIONS]
    assert all(after == before + 1 for before, after in pairwise(minors))
    assert (VERSIONS[0], VERSIONS[-1]) == (OLDEST, NEWEST)
    for version, release in RELEASES.items():
        assert re.fullmatch(rf"{re.escape(version)}\.\d+", release)


@pytest.mark.parametrize("file", NAMED)
def test_a_page_names_the_supported_versions(file: str) -> None:
    text = (ROOT / file).read_text()
    for expected in NAMED[file]:
        assert expected in text, f"{file}: {expected!r} is missing"


def test_every_range_of_versions_is_the_supported_one() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    ranges = {
        f"{page.relative_to(ROOT)}: {matches}"
        for page in pages
        for matches in re.findall(r"\b1\.\d\d to 1\.\d\d\b", page.read_text())
        if matches != RANGE
    }
    assert not ranges


@pytest.mark.parametrize("file", EXAMPLES)
def test_an_example_declares_supported_versions(file: str) -> None:
    lists = re.findall(r"kubernetes: \[([^\]]*)\]", (ROOT / file).read_text())
    assert lists
    for versions in lists:
        assert set(re.findall(r"[\d.]+", versions)) <= set(VERSIONS)


def test_the_control_plane_and_the_simulator_are_of_the_newest_release() -> None:
    modules = (ROOT / "tests/controlplane/go.mod").read_text()
    assert f"\tk8s.io/kubernetes v{RELEASE} " in modules, "change tests/controlplane/go.mod"
    assert f"v{RELEASE}" == client.VERSION


def test_the_scripts_generate_from_the_releases_of_the_list() -> None:
    modules = runpy.run_path(str(ROOT / "scripts/modules.py"))
    assert {f"1.{patch}" for patch in modules["VERSIONS"].values()} == set(RELEASES.values())
    assert f"1.{modules['NEWEST']}" == RELEASE
