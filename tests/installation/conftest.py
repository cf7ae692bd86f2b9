"""Control planes whose audit log has the requests of the service's account."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import controlplane
from tests.installation import rights

_ENFORCED = ("--enable-admission-plugins", "OwnerReferencesPermissionEnforcement")


def _audited(
    tmp_path_factory: pytest.TempPathFactory, *, built_in: bool
) -> Iterator[controlplane.ControlPlane]:
    options = controlplane.Wanted(
        nodes=3,
        daemonset_controller=built_in,
        pod_delete_milliseconds=controlplane.POD_DELETE_MILLISECONDS,
        audit=True,
        api_server_options=_ENFORCED,
    )
    plane = controlplane.ControlPlane(tmp_path_factory.mktemp("audited"), options)
    try:
        yield plane.start()
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[controlplane.ControlPlane]:
    """With the built-in DaemonSet controller."""
    yield from _audited(tmp_path_factory, built_in=True)


@pytest.fixture
def plane(audited: controlplane.ControlPlane) -> Iterator[controlplane.ControlPlane]:
    """Without anything of deploy/ but its namespace."""
    yield audited
    rights.removed(audited)


@pytest.fixture
def plane_for_deploy(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[controlplane.ControlPlane]:
    """Whose only DaemonSet controller is to be the service."""
    yield from _audited(tmp_path_factory, built_in=False)
