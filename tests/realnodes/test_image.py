"""The image that a container engine builds from the Containerfile: its configuration, and the files
of its layers.
"""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import PurePosixPath

import pytest

from tests.controlplane import ROOT
from tests.realnodes import engine
from tests.realnodes.engine import Archive

pytestmark = [
    pytest.mark.realnodes,
    pytest.mark.slow,
    pytest.mark.system,
    pytest.mark.xdist_group("image"),
]
MIB = 1 << 20
LIMIT = 420  # MiB of the layers above the base image
FORBIDDEN = re.compile(
    r"^(usr/(local/)?s?bin|opt/[^/]+/bin)/(gcc|g\+\+|cc|c\+\+|ld|make|go|pip[\d.]*|uv)$"
    r"|^(root|run|tmp|src|renderers|usr/local/go|var/lib/apt/lists|var/cache/apt)/(?!.*\.wh\.)"
    r"|(^|/)(pip\.conf|\.netrc|\.git)$|\.(whl|deb)$|site-packages/(pip|setuptools|hatchling)/"
)
DISTRIBUTION = re.compile(r"/(?:site|dist)-packages/([^/-]+)-([^/-]+)\.(?:dist|egg)-info/?$")
PACKAGE = re.compile(
    r"^Package: (.*)\n(?:.+\n)*?Status: install ok installed\n(?:.+\n)*?Version: (.*)", re.M
)
ALLOWED = {"run/adduser"}  # an empty lock of useradd


@pytest.fixture(scope="module")
def image() -> Archive:
    if reason := engine.problem():
        pytest.skip(reason)
    return Archive(engine.archive("service"))


@pytest.fixture(scope="module")
def layers(image: Archive) -> list[list[tarfile.TarInfo]]:
    """The entries of the layers above the base image."""
    return list(image.layers())[1:]


def test_the_image_runs_the_service_as_an_unprivileged_user(image: Archive) -> None:
    config = image.config["config"]
    assert image.name.endswith("gitops-ds:0.1.0")
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["gitops-ds"]
    assert config["Cmd"] == ["run", "--settings=/etc/gitops-ds/settings/settings.yaml"]
    assert {one.partition("=")[0] for one in config["Env"]} == {"PATH", "PYTHONDONTWRITEBYTECODE"}
    labels = config["Labels"]
    assert labels["org.opencontainers.image.version"] == "0.1.0"
    assert re.fullmatch("[0-9a-f]{40}", labels["org.opencontainers.image.revision"])


def test_the_layers_have_no_compiler_and_nothing_of_the_build(
    layers: list[list[tarfile.TarInfo]],
) -> None:
    files = [entry.name for layer in layers for entry in layer if not entry.isdir()]
    assert {name for name in files if FORBIDDEN.search(name)} <= ALLOWED
    assert "etc/resolv.conf" not in files
    assert "opt/gitops-ds/bin/gitops-ds" in files
    assert {"usr/local/bin/helm", "usr/local/bin/kustomize", "usr/bin/git"} <= set(files)


def test_only_root_can_write_the_program(
    layers: list[list[tarfile.TarInfo]],
) -> None:
    entries = [entry for layer in layers for entry in layer if entry.name.startswith("opt/")]
    assert {entry.uid for entry in entries} == {0}
    assert [one.name for one in entries if one.mode & 0o022 and not one.issym()] == []
    assert [one.name for one in entries if one.mode & 0o6000] == []


def test_the_image_lists_what_is_installed(image: Archive) -> None:
    """https://cyclonedx.org/docs/1.6/json/: the required fields, and a reference for each."""
    bill = json.loads(image.read("opt/gitops-ds/share/sbom.cdx.json"))
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    components = bill["components"]
    assert {one["type"] for one in components} == {"library"}
    assert all(one["name"] and one["version"] for one in components)
    listed = [one["bom-ref"] for one in components]
    assert listed == sorted(set(listed)) == [one["purl"] for one in components]

    names = (entry.name for layer in image.layers() for entry in layer)
    found = {match.groups() for name in names if (match := DISTRIBUTION.search(name))}
    installed = {f"pkg:pypi/{re.sub('[-_.]+', '-', name).lower()}@{v}" for name, v in found}
    assert "pkg:pypi/gitops-ds@0.1.0" in installed
    assert {one for one in listed if one.startswith("pkg:pypi/")} == installed
    packages = {(one["name"], one["version"]) for one in components if "pkg:deb/" in one["purl"]}
    assert packages == set(PACKAGE.findall(image.read("var/lib/dpkg/status")))
    assert {"libc6", "git", "openssh-client", "gpg"} <= {name for name, _ in packages}
    modules = (ROOT / "tests/renderers/go.mod").read_text()
    programs = re.findall(r"(helm.sh/helm/v3|sigs.k8s.io/kustomize/kustomize/v5) (v\S+)", modules)
    assert len(programs) == 2
    assert {f"pkg:golang/{path}@{version}" for path, version in programs} <= set(listed)


def test_the_size_of_the_image(
    image: Archive,
    layers: list[list[tarfile.TarInfo]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    sizes = [sum(entry.size for entry in layer) / MIB for layer in layers]
    with capsys.disabled():
        print(f"\nimage: {[round(one) for one in sizes]} = {sum(sizes):.0f} MiB above its base")
        print(f"  {_largest(layers)}; archive {image.path.stat().st_size / MIB:.0f} MiB")
    assert sum(sizes) < LIMIT


def _largest(layers: list[list[tarfile.TarInfo]]) -> str:
    sizes: dict[str, float] = {}
    for layer in layers:
        for entry in layer:
            top = "/".join(PurePosixPath(entry.name).parts[:3])
            sizes[top] = sizes.get(top, 0) + entry.size / MIB
    most = sorted(sizes.items(), key=lambda one: -one[1])[:8]
    return ", ".join(f"{name} {size:.0f}" for name, size in most)
