"""Kubernetes' own end-to-end tests of DaemonSets on real nodes, with our controller alone.

There is no registry: the image of the tests has our agent, which runs until it is stopped, and a
shell, which the test of surges needs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import controlplane
from tests.conformance import test_conformance
from tests.realnodes import images, real_nodes
from tests.realnodes.real_nodes import RealNodes
from tests.service.test_service import running

BUSYBOX = Path("/bin/busybox")
APPLETS = ("sh", "cat", "sleep", "touch")


@pytest.mark.realnodes
@pytest.mark.controlplane
@pytest.mark.slow
@pytest.mark.system
@pytest.mark.xdist_group("installed")
def test_kubernetes_own_tests_pass_on_real_nodes(tmp_path: Path) -> None:
    wanted = controlplane.Wanted(real_nodes=True, daemonset_controller=False)
    plane = controlplane.ControlPlane(tmp_path / "plane", wanted)
    nodes = RealNodes(plane, tmp_path / "nodes", archives=_archives(tmp_path))
    try:
        plane.start()
        nodes.start(*(f"real-{number}" for number in range(1, test_conformance.NODES + 1)))
        with running(tmp_path, plane, "--powers", "full"):
            test_conformance.end_to_end(plane, tmp_path)
        test_conformance.judge(tmp_path)
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
