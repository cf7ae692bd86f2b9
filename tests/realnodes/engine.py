"""The image as buildah builds it from the Containerfile (`scripts/image`), and its containers."""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.controlplane import ROOT


def problem() -> str:
    """Why this machine can't build the image; empty if it can."""
    if platform.system() != "Linux" or os.geteuid() != 0:
        return "the image is built by root on Linux"
    absent = [name for name in ("buildah", "debootstrap") if not shutil.which(name)]
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

    def unpack(self, root: Path) -> None:
        """Writes the files of the image below a directory. A whiteout removes a file of a lower
        layer: https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts
        """
        for layer in self._layers():
            entries = layer.getmembers()
            files = []
            for entry in entries:
                path = root / entry.name
                if path.name.startswith(_WHITEOUT):
                    _remove(path.with_name(path.name.removeprefix(_WHITEOUT)))
                else:
                    files.append(entry)
            layer.extractall(root, files, numeric_owner=True, filter="fully_trusted")

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


@dataclass(frozen=True)
class Container:
    """A container of an image: its user and variables, a read-only root, a /tmp of its own. `root`
    has the files of the image.
    """

    image: Archive
    root: Path

    def run(
        self, *words: str, binds: Sequence[tuple[Path, str]] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program; `binds` are directories with their places in the container."""
        config = self.image.config["config"]
        user, _, group = config["User"].partition(":")
        directory = config["WorkingDir"]
        mounts = "".join(
            f"mkdir -p $m{place} && mount --bind {shlex.quote(str(here))} $m{place}\n"
            for here, place in binds
        )
        # All mounts end with the namespace: unshare(1)
        script = f"""set -e; m=$1; shift; mount --bind $m $m
mkdir -p $m/proc $m/dev $m/tmp $m{directory}
{mounts}mount -t proc proc $m/proc; mount --rbind /dev $m/dev
mount -o remount,bind,ro $m; mount -t tmpfs tmpfs $m/tmp
exec setpriv --no-new-privs chroot --userspec={user}:{group} --groups={group} $m \
  sh -c 'cd {directory} && exec "$@"' sh "$@"
"""
        return subprocess.run(
            ("unshare", "--mount", "--pid", "--fork", "sh", "-c", script, "sh", self.root, *words),
            capture_output=True,
            text=True,
            env=dict(line.split("=", 1) for line in config["Env"]),
            check=False,
        )


_WHITEOUT = ".wh."


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _json(archive: tarfile.TarFile, name: str) -> Any:
    file = archive.extractfile(name)
    assert file is not None
    return json.load(file)
