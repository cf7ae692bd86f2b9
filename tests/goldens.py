"""Expected texts in files: compared by the tests, and written with UPDATE_GOLDENS=1 in the
environment.
"""

from __future__ import annotations

import os
from pathlib import Path


def check(path: Path, text: str) -> None:
    """Fails if `text` differs from the file; with UPDATE_GOLDENS=1 writes the file instead."""
    if os.environ.get("UPDATE_GOLDENS") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    written = path.read_text(encoding="utf-8") if path.exists() else ""
    assert text == written, f"{path}: run `make generate`, and review its diff"
