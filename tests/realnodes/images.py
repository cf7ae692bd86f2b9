"""Container images without a registry, of static programs, as archives of Docker."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path


def write(
    target: Path, name: str, program: Path, others: Mapping[str, bytes] | None = None
) -> None:
    """An archive with the image `name` (with its tag) of a program, which is its entrypoint, and of
    other programs by their path.
    """
    programs = {program.name: program.read_bytes(), **(others or {})}
    layer = _tar({path: (content, 0o755) for path, content in programs.items()})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "WorkingDir": "/", "Env": [f"IMAGE={name}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    content = json.dumps(config).encode()
    config_name = f"{hashlib.sha256(content).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    target.write_bytes(
        _tar(
            {
                config_name: (content, 0o644),
                "layer.tar": (layer, 0o644),
                "manifest.json": (json.dumps(manifest).encode(), 0o644),
            }
        )
    )


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
