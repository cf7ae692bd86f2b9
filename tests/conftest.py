"""Real parts for tests, started when a test asks for them and shared by the tests of one worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import controlplane
from tests.forges.gitea import Gitea


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[controlplane.ControlPlane]:
    """A whole control plane with the built-in DaemonSet controller and three nodes."""
    yield from _running(tmp_path_factory, controlplane.Wanted(nodes=3))


@pytest.fixture(scope="session")
def control_plane_without_daemonsets(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[controlplane.ControlPlane]:
    """A control plane whose DaemonSet controller is switched off, and three nodes."""
    yield from _running(tmp_path_factory, controlplane.Wanted(nodes=3, daemonset_controller=False))


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[controlplane.ControlPlane]:
    """An API server and etcd with nothing that acts on its own."""
    yield from _running(tmp_path_factory, controlplane.Wanted(controllers=False))


def _running(
    directories: pytest.TempPathFactory, wanted: controlplane.Wanted
) -> Iterator[controlplane.ControlPlane]:
    plane = controlplane.ControlPlane(directories.mktemp("controlplane"), wanted)
    try:
        yield plane.start()
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def gitea(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gitea]:
    """A running Gitea with an administrator and nothing else."""
    server = Gitea(tmp_path_factory.mktemp("gitea"))
    try:
        yield server.start()
    finally:
        server.stop()
