"""Kubernetes' own end-to-end tests of DaemonSets, with `gitops-ds run --powers full` as the cluster's DaemonSet controller.

The program is built from the modules of the very version that runs (scripts/controlplane --conformance): its `curHistory` compares
our ControllerRevisions byte by byte with what its own types would write.
"""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests import controlplane
from tests.service.test_service import running

PATIENCE = 1500  # seconds; upstream's own controller takes 140 on two quiet cores
NODES = 5  # "should surge pods" allows one more pod, and asks for 20 %
SPECS = 11


@pytest.mark.controlplane
def test_kubernetes_own_tests_of_daemonsets_and_controller_revisions_pass(tmp_path: Path) -> None:
    wanted = controlplane.Wanted(nodes=NODES, daemonset_controller=False, pod_ready_milliseconds=1000, pod_delete_milliseconds=100)
    plane = controlplane.ControlPlane(tmp_path / "plane", wanted)
    try:
        plane.start()
        with running(tmp_path, plane, "--powers", "full"):
            end_to_end(plane, tmp_path)
    finally:
        plane.stop()
    ran = ElementTree.parse(tmp_path / "junit_01.xml").getroot().iterfind(".//testcase")
    results = {case.attrib["name"]: case.attrib["status"] for case in ran if case.attrib["status"] != "skipped"}
    specs = {name: status for name, status in results.items() if name.startswith("[It]")}
    assert set(specs.values()) == {"passed"}, specs
    assert len(specs) == SPECS, sorted(specs)


def end_to_end(plane: controlplane.ControlPlane, reports: Path) -> None:
    """Runs the tests; their output is in `reports`, and in the failure."""
    log = reports / "e2e.log"
    with log.open("wb") as output:
        ended = subprocess.run(
            [
                controlplane.programs("--conformance") / "e2e.test",
                "--provider=local", f"--kubeconfig={plane.kubeconfig}", f"--report-dir={reports}", "--ginkgo.no-color",
                r"--ginkgo.focus=\[sig-apps\] (Daemon set|ControllerRevision)", r"--ginkgo.skip=\[Disruptive\]",
            ],
            stdout=output, stderr=output, cwd=reports, timeout=PATIENCE, check=False,
        )  # fmt: skip
    assert ended.returncode == 0, log.read_text()[-5000:]
