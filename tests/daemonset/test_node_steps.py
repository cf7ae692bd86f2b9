"""The problems of a node that are not of its pod."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gitops_ds.apimachinery import nodes
from gitops_ds.daemonset import node_steps
from tests.daemonset.world import node


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        ({"ready": False, "unschedulable": True}, "NodeNotReady"),
        ({"deleting": True, "troubles": ("MemoryPressure",)}, "NodeDeleting"),
        ({"troubles": ("MemoryPressure",), "unschedulable": True}, "MemoryPressure"),
        ({"troubles": ("DiskPressure", "PIDPressure")}, "DiskPressure"),
        ({"unschedulable": True}, "NodeCordoned"),
    ],
)
def test_a_node_has_its_worst_problem(changes: dict[str, Any], expected: str) -> None:
    healthy = nodes.node_of(node("a"))
    assert node_steps.node_problem(replace(healthy, **changes)) == expected
