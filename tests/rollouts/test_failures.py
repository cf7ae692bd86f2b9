"""When a touched node is judged, and the cause of its failure by comparison with peers."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.daemonset import Pod
from gitops_ds.core.rollouts.staged_rollout import NodeProgress, NodeStep
from gitops_ds.rollouts.decisions import failures
from gitops_ds.rollouts.decisions.failures import TouchedPod

STEPS = {
    "F": (NodeStep.FAILED, "CrashLoopBackOff"),
    "H": (NodeStep.FAILED, "CrashLoopBackOff"),  # as its agent was before
    "W": (NodeStep.WAITING, ""),
    "P": (NodeStep.PROVED, ""),
    "S": (NodeStep.SOAKING, ""),
    "A": (NodeStep.STARTING, ""),
    "R": (NodeStep.REPLACING, "EarlierPodEnds"),
    "O": (NodeStep.REPLACING, failures.OVERDUE),
    "N": (NodeStep.SET_ASIDE, "NodeNotReady"),
    "D": (NodeStep.SET_ASIDE, "NodeDeleting"),
    "E": (NodeStep.SET_ASIDE, failures.REPLACED),
    "B": (NodeStep.PARKED, "NodeNotReady"),
}


@pytest.mark.parametrize(
    ("canary", "rest", "cause"),
    [
        ("F", "WWW", "template"),  # a canary of one node
        ("HH", "WWW", "template"),
        ("FP", "WWW", "node"),
        ("FFP", "WWW", "template"),
        ("FA", "WWW", "suspected"),
        ("FR", "WWW", "suspected"),
        ("FO", "WWW", "template"),  # its earlier pod does not end: it decides nothing
        ("FAA", "WWW", "suspected"),
        ("FFA", "WWW", "template"),
        ("FW", "WWW", "alone"),
        ("FFW", "WWW", "template"),
        ("PP", "FWW", "node"),  # the kind runs the target elsewhere
        ("PPP", "FFW", "template"),  # but two of a stage fail, and none of it runs it
        ("PPP", "FFSW", "alone"),
        ("PPP", "FF", "template"),
        ("PPP", "FFS", "template"),
        ("PPP", "FFSS", "node"),
        ("N", "WWW", "node"),
        ("NN", "WWW", "template"),  # as no untouched node is
        ("NN", "BBB", "node"),  # as all others are
        ("NN", "B", "node"),
        ("NN", "WWBB", "template"),  # a half of the others is
        ("NN", "", "template"),
        ("NNAA", "WWW", "node"),  # those that start may get well
        ("NNSS", "WWW", "node"),
        ("DD", "WWW", "node"),  # they leave, which is not a failure
        ("EE", "WWW", "node"),  # nor is another machine with their name
    ],
)
def test_the_cause_follows_from_the_peers(canary: str, rest: str, cause: str) -> None:
    nodes = {
        f"{stage}-{number}": NodeProgress(
            f"{stage}-{number}", stage, *STEPS[letter], heals=letter == "H"
        )
        for stage, letters in (("canary", canary), ("rest", rest))
        for number, letter in enumerate(letters)
    }
    broken = {
        name for name, one in nodes.items() if one.step in (NodeStep.FAILED, NodeStep.SET_ASIDE)
    }
    attributed = failures.attributed(nodes, lambda _: "linux/amd64")
    causes = {
        "template": attributed.template,
        "suspected": attributed.suspected,
        "alone": attributed.alone,
    }
    for name, members in causes.items():
        assert members == (broken if name == cause else set()), name
    if cause == "node":
        assert {
            name for name in broken if attributed.nodes[name].step is NodeStep.SET_ASIDE
        } == broken


def test_nodes_of_another_kind_are_not_peers() -> None:
    steps = {"arm": STEPS["F"], "intel": STEPS["P"]}
    nodes = {name: NodeProgress(name, "canary", *step) for name, step in steps.items()}
    assert failures.attributed(nodes, lambda name: name).template == {"arm"}


TOUCHED, SOAK, WITHIN = 1000.0, 60.0, 300.0


@pytest.mark.parametrize(
    ("changes", "passed_at", "expected"),
    [
        ({}, None, False),
        ({}, TOUCHED + 70.5, True),
        ({"ready_since": TOUCHED + 65, "ready": False}, TOUCHED + 70.5, True),
        ({"ready_since": TOUCHED + 60, "ready": False}, TOUCHED + 70.5, True),
        # It was set aside while its stage passed.
        ({"ready_since": TOUCHED + 1, "ready": False}, TOUCHED + 70.5, False),
        ({}, TOUCHED + 0.5, False),  # the pod was made in the second in which the stage passed
        ({"last_run": 361.0, "ready_since": TOUCHED + 363}, None, True),
        ({"last_run": 361.0, "ready_since": TOUCHED + 361, "ready": False}, None, True),
        # It may have become ready shortly before it ended.
        ({"last_run": 70.0, "ready_since": TOUCHED + 72}, None, False),
        # It never was ready: the condition has not changed since the pod was created.
        ({"last_run": 400.0, "ready_since": TOUCHED + 1, "ready": False}, None, False),
        ({"waits": True}, TOUCHED + 70.5, False),
    ],
)
def test_a_node_is_not_judged_again_after_its_stage_or_a_certain_soak(
    changes: dict[str, Any], passed_at: float | None, expected: bool
) -> None:
    fields: dict[str, Any] = {"created": TOUCHED, "ready": True, "ready_since": TOUCHED + 5}
    pod = Pod("logging", "agent-1", "uid", **{**fields, **changes})
    touched = TouchedPod(pod, SOAK, TOUCHED, TOUCHED, rebooted=False)
    assert touched.is_closed(passed_at, WITHIN) is expected
