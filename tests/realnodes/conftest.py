"""Tests here need root and control groups; elsewhere they are skipped, with the reason."""

from __future__ import annotations

import pytest

from tests.realnodes import real_nodes


@pytest.fixture(autouse=True, scope="session")
def _real_nodes_are_possible() -> None:
    if reason := real_nodes.problem():
        pytest.skip(reason)
