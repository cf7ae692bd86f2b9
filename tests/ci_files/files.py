"""The files for CIs, read: action, template, hooks, image."""

from __future__ import annotations

import re
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
    """The header of templates/check.yml, and the rest as GitLab reads it, with these inputs or
    their defaults in place.
    """
    header, _, text = (ROOT / "templates/check.yml").read_text().partition("\n---\n")
    spec = documents(header)[0]["spec"]["inputs"]
    for name, one in spec.items():
        value = inputs.get(name, one["default"])
        text = text.replace(
            f"$[[ inputs.{name} ]]", str(value).lower() if isinstance(value, bool) else value
        )
    return spec, text


LOCK = ROOT / "requirements-runtime.lock"


def locked(lock: Path) -> dict[str, str]:
    """Each requirement of a lock file, `name==version` with its marker, and the lines of its
    hashes.
    """
    result: dict[str, str] = {}
    for block in re.split(r"(?m)^(?=[a-z0-9])", lock.read_text()):
        requirement, _, hashes = block.partition(" \\\n")
        if hashes:
            result[requirement] = hashes
    return result
