"""When a touched node is judged, and the cause of its failure by comparison with peers."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.daemonset import Pod
from gitops_ds.core.duration import Duration
from gitops_ds.core.live import Node
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.rollout_policy import Stage
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
        ("H", "WWW", "node"),
        ("HH", "WWW", "template"),
        ("HF", "WWW", "template"),
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


@pytest.mark.parametrize(
    ("failed", "well", "halts"),
    [
        ((60.0,), (), False),
        ((60.0, 60.0), (), True),
        ((60.0, 60.0), (60.0,), True),
        ((60.0, 60.0), (60.0, 60.0), False),
        ((60.0, 60.0), (59.0, 59.0, 60.0), True),  # two ran it for less time
        ((60.0, 90.0), (59.0, 60.0, 90.0), False),
        ((60.0, 0.0), (), False),  # one has not run it since its proof
    ],
)
def test_failures_after_the_proof_count_against_nodes_that_ran_the_target_as_long(
    failed: tuple[float, ...], well: tuple[float, ...], halts: bool
) -> None:
    proved = [
        *(("OOMKilled", ran) for ran in failed),
        *(("", ran) for ran in well),
    ]
    nodes = {
        f"node-{number}": NodeProgress(
            f"node-{number}", "rest", NodeStep.PROVED, reason=reason, ran=ran
        )
        for number, (reason, ran) in enumerate(proved)
    }
    found = failures.attributed(nodes, lambda _: "linux/amd64")
    late = {f"node-{number}" for number in range(len(failed))} if halts else set()
    assert found.template == late
    assert {name for name, one in found.nodes.items() if one.step is NodeStep.FAILED} == late
    apart = failures.attributed(nodes, lambda name: name)
    assert apart.template == set(), "of kinds of one node each"


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


@pytest.mark.parametrize(
    ("before", "after", "ready_since", "rebooted"),
    [
        ("a", "a", TOUCHED, False),
        ("a", "b", TOUCHED, True),
        ("", "b", TOUCHED, False),
        ("a", "", TOUCHED, False),
        ("a", "a", TOUCHED + 1, True),
        ("", "", TOUCHED + 1, True),
    ],
)
def test_a_node_rebooted_if_its_boot_or_its_readiness_changed_after_the_touch(
    before: str, after: str, ready_since: float, rebooted: bool
) -> None:
    pod = Pod("logging", "agent-1", "uid", created=TOUCHED, boot_id=before)
    node = Node("a", ready_since=ready_since, boot_id=after)
    found = TouchedPod.of(pod, node, Stage("rest", soak=Duration(SOAK)), 0)
    assert (found.rebooted, found.began) == (rebooted, ready_since)
    assert not TouchedPod.of(pod, None, Stage("rest"), 0).rebooted


@pytest.mark.parametrize(
    ("changes", "rebooted", "seconds", "reason"),
    [
        ({}, False, 299.0, ""),
        ({}, False, 300.0, "NotReady"),
        ({"trouble": "Unschedulable"}, False, 300.0, "Unschedulable"),
        ({"ready": True}, False, 300.0, ""),
        ({"waits": True}, False, 300.0, ""),
        ({"trouble": "CrashLoopBackOff", "crash": "Error"}, False, 1.0, "CrashLoopBackOff"),
        ({"trouble": "CrashLoopBackOff", "crash": "OOMKilled"}, False, 1.0, "OOMKilled"),
        ({"ready": True, "restarts": 1, "crash": "Error"}, False, 1.0, "Restarted"),
        ({"ready": True, "restarts": 1, "crash": "OOMKilled"}, False, 1.0, "OOMKilled"),
        ({"ready": True, "restarts": 1, "crash": "Error"}, True, 300.0, ""),
        ({"trouble": "CrashLoopBackOff"}, True, 299.0, ""),
        ({"trouble": "CrashLoopBackOff"}, True, 300.0, "CrashLoopBackOff"),
    ],
)
def test_a_failure_has_its_reason(
    changes: dict[str, Any], rebooted: bool, seconds: float, reason: str
) -> None:
    policy = rollout_policy.decode({"stages": ["all"], "gates": {"pods": {"readyWithin": "300s"}}})
    pod = Pod("logging", "agent-1", "uid", created=TOUCHED, **changes)
    touched = TouchedPod(pod, SOAK, TOUCHED, TOUCHED, rebooted)
    stage = policy.stages[0]
    assert failures.failure(touched, stage, policy, TOUCHED + seconds) == reason
