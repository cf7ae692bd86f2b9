"""The image that a container engine builds from the Containerfile: its configuration, and the files
of its layers. It starts as an unprivileged user on a read-only root, with all that it needs.
"""

from __future__ import annotations

import json
import re
import shutil
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from tests.agent_manifest import agent
from tests.controlplane import ROOT
from tests.realnodes import engine
from tests.realnodes.engine import Archive, Container

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


@pytest.fixture(scope="module")
def container(image: Archive, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    root = tmp_path_factory.mktemp("image")
    image.unpack(root)
    root.chmod(0o755)
    try:
        yield Container(image, root)
    finally:
        shutil.rmtree(root)


def test_the_image_runs_the_service_as_an_unprivileged_user(image: Archive) -> None:
    config = image.config["config"]
    assert image.name.endswith("gitops-ds:0.1.0")
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["gitops-ds"]
    assert config["Cmd"] == ["run", "--settings=/etc/gitops-ds/settings/settings.yaml"]
    assert {line.partition("=")[0] for line in config["Env"]} == {"PATH", "PYTHONDONTWRITEBYTECODE"}
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
    assert [entry.name for entry in entries if entry.mode & 0o022 and not entry.issym()] == []
    assert [entry.name for entry in entries if entry.mode & 0o6000] == []


def test_the_image_lists_what_is_installed(image: Archive) -> None:
    """https://cyclonedx.org/docs/1.6/json/: the required fields, and a reference for each."""
    bill = json.loads(image.read("opt/gitops-ds/share/sbom.cdx.json"))
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    components = bill["components"]
    assert {component["type"] for component in components} == {"library"}
    assert all(component["name"] and component["version"] for component in components)
    listed = [component["bom-ref"] for component in components]
    assert listed == sorted(set(listed)) == [component["purl"] for component in components]

    names = (entry.name for layer in image.layers() for entry in layer)
    found = {match.groups() for name in names if (match := DISTRIBUTION.search(name))}
    installed = {f"pkg:pypi/{re.sub('[-_.]+', '-', name).lower()}@{v}" for name, v in found}
    assert "pkg:pypi/gitops-ds@0.1.0" in installed
    assert {reference for reference in listed if reference.startswith("pkg:pypi/")} == installed
    packages = {
        (component["name"], component["version"])
        for component in components
        if "pkg:deb/" in component["purl"]
    }
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
        print(f"\nimage: {[round(size) for size in sizes]} = {sum(sizes):.0f} MiB above its base")
        print(f"  {_largest(layers)}; archive {image.path.stat().st_size / MIB:.0f} MiB")
    assert sum(sizes) < LIMIT


def test_the_image_has_all_programs_and_writes_only_to_permitted_directories(
    container: Container,
) -> None:
    done = container.run(
        "sh",
        "-c",
        "for name in git ssh gpg helm kustomize; do command -v $name || exit 9; done; id -u",
    )
    assert (done.returncode, done.stdout.split()[-1]) == (0, "65532"), done.stderr
    assert container.run("sh", "-c", "touch /opt/gitops-ds/x").returncode
    assert container.run("sh", "-c", "touch /tmp/x").returncode == 0


def test_no_program_of_the_image_runs_as_another_user_and_nothing_else_is_for_all_to_write(
    container: Container,
) -> None:
    for options in (
        "-type f -perm /6000",
        "-type f -perm -o+w",
        "-type d -perm -o+w ! -perm -1000",
    ):
        found = container.run("sh", "-c", f"find / -xdev {options} 2> /dev/null")
        assert found.stdout == ""


def test_the_image_starts_quickly_from_its_bytecode(
    container: Container, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    done = container.run("gitops-ds", "version")
    seconds = time.monotonic() - began
    assert done.stdout.startswith("gitops-ds "), done.stderr
    assert container.run("gitops-ds", "run", "--help").returncode == 0
    with capsys.disabled():
        print(f"\nimage: `version` in {seconds:.2f} s")
    # What is missing would be compiled at each start, for it can't be written.
    looked = (
        "find /opt/gitops-ds/lib -name '*.py' -path '*/gitops_ds/*' ! -path "
        "'*/commands/init/repository/*' | while read f; do"
    )
    missing = (
        "d=${f%/*}; b=${f##*/}; ls $d/__pycache__/${b%.py}.*.pyc > /dev/null 2>&1 || echo $f; done"
    )
    assert container.run("sh", "-c", f"{looked} {missing}").stdout == ""


def test_the_image_checks_a_read_only_repository(tmp_path: Path, container: Container) -> None:
    (tmp_path / "agent.yaml").write_text(agent())
    tmp_path.chmod(0o755)
    done = container.run("gitops-ds", "check", binds=[(tmp_path, "/work")])
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "agent.yaml").write_text(agent(label="other"))
    assert container.run("gitops-ds", "check", binds=[(tmp_path, "/work")]).returncode == 1


def test_the_list_of_what_is_installed_is_reproducible(container: Container) -> None:
    made = "python /opt/gitops-ds/share/sbom /usr/local/bin/helm /usr/local/bin/kustomize"
    script = f"{made} | cmp - /opt/gitops-ds/share/sbom.cdx.json"
    done = container.run("sh", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")


def _largest(layers: list[list[tarfile.TarInfo]]) -> str:
    sizes: dict[str, float] = {}
    for layer in layers:
        for entry in layer:
            top = "/".join(PurePosixPath(entry.name).parts[:3])
            sizes[top] = sizes.get(top, 0) + entry.size / MIB
    most = sorted(sizes.items(), key=lambda size: -size[1])[:8]
    return ", ".join(f"{name} {size:.0f}" for name, size in most)
