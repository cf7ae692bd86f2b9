"""The configuration of Renovate in the guide and in the examples: its expressions find the version
of each image that the clusters run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.source import render
from tests.docs import pages
from tests.docs.pages import ROOT
from tests.render import snapshots
from tests.render.test_examples import CLUSTERS

EXAMPLES = ROOT / "examples-repo"
SETTINGS: dict[str, Any] = json.loads((EXAMPLES / "renovate.json").read_text())
# k8sImageRegex of Renovate's manager: lib/modules/manager/kubernetes/extract.ts
IMAGE = re.compile(r"""^\s*-?\s*image:\s*['"]?([^\s'"]+)['"]?\s*(?:#.*)?$""", re.MULTILINE)


def expression(of_javascript: str) -> re.Pattern[str]:
    return re.compile(of_javascript.replace("(?<", "(?P<"))


def files(patterns: list[str]) -> Iterator[Path]:
    """The files of the examples that a manager reads."""
    for path in sorted(EXAMPLES.rglob("*")):
        name = path.relative_to(EXAMPLES).as_posix()
        if path.is_file() and any(re.search(pattern.strip("/"), name) for pattern in patterns):
            yield path


def found() -> set[str]:
    """The images with their versions, as Renovate finds them."""
    images = set()
    for path in files(SETTINGS["kubernetes"]["managerFilePatterns"]):
        images |= {one for one in IMAGE.findall(path.read_text()) if "${" not in one}
    for manager in SETTINGS["customManagers"]:
        assert manager["customType"] == "regex"
        for path in files(manager["managerFilePatterns"]):
            for one in manager["matchStrings"]:
                for match in expression(one).finditer(path.read_text()):
                    images.add(f"{match['depName']}:{match['currentValue']}")
    return images


def test_the_guide_and_the_examples_have_the_same_file() -> None:
    page = ROOT / "docs/guides/image-updates.md"
    (block,) = [
        block
        for section in pages.sections(page)
        for block in section.blocks
        if block.file == "renovate.json"
    ]
    assert json.loads(block.text) == SETTINGS


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_each_image_of_a_cluster_is_found(cluster: str) -> None:
    bundle = render.render(snapshots.of_folder(EXAMPLES), cluster=cluster)
    specs = [
        manifest.body["spec"]["template"]["spec"]
        for key, manifest in bundle.manifests.items()
        if key.is_daemonset
    ]
    images = {
        container["image"].partition("@")[0]
        for spec in specs
        for container in (*spec["containers"], *spec.get("initContainers", ()))
    }
    assert len(images) > 8
    assert images - {one.partition("@")[0] for one in found()} == set()


@pytest.mark.parametrize(
    ("line", "version", "digest"),
    [
        ("version: 4.0.11 # renovate: image=quay.io/x/y", "4.0.11", None),
        ('  tag: "v1.2" # renovate: image=quay.io/x/y', "v1.2", None),
        (
            f"version: 1.2.3@sha256:{'a' * 64}  # renovate: image=quay.io/x/y",
            "1.2.3",
            f"sha256:{'a' * 64}",
        ),
    ],
)
def test_a_parameter_is_read_with_its_digest(line: str, version: str, digest: str | None) -> None:
    (one,) = SETTINGS["customManagers"][0]["matchStrings"]
    match = expression(one).search(f"logLevel: warn\n{line}\n")
    assert match
    assert match.groupdict() == {
        "currentValue": version,
        "currentDigest": digest,
        "depName": "quay.io/x/y",
    }
    assert not expression(one).search("version: 4.0.11\n")
