"""From when on a touched node is not judged again by its rollout."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.model.daemonset import Pod
from gitops_ds.rollouts.touched_pod import TouchedPod

TOUCHED, SOAK, WITHIN = 1000.0, 60.0, 300.0


@pytest.mark.parametrize(
    ("changes", "passed_at", "expected"),
    [
        ({}, None, False),
        ({}, TOUCHED + 70.5, True),
        ({}, TOUCHED + 0.5, False),  # the pod was made in the second in which the stage passed
        ({"last_run": 361.0, "ready_since": TOUCHED + 363}, None, True),
        ({"last_run": 361.0, "ready_since": TOUCHED + 361, "ready": False}, None, True),
        # It may have become ready shortly before it ended.
        ({"last_run": 70.0, "ready_since": TOUCHED + 72}, None, False),
        # It never was ready: the condition has not changed since the pod was created.
        ({"last_run": 400.0, "ready_since": TOUCHED + 1, "ready": False}, None, False),
        ({"gated": True}, TOUCHED + 70.5, False),
    ],
)
def test_a_node_is_not_judged_again_after_its_stage_or_a_certain_soak(
    changes: dict[str, Any], passed_at: float | None, expected: bool
) -> None:
    fields: dict[str, Any] = {"created": TOUCHED, "ready": True, "ready_since": TOUCHED + 5}
    pod = Pod("logging", "agent-1", "uid", **{**fields, **changes})
    touched = TouchedPod(pod, SOAK, TOUCHED, TOUCHED, rebooted=False)
    assert touched.is_closed(passed_at, WITHIN) is expected
