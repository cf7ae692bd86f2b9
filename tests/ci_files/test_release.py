"""scripts/release: the files of a release, built from the work tree."""

from __future__ import annotations

import email
import hashlib
import importlib.util
import io
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import gitops_ds
from tests import renderers
from tests.ci_files import files
from tests.installation import containerfile

VERSION = gitops_ds.__version__
DIGEST = f"sha256:{'a' * 64}"
IMAGE = f"ghcr.io/gitops-ds/gitops-ds:{VERSION}@{DIGEST}"
RELEASE = files.ROOT / "scripts/release"
CHANGELOG = """# Changelog

## [Unreleased]

### Added

- Not yet.

## [0.2.0] - 2026-12-01

### Added

#### Check

- `check` finds [more](docs/rules.md#rules), in less
  time. A second sentence.

### Fixed

- A race.

## [0.1.0] - 2026-11-21

- The first.
"""


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("releasing", files.ROOT / "scripts/releasing.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


releasing: Any = _module()


def test_the_notes_are_the_section_of_the_version_with_links_to_its_tag() -> None:
    notes = releasing.notes(CHANGELOG, "0.2.0")
    assert notes.startswith("### Added")
    assert notes.endswith("- A race.\n")
    assert f"[more]({releasing.HOME}/blob/v0.2.0/docs/rules.md#rules)" in notes


@pytest.mark.parametrize("version", ["0.3.0", "0", "0.1"])
def test_a_version_without_a_section_has_no_notes(version: str) -> None:
    with pytest.raises(releasing.ReleaseError, match="no section"):
        releasing.notes(CHANGELOG, version)


def test_the_section_of_unreleased_changes_is_not_empty_or_the_version_is_released() -> None:
    text = (files.ROOT / "CHANGELOG.md").read_text()
    assert releasing.notes(text, VERSION)


def versions(**more: str) -> Any:
    same = dict.fromkeys(("package", "chart", "app", "manifest", "component"), "0.2.0")
    return releasing.Versions(**(same | more))


def test_files_with_the_version_of_the_tag_are_released() -> None:
    assert releasing.mismatches(versions(), CHANGELOG, "v0.2.0") == []
    assert releasing.mismatches(versions(), CHANGELOG) == []


@pytest.mark.parametrize(
    ("more", "tag", "line"),
    [
        ({"chart": "0.1.0"}, "", "Chart.yaml, version is 0.1.0, not 0.2.0"),
        ({"app": "0.1.0"}, "", "appVersion is 0.1.0"),
        ({"manifest": ""}, "", "install.yaml"),
        ({"component": "0.1.0"}, "", "templates/check.yml"),
        ({}, "v0.2.1", "the tag v0.2.1 is not v0.2.0"),
        ({}, "0.2.0", "the tag 0.2.0 is not v0.2.0"),
    ],
)
def test_a_file_of_another_version_is_reported(more: dict[str, str], tag: str, line: str) -> None:
    assert any(
        line in mismatch for mismatch in releasing.mismatches(versions(**more), CHANGELOG, tag)
    )


def test_a_prerelease_has_a_chart_with_a_semantic_version() -> None:
    candidate = dict.fromkeys(("package", "app", "manifest", "component"), "0.2.0rc1")
    assert releasing.mismatches(versions(**candidate, chart="0.2.0-rc.1"), CHANGELOG) == []
    assert releasing.mismatches(versions(**candidate, chart="0.2.0rc1"), CHANGELOG)


def test_a_release_has_a_dated_section_in_the_changelog() -> None:
    undated = CHANGELOG.replace(" - 2026-12-01", "")
    assert releasing.mismatches(versions(), undated, "v0.2.0")


def test_the_work_tree_has_one_version() -> None:
    done = subprocess.run(
        [sys.executable, RELEASE, "check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("version", "expected"), [("1.0.0", False), ("1.0.0rc1", True), ("0.2.0a2", True)]
)
def test_a_prerelease_is_recognized_by_its_suffix(version: str, expected: bool) -> None:
    assert releasing.prerelease(version) is expected


@pytest.mark.parametrize(
    "digest", ["", "sha256:abc", "a" * 64, f"{DIGEST}\n", f"sha512:{'a' * 64}"]
)
def test_an_image_has_a_whole_digest(digest: str) -> None:
    with pytest.raises(releasing.ReleaseError, match="is not a digest"):
        releasing.pinned("image", "1", digest)


def test_the_install_manifest_names_the_published_image_once() -> None:
    text = releasing.install_manifest(
        (files.ROOT / "deploy/install.yaml").read_text(), VERSION, DIGEST
    )
    assert re.findall(r"image: (\S+)", text) == [IMAGE]
    with pytest.raises(releasing.ReleaseError, match="occurs 0 times"):
        releasing.install_manifest(text, VERSION, DIGEST)


def test_the_chart_lists_its_image_and_the_first_sentence_of_each_change() -> None:
    chart = (files.ROOT / "deploy/chart/gitops-ds/Chart.yaml").read_text()
    text = releasing.chart_metadata(chart, "0.2.0rc1", DIGEST, releasing.notes(CHANGELOG, "0.2.0"))
    (document,) = files.documents(text)
    annotations = document["annotations"]
    (changes,) = files.documents(annotations["artifacthub.io/changes"])
    assert changes == [
        {"kind": "added", "description": "check finds more, in less time"},
        {"kind": "fixed", "description": "A race"},
    ]
    (images,) = files.documents(annotations["artifacthub.io/images"])
    assert images[0]["image"].endswith(DIGEST)
    assert annotations["artifacthub.io/prerelease"] == "true"


def test_build_requirements_are_not_in_the_lock_of_the_plugin() -> None:
    lock = files.LOCK.read_text()
    names = set(re.findall(r"(?m)^([a-z0-9.-]+)==", lock))
    left = set(re.findall(r"(?m)^([a-z0-9.-]+)==", releasing.runtime_lock(lock)))
    assert names - left == set(releasing.BUILD_ONLY)
    # The image removes the same packages, pip, and what environments of Python 3.11 bring.
    steps = " ".join(rest for word, rest in containerfile.instructions() if word == "RUN")
    removed = re.search(r"pip uninstall --yes --quiet ([\w -]+?) pip ", steps)
    assert removed
    assert set(removed[1].split()) == {*releasing.BUILD_ONLY, "setuptools"}


def test_an_archive_of_the_same_files_has_the_same_bytes() -> None:
    content = {"b": b"2", "run": b"#!/bin/sh\n", "a": b"1"}
    packed = releasing.archive(content, "run")
    assert packed == releasing.archive(dict(sorted(content.items())), "run")
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert [(one.name, one.mode) for one in tar] == [("a", 0o644), ("b", 0o644), ("run", 0o755)]


def test_the_krew_manifest_names_one_archive_for_each_platform() -> None:
    """https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/"""
    (document,) = files.documents(releasing.krew_manifest("0.2.0", "plugin.tar.gz", "b" * 64))
    assert document["metadata"]["name"] == "gitops-ds"
    assert document["spec"]["version"] == "v0.2.0"
    assert len(document["spec"]["shortDescription"]) <= 50
    platforms = document["spec"]["platforms"]
    assert [tuple(platform["selector"]["matchLabels"].values()) for platform in platforms] == list(
        releasing.PLATFORMS
    )
    for platform in platforms:
        assert platform["uri"] == f"{releasing.HOME}/releases/download/v0.2.0/plugin.tar.gz"
        assert (platform["sha256"], platform["bin"]) == ("b" * 64, "kubectl-gitops_ds")


def test_checksums_have_the_form_of_sha256sum(tmp_path: Path) -> None:
    content = {"b": b"2", "a b": b"1"}
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "SHA256SUMS").write_text(releasing.checksums(content))
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a release, as the workflow fills it."""
    directory = tmp_path_factory.mktemp("release")
    for words in (("distribution", directory), ("files", directory, f"--digest={DIGEST}")):
        done = subprocess.run(
            [sys.executable, RELEASE, *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return directory


@pytest.mark.renderers
def test_a_release_has_these_files_and_their_checksums(release: Path) -> None:
    names = {path.name for path in release.iterdir()}
    assert names == {
        f"gitops_ds-{VERSION}.tar.gz",
        f"gitops_ds-{VERSION}-py3-none-any.whl",
        f"gitops-ds-{VERSION}.tgz",
        f"kubectl-gitops_ds-{VERSION}.tar.gz",
        "gitops-ds.krew.yaml",
        "install.yaml",
        "NOTES.md",
        "SHA256SUMS",
    }
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=release, check=True)
    listed = (release / "SHA256SUMS").read_text().split()[1::2]
    assert set(listed) == names - {"NOTES.md", "SHA256SUMS"}
    krew = (release / "gitops-ds.krew.yaml").read_text()
    packed = (release / f"kubectl-gitops_ds-{VERSION}.tar.gz").read_bytes()
    assert hashlib.sha256(packed).hexdigest() in krew


@pytest.mark.renderers
def test_a_second_build_of_the_same_commit_makes_the_same_bytes(
    release: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, RELEASE, "distribution", tmp_path], check=True)
    built = sorted(tmp_path.iterdir())
    assert [path.suffix for path in built] == [".whl", ".gz"]
    for path in built:
        assert path.read_bytes() == (release / path.name).read_bytes()


@pytest.mark.renderers
def test_the_packed_chart_renders_the_published_image(release: Path) -> None:
    helm, chart = renderers.programs() / "helm", release / f"gitops-ds-{VERSION}.tgz"
    lint = subprocess.run(
        [helm, "lint", "--strict", chart], capture_output=True, text=True, check=False
    )
    assert lint.returncode == 0, lint.stdout
    assert "[INFO]" not in lint.stdout
    done = subprocess.run(
        [helm, "template", "gitops-ds", chart], capture_output=True, text=True, check=True
    )
    assert re.findall(r'image: "(.*)"', done.stdout) == [IMAGE]


@pytest.mark.renderers
def test_the_wheel_names_its_authors_source_and_pages(release: Path) -> None:
    wheel = release / f"gitops_ds-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as packed:
        text = packed.read(f"gitops_ds-{VERSION}.dist-info/METADATA").decode()
    metadata = email.message_from_string(text)
    assert metadata["Author"] == "The gitops-ds authors"
    links = dict(line.split(", ") for line in metadata.get_all("Project-URL", []))
    assert {"Documentation", "Source", "Issues", "Changelog"} <= set(links)
    site = (files.ROOT / "mkdocs.yml").read_text("utf-8")
    assert f"\nsite_url: {links.pop('Documentation')}\n" in site
    assert all(link.startswith(releasing.HOME) for link in links.values())


@pytest.mark.slow
@pytest.mark.renderers
@pytest.mark.system
@pytest.mark.xdist_group("ci_files")
def test_the_kubectl_plugin_installs_itself_once_and_runs_the_demo(
    release: Path, wheels: Mapping[str, str], tmp_path: Path
) -> None:
    """The wheel and the locked packages alone, in an environment without those of the tests."""
    with tarfile.open(release / f"kubectl-gitops_ds-{VERSION}.tar.gz") as tar:
        tar.extractall(tmp_path / "store", filter="data")
    (tmp_path / "bin").mkdir()
    plugin = tmp_path / "bin/kubectl-gitops_ds"
    plugin.symlink_to("../store/kubectl-gitops_ds")
    environment = {
        **wheels,
        "HOME": str(tmp_path / "home"),
        "GITOPS_DS_PYTHON": sys.executable,
    }

    def started(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [plugin, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    first = started("version", "-o", "json")
    assert first.returncode == 0, first.stdout + first.stderr
    assert json.loads(first.stdout)["gitops-ds"] == VERSION
    assert "once" in first.stderr
    demo = started("demo", "--speed", "200")
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "once" not in demo.stderr
