"""Hints that lead to the right place."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.checks.advice import scheduling
from gitops_ds.deploy.pipeline import prepare
from tests.plan.world import daemonset
from tests.render import snapshots

GPU = {"key": "nvidia.com/gpu", "operator": "Exists"}
DISK = {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists"}


@pytest.mark.parametrize(
    ("tolerations", "found"), [([], True), ([DISK], True), ([GPU], False), ([DISK, GPU], False)]
)
def test_a_device_plugin_is_not_for_every_node(tolerations: list[Any], found: bool) -> None:
    body = daemonset()
    pod = body["spec"]["template"]["spec"]
    pod |= {"priorityClassName": "system-node-critical", "tolerations": tolerations}
    assert bool(list(scheduling.control_plane.check(body))) is found


def test_a_label_beside_match_labels_belongs_under_it() -> None:
    text = (
        "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a, namespace: b}\nspec:\n"
        "  selector:\n    matchLabels:\n    name: x\n  template:\n    metadata:\n"
        "      labels: {name: x}\n    spec:\n      containers: [{name: c, image: 'a/c:1'}]\n"
    )
    found = prepare.prepare(snapshots.of_texts({"ds.yaml": text}), advice=False).findings
    (message,) = [one.message for one in found if "unknown field" in one.message]
    assert message.endswith("it belongs under matchLabels, so indent it")
