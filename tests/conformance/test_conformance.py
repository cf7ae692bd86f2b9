"""Kubernetes' own end-to-end tests of DaemonSets, with `gitops-ds run --powers full` as the
cluster's DaemonSet controller; on real nodes where the machine can have them, else on fake ones.

The program is built from the modules of the very version that runs (scripts/controlplane
--conformance): its `curHistory` compares our ControllerRevisions byte by byte with what its own
types would write.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import controlplane
from tests.realnodes import images, real_nodes
from tests.service.test_service import running

PATIENCE = 1500  # seconds; upstream's own controller takes 140 on two quiet cores
NODES = 5  # "should surge pods" allows one more pod, and requires 20 %
SPECS = 11
# It makes a second revision with the data of the first, and has to count two before the controller
# makes them one, as upstream's does too: on a busy machine it comes too late, and is tried once
# more.
RACING = "should manage the lifecycle of a ControllerRevision"  # its labels follow, in brackets


# There is no registry: the image of the tests has our agent, which runs until it is stopped, and a
# shell, which the test of surges needs.
BUSYBOX = Path("/bin/busybox")
APPLETS = ("sh", "cat", "sleep", "touch")


@pytest.mark.slow
@pytest.mark.controlplane
@pytest.mark.system
@pytest.mark.xdist_group("realnodes")
def test_kubernetes_own_tests_of_daemonsets_and_controller_revisions_pass(tmp_path: Path) -> None:
    with (
        _fake(tmp_path) if real_nodes.problem() else _real(tmp_path) as plane,
        running(tmp_path, plane, "--powers", "full"),
    ):
        end_to_end(plane, tmp_path)
    judge(tmp_path)


@contextlib.contextmanager
def _fake(directory: Path) -> Iterator[controlplane.ControlPlane]:
    options = controlplane.Wanted(
        nodes=NODES,
        daemonset_controller=False,
        pod_ready_milliseconds=1000,
        pod_delete_milliseconds=100,
    )
    plane = controlplane.ControlPlane(directory / "plane", options)
    try:
        yield plane.start()
    finally:
        plane.stop()


@contextlib.contextmanager
def _real(directory: Path) -> Iterator[controlplane.ControlPlane]:
    wanted = controlplane.Wanted(real_nodes=True, daemonset_controller=False)
    plane = controlplane.ControlPlane(directory / "plane", wanted)
    nodes = real_nodes.RealNodes(plane, directory / "nodes", archives=_archives(directory))
    try:
        plane.start()
        nodes.start(*(f"real-{number}" for number in range(1, NODES + 1)))
        yield plane
    finally:
        nodes.stop()
        plane.stop()


def _archives(directory: Path) -> list[Path]:
    """The images that the tests of DaemonSets use, under their names."""
    program = controlplane.programs("--conformance") / "e2e.test"
    listed = subprocess.run([program, "--list-images"], capture_output=True, text=True, check=True)
    shell = BUSYBOX.read_bytes()
    others = {f"bin/{one}": shell for one in APPLETS} | {"var/tmp/.keep": b""}
    archives = []
    for name in listed.stdout.split():
        if "/agnhost:" in name or "/httpd:" in name:
            archives.append(directory / f"image-{len(archives)}.tar")
            images.write(archives[-1], name, real_nodes.programs() / "agent", others)
    return archives


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
