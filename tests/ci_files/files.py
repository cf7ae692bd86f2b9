"""The files for CIs, read: action, template, hooks, image."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]


def documents(text: str) -> list[Any]:
    """The YAML documents of the text."""
    return list(YAML(typ="safe", pure=True).load_all(text))


def action() -> Any:
    """action.yml"""
    (document,) = documents((ROOT / "action.yml").read_text())
    return document


def template(**inputs: str) -> tuple[Any, str]:
    """The header of templates/check.yml, and the rest as GitLab reads it, with these inputs or their defaults in place."""
    header, _, text = (ROOT / "templates/check.yml").read_text().partition("\n---\n")
    spec = documents(header)[0]["spec"]["inputs"]
    for name, one in spec.items():
        value = inputs.get(name, one["default"])
        text = text.replace(f"$[[ inputs.{name} ]]", str(value).lower() if isinstance(value, bool) else value)
    return spec, text


def instructions() -> list[tuple[str, str]]:
    """The Containerfile's instructions, lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Containerfile").read_text(), flags=re.MULTILINE).replace("\\\n", "")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line.strip())]


def pinned() -> list[str]:
    """What the Containerfile takes from requirements.lock, by its own command."""
    (command,) = [re.split(r" > | && ", rest)[0] for word, rest in instructions() if word == "RUN" and rest.startswith("sed ")]
    words = command.replace("/src/requirements.lock", str(ROOT / "requirements.lock"))
    return subprocess.run(["sh", "-c", words], capture_output=True, text=True, check=True).stdout.splitlines()
