"""The CustomResourceDefinitions of other tools, which `scripts/crds` downloads."""

from __future__ import annotations

import subprocess
from functools import cache, partial
from pathlib import Path

from tests import controlplane
from tests.cluster.program import eventually

ROOT = Path(__file__).resolve().parents[1]
_CONDITIONS = "jsonpath={.status.conditions}"


@cache
def directory() -> Path:
    """The directory of the files, downloaded if it does not exist yet."""
    done = subprocess.run([ROOT / "scripts/crds"], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip())


def define(plane: controlplane.ControlPlane, *files: str) -> None:
    """Creates the kinds of these files."""
    for file in files:
        path = str(directory() / file)
        plane.kubectl("apply", "--server-side", "-f", path)
        eventually(
            partial(plane.kubectl, "get", "-f", path, "-o", _CONDITIONS),
            lambda conditions: '"status":"True","type":"Established"' in conditions,
        )
