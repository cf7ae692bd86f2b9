"""The Go modules of the supported versions of Kubernetes, downloaded by the Go toolchain."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
_TABLE = runpy.run_path(str(SCRIPTS.parent / "gitops_ds/kube/apimachinery/kubernetes_versions.py"))
# By supported minor version the PATCH of its modules: k8s.io/kubernetes v1.PATCH, k8s.io/api
# v0.PATCH.
VERSIONS: dict[str, str] = {
    minor: release.removeprefix("1.") for minor, release in _TABLE["RELEASES"].items()
}
NEWEST = VERSIONS[_TABLE["NEWEST"]]


@cache
def _go() -> str:
    """The Go toolchain for these modules: the installed one, else that of a Python package."""
    least = re.search(
        r"^go (\S+)$", (SCRIPTS.parent / "tests/controlplane/go.mod").read_text(), re.MULTILINE
    )
    assert least
    done = subprocess.run(
        [SCRIPTS / "gotool", least[1]], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip()


def directory(module: str) -> Path:
    """The directory of a downloaded module, `NAME@vVERSION`."""
    done = subprocess.run(
        [_go(), "mod", "download", "-json", module],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        cwd="/",
    )
    download = json.loads(done.stdout or "{}")
    if done.returncode or "Dir" not in download:
        sys.exit(f"{module}: {download.get('Error', 'the Go toolchain could not download it')}")
    return Path(download["Dir"])
