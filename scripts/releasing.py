"""The files of a release as pure functions: notes, install.yaml, chart, kubectl plugin, checksums.

`scripts/release` reads and writes files; docs/releases.md describes the release.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass

HOME = "https://github.com/gitops-ds/gitops-ds"
IMAGE = "ghcr.io/gitops-ds/gitops-ds"
CHARTS = "ghcr.io/gitops-ds/charts"
PLUGIN = "gitops-ds"
# The build backend and its own packages: in the lock, because the image builds the wheel with them.
BUILD_ONLY = ("hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers")
# https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/
PLATFORMS = (("linux", "amd64"), ("linux", "arm64"))

_VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# A fixed date in place of the time of the build.
_EPOCH = 315532800  # 1980-01-01


class ReleaseError(Exception):
    """A file of the work tree does not fit the release."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The version in each file."""

    package: str
    chart: str
    app: str
    manifest: str
    component: str


def mismatches(versions: Versions, changelog: str, tag: str = "") -> list[str]:
    """A line for each file whose version differs from the package's, and for a tag that differs."""
    package = versions.package
    rows = {
        "deploy/chart/gitops-ds/Chart.yaml, appVersion": versions.app,
        "deploy/install.yaml, the tag of the image": versions.manifest,
        "templates/check.yml, the default of `package`": versions.component,
    }
    lines = [
        f"{place} is {version}, not {package}"
        for place, version in rows.items()
        if version != package
    ]
    if versions.chart != semver(package):
        lines.append(
            f"deploy/chart/gitops-ds/Chart.yaml, version is {versions.chart}, not {semver(package)}"
        )
    if not _VERSION.fullmatch(package):
        lines.append(f"gitops_ds/__init__.py: {package} is not X.Y.Z, X.Y.ZaN, X.Y.ZbN or X.Y.ZrcN")
    if tag and tag != f"v{package}":
        lines.append(f"the tag {tag} is not v{package}")
    if tag and not re.search(
        rf"^## \[{re.escape(package)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.M
    ):
        lines.append(f"CHANGELOG.md has no section `## [{package}] - DATE`")
    return lines


def semver(version: str) -> str:
    """A version of Python as one of Semantic Versioning, for helm and krew: 1.0.0-rc.1."""
    words = {"a": "alpha", "b": "beta", "rc": "rc"}
    return re.sub(r"(a|b|rc)(\d+)$", lambda part: f"-{words[part[1]]}.{part[2]}", version)


def prerelease(version: str) -> bool:
    """Whether the version is an alpha, a beta or a release candidate."""
    return not re.fullmatch(r"\d+\.\d+\.\d+", version)


def notes(changelog: str, version: str) -> str:
    """The section of a version of the changelog, without its heading; links lead to its tag.

    Raises ReleaseError if the version has no section.
    """
    found = re.search(
        rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)", changelog, re.M | re.S
    )
    if not found or not found[1].strip():
        raise ReleaseError(f"CHANGELOG.md has no section for {version}")
    return (
        re.sub(r"\]\((?!https?:)([^)]+)\)", rf"]({HOME}/blob/v{version}/\1)", found[1].strip())
        + "\n"
    )


def pinned(image: str, version: str, digest: str) -> str:
    """The image with its tag for readers, and its digest, which a runtime pulls.

    Raises ReleaseError if the digest has another form.
    """
    if not _DIGEST.fullmatch(digest):
        raise ReleaseError(f"{digest!r} is not a digest: sha256: and 64 hexadecimal digits")
    return f"{image}:{version}@{digest}"


def install_manifest(manifest: str, version: str, digest: str) -> str:
    """deploy/install.yaml with the published image by digest."""
    text = _replaced(
        manifest, f"image: gitops-ds:{version}", f"image: {pinned(IMAGE, version, digest)}"
    )
    comment, _, objects = text.partition("\n")
    if not comment.startswith("#"):
        raise ReleaseError("deploy/install.yaml has no comment in its first line")
    return f"# gitops-ds {version}, {HOME}/releases/tag/v{version}\n{objects}"


def chart_values(values: str, digest: str) -> str:
    """values.yaml of the chart with the published image by digest."""
    pinned(IMAGE, "", digest)
    text = _replaced(values, "  repository: gitops-ds\n", f"  repository: {IMAGE}\n")
    return _replaced(text, '  digest: ""\n', f"  digest: {digest}\n")


def chart_metadata(chart: str, version: str, digest: str, changes: str) -> str:
    """Chart.yaml with the annotations of a release for Artifact Hub: its image and its changes.

    https://artifacthub.io/docs/topics/annotations/helm/
    """
    if not chart.rstrip().splitlines()[-1].startswith("    "):
        raise ReleaseError("Chart.yaml does not end in the block of its annotations")
    rows = [
        f"- kind: {kind}\n  description: {json.dumps(line)}" for kind, line in _changes(changes)
    ]
    annotations = {
        "images": f"- name: gitops-ds\n  image: {pinned(IMAGE, version, digest)}\n"
        "  platforms: [linux/amd64, linux/arm64]",
        "changes": "\n".join(rows),
    }
    text = chart.rstrip() + "\n"
    for name, block in annotations.items():
        indented = "".join(f"    {line}\n" for line in block.splitlines())
        text += f"  artifacthub.io/{name}: |\n{indented}" if block else ""
    return text + ('  artifacthub.io/prerelease: "true"\n' if prerelease(version) else "")


def _changes(text: str) -> list[tuple[str, str]]:
    """Kind and first sentence of each entry of a changelog section, without links and marks."""
    changes: list[tuple[str, str]] = []
    kind = ""
    for block in re.split(r"\n(?=- |#)", text):
        if heading := re.match(r"### (\w+)", block):
            kind = heading[1].lower()
        elif block.startswith("- ") and kind:
            line = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block[2:].split()))
            changes.append((kind, re.split(r"(?<=[^.]\.) ", line.replace("`", ""))[0].rstrip(".")))
    return changes


def runtime_lock(lock: str) -> str:
    """requirements-runtime.lock without the packages that only build the wheel."""
    blocks = re.split(r"(?m)^(?=[a-z0-9])", lock)
    return "".join(block for block in blocks if block.partition("==")[0] not in BUILD_ONLY)


def launcher(version: str) -> str:
    """The program of the kubectl plugin: at the first start it installs the wheel of its archive in
    a separate environment, with the hash of every package, then runs it.
    """
    return f"""#!/bin/sh
# gitops-ds {version} as a kubectl plugin. Its packages are in an environment of this version, made at the first start.
set -eu
plugin=$0
while [ -L "$plugin" ]; do
  link=$(readlink "$plugin")
  case $link in /*) plugin=$link ;; *) plugin=$(dirname "$plugin")/$link ;; esac
done
files=$(cd "$(dirname "$plugin")" && pwd -P)
environment=${{XDG_DATA_HOME:-$HOME/.local/share}}/gitops-ds/{version}
if [ ! -f "$environment/.installed" ]; then
  python=${{GITOPS_DS_PYTHON:-python3}}
  "$python" -I -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' || {{
    echo "gitops-ds needs Python 3.11 or newer with venv: set GITOPS_DS_PYTHON" >&2
    exit 3
  }}
  echo "gitops-ds {version}: installing its packages into $environment, once" >&2
  "$python" -I -m venv --clear "$environment" >&2
  install() {{ "$environment/bin/python" -I -m pip install --quiet --disable-pip-version-check --no-deps "$@" >&2; }}
  install --require-hashes -r "$files/requirements.lock"
  install --no-index "$files"/*.whl
  touch "$environment/.installed"
fi
exec "$environment/bin/kubectl-gitops_ds" "$@"
"""  # noqa: E501


def archive(files: Mapping[str, bytes], executable: str) -> bytes:
    """A tar.gz of files in one directory. The output is reproducible."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(files[name]), _EPOCH
            entry.mode = 0o755 if name == executable else 0o644
            tar.addfile(entry, io.BytesIO(files[name]))
    return gzip.compress(packed.getvalue(), mtime=_EPOCH)


def krew_manifest(version: str, name: str, sha256: str) -> str:
    """The manifest of the kubectl plugin for krew, whose archive is a file of the release."""
    platforms = "".join(
        f"""    - selector:
        matchLabels: {{os: {system}, arch: {machine}}}
      uri: {HOME}/releases/download/v{version}/{name}
      sha256: {sha256}
      bin: kubectl-gitops_ds
"""
        for system, machine in PLATFORMS
    )
    return f"""apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: {PLUGIN}
spec:
  version: v{semver(version)}
  homepage: {HOME}
  shortDescription: Deploys DaemonSets from Git
  description: |
    Checks, plans, applies and observes node agents (DaemonSets) of a Git repository,
    and shows which node runs which commit.
  caveats: |
    The plugin needs Python 3.11 or newer with venv, and git. At its first start it installs its
    packages into ~/.local/share/gitops-ds, each with its hash.
  platforms:
{platforms}"""


def checksums(files: Mapping[str, bytes]) -> str:
    """SHA256SUMS, as `sha256sum --check` reads it."""
    rows = (f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    return "".join(rows)


def _replaced(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise ReleaseError(f"{old.strip()!r} occurs {text.count(old)} times, not once")
    return text.replace(old, new)
