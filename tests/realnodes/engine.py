"""The image as buildah builds it from the Containerfile (`scripts/image`)."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.controlplane import ROOT


def problem() -> str:
    """Why this machine can't build the image; empty if it can."""
    if platform.system() != "Linux" or os.geteuid() != 0:
        return "the image is built by root on Linux"
    absent = [one for one in ("buildah", "debootstrap") if not shutil.which(one)]
    return f"missing for the image: {', '.join(absent)}; run `make setup-system`" if absent else ""


def archive(stage: str) -> Path:
    """The archive of the image of a stage, built if missing."""
    built = subprocess.run(
        [ROOT / "scripts/image", stage], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(built.stdout.strip())


@dataclass(frozen=True)
class Archive:
    """An archive of Docker: `manifest.json`, the configuration and the layers."""

    path: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """https://github.com/opencontainers/image-spec/blob/main/config.md"""
        with tarfile.open(self.path) as archive:
            return dict(_json(archive, self._manifest(archive)["Config"]))

    @cached_property
    def name(self) -> str:
        """The name with the tag."""
        with tarfile.open(self.path) as archive:
            return str(self._manifest(archive)["RepoTags"][0])

    def layers(self) -> Iterator[list[tarfile.TarInfo]]:
        """The entries of each layer, the lowest first."""
        for layer in self._layers():
            yield layer.getmembers()

    def read(self, path: str) -> str:
        """A file, in its highest layer."""
        texts = [
            file.read().decode()
            for layer in self._layers()
            if path in layer.getnames() and (file := layer.extractfile(path)) is not None
        ]
        return texts[-1]

    def _layers(self) -> Iterator[tarfile.TarFile]:
        with tarfile.open(self.path) as archive:
            for name in self._manifest(archive)["Layers"]:
                entry = archive.getmember(name)
                if entry.issym():  # a layer that another image has too
                    entry = archive.getmember(entry.linkname.removeprefix("../"))
                with tarfile.open(fileobj=archive.extractfile(entry)) as layer:
                    yield layer

    @staticmethod
    def _manifest(archive: tarfile.TarFile) -> dict[str, Any]:
        return dict(_json(archive, "manifest.json")[0])


def _json(archive: tarfile.TarFile, name: str) -> Any:
    file = archive.extractfile(name)
    assert file is not None
    return json.load(file)
