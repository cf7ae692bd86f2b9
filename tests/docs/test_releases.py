"""docs/releases.md agrees with the code: Kubernetes versions, changelog, places of the version."""

from __future__ import annotations

import re

import gitops_ds
from gitops_ds.kube.apimachinery import kubernetes_versions
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/releases.md").read_text()
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()


def section(title: str, text: str = PAGE) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found, title
    return found[1]


def test_the_table_of_kubernetes_versions_is_that_of_the_code() -> None:
    rows = dict(re.findall(r"^\| (\S+) \| (1\..*) \|$", section("Kubernetes versions"), re.M))
    supported = ", ".join(kubernetes_versions.VERSIONS)
    releases = ", ".join(kubernetes_versions.RELEASES.values())
    assert rows["Unreleased"] == f"{supported} | {releases}"
    released = [name for name in rows if name != "Unreleased"]
    minors = re.findall(r"^## \[(\d+\.\d+)\.\d+\]", CHANGELOG, re.M)
    assert released == list(dict.fromkeys(minors))


def test_each_version_of_the_changelog_has_upgrade_notes() -> None:
    notes = re.findall(r"^### (\S+)$", section("Upgrade notes"), re.M)
    assert notes == re.findall(r"^## \[(\S+)\]", CHANGELOG, re.M)


def test_making_a_release_names_each_place_of_the_version() -> None:
    steps = section("Making a release")
    places = [
        name for name in re.findall(r"`([\w./-]+\.(?:py|yaml|yml|md))`", steps) if "/" in name
    ]
    assert len(places) > 3
    for place in places:
        if (ROOT / place).suffix != ".md":
            assert gitops_ds.__version__ in (ROOT / place).read_text(), place


def test_the_image_of_the_page_is_that_of_the_release() -> None:
    workflow = (ROOT / ".github/workflows/release.yml").read_text()
    for name in ("IMAGE", "CHARTS"):
        found = re.search(rf"^  {name}: (\S+)$", workflow, re.M)
        assert found
        assert found[1] in PAGE
        assert f'{name} = "{found[1]}"' in (ROOT / "scripts/releasing.py").read_text()


def test_unreleased_changes_are_grouped_by_subject() -> None:
    kinds = re.split(r"^### ", section("[Unreleased]", CHANGELOG), flags=re.M)[1:]
    assert [kind.split("\n", 1)[0] for kind in kinds] == ["Added", "Changed", "Fixed"]
    for kind in kinds:
        before, *subjects = re.split(r"^#### ", kind, flags=re.M)
        assert "- " not in before
        names = [subject.split("\n", 1)[0] for subject in subjects]
        assert len(names) == len(set(names))
        assert all("\n- " in subject for subject in subjects)
