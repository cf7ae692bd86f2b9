"""What deploy/ holds, as kubectl, helm and a real API server take it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests import controlplane, renderers

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "chart/gitops-ds"


def kustomized(directory: Path) -> str:
    """The objects of a kustomization as YAML documents."""
    return _output(renderers.programs() / "kustomize", "build", directory)


def templated(*options: str) -> str:
    """The objects of the chart as YAML documents."""
    words = ("template", "gitops-ds", str(CHART), "--namespace", "gitops-ds", *options)
    return _output(renderers.programs() / "helm", *words)


def overlay(directory: Path, power: str, settings: str, *components: str) -> Path:
    """A kustomization as a user writes it: the base with a power, further components of deploy/,
    and settings.
    """
    directory.mkdir(parents=True, exist_ok=True)
    there = os.path.relpath(DEPLOY, directory.resolve())
    parts = "".join(f"  - {there}/{part}\n" for part in (f"powers/{power}", *components))
    (directory / "settings.yaml").write_text(settings)
    (directory / "kustomization.yaml").write_text(
        f"resources:\n  - {there}/base\ncomponents:\n{parts}"
        "configMapGenerator:\n  - {name: settings, namespace: gitops-ds, behavior: replace, "
        "files: [settings.yaml]}\n"
    )
    return directory


def apply(plane: controlplane.ControlPlane, directory: Path) -> None:
    """As a user does, by kubectl's own kustomize."""
    plane.kubectl("apply", "-k", str(directory), "--validate=strict")


def _output(*words: str | Path) -> str:
    ended = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return ended.stdout
