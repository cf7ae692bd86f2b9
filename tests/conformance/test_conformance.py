"""Kubernetes' own end-to-end tests of DaemonSets, with `gitops-ds run --powers full` as the
cluster's DaemonSet controller.

The program is built from the modules of the very version that runs (scripts/controlplane
--conformance): its `curHistory` compares our ControllerRevisions byte by byte with what its own
types would write.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests import controlplane
from tests.service.test_service import running

PATIENCE = 1500  # seconds; upstream's own controller takes 140 on two quiet cores
NODES = 5  # "should surge pods" allows one more pod, and requires 20 %
SPECS = 11
# It makes a second revision with the data of the first, and has to count two before the controller
# makes them one, as upstream's does too: on a busy machine it comes too late, and is tried once
# more.
RACING = "should manage the lifecycle of a ControllerRevision"  # its labels follow, in brackets


@pytest.mark.slow
@pytest.mark.controlplane
def test_kubernetes_own_tests_of_daemonsets_and_controller_revisions_pass(tmp_path: Path) -> None:
    options = controlplane.Wanted(
        nodes=NODES,
        daemonset_controller=False,
        pod_ready_milliseconds=1000,
        pod_delete_milliseconds=100,
    )
    plane = controlplane.ControlPlane(tmp_path / "plane", options)
    try:
        plane.start()
        with running(tmp_path, plane, "--powers", "full"):
            end_to_end(plane, tmp_path)
    finally:
        plane.stop()
    judge(tmp_path)


def judge(reports: Path) -> None:
    """Every test ran and passed."""
    found = json.loads((reports / "specs.json").read_text())[0]["SpecReports"]
    specs = {
        spec["LeafNodeText"]: spec
        for spec in found
        if spec["LeafNodeType"] == "It" and spec["State"] != "skipped"
    }
    assert {spec["State"] for spec in specs.values()} == {"passed"}, list(specs)
    assert len(specs) == SPECS, sorted(specs)
    repeated = {name.split(" [")[0] for name, spec in specs.items() if spec["NumAttempts"] > 1}
    assert repeated <= {RACING}


def end_to_end(plane: controlplane.ControlPlane, reports: Path) -> None:
    """Runs the tests; their output is in `reports`, and in the failure."""
    log = reports / "e2e.log"
    with log.open("wb") as output:
        ended = subprocess.run(
            [
                controlplane.programs("--conformance") / "e2e.test",
                "--provider=local",
                f"--kubeconfig={plane.kubeconfig}",
                f"--report-dir={reports}",
                "--ginkgo.no-color",
                "--ginkgo.flake-attempts=2",
                f"--ginkgo.json-report={reports / 'specs.json'}",
                (
                    r"--ginkgo.focus=\[sig-apps\] (Daemon "
                    r"set|ControllerRevision)"
                ),
                r"--ginkgo.skip=\[Disruptive\]",
            ],
            stdout=output,
            stderr=output,
            cwd=reports,
            timeout=PATIENCE,
            check=False,
        )
    assert ended.returncode == 0, log.read_text()[-5000:]
