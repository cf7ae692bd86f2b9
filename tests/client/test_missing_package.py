"""A missing package of the kubeconfig reader is named."""

from __future__ import annotations

import json
import subprocess
import sys

from gitops_ds.kube.client import kubeconfig


def test_the_reader_names_a_missing_package() -> None:
    command = [sys.executable, "-I", "-S", kubeconfig.__file__, "current-context", "file"]
    ended = subprocess.run(command, capture_output=True, check=True)
    problem = json.loads(ended.stdout)["problem"]
    assert "No module named 'kubernetes'" in problem
    assert "install gitops-ds again" in problem
