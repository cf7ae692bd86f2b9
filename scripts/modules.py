"""The versions of Kubernetes that are generated from, and their sources: Go modules, downloaded by
the Go toolchain.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
# The minor versions that are checked against, each with its patch: k8s.io/kubernetes v1.PATCH,
# k8s.io/api v0.PATCH.
VERSIONS = {"1.34": "34.4", "1.35": "35.4", "1.36": "36.3", "1.37": "37.1"}
NEWEST = VERSIONS[max(VERSIONS, key=lambda version: tuple(map(int, version.split("."))))]


@cache
def _go() -> str:
    """A Go that can read the modules: the machine's, else one from a Python package."""
    least = re.search(
        r"^go (\S+)$", (SCRIPTS.parent / "tests/controlplane/go.mod").read_text(), re.MULTILINE
    )
    assert least
    found = subprocess.run(
        [SCRIPTS / "gotool", least[1]], stdout=subprocess.PIPE, text=True, check=True
    )
    return found.stdout.strip()


def directory(module: str) -> Path:
    """Where a module, `NAME@vVERSION`, lies once it is downloaded."""
    found = subprocess.run(
        [_go(), "mod", "download", "-json", module],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        cwd="/",
    )
    told = json.loads(found.stdout or "{}")
    if found.returncode or "Dir" not in told:
        sys.exit(f"{module}: {told.get('Error', 'the Go toolchain could not download it')}")
    return Path(told["Dir"])
