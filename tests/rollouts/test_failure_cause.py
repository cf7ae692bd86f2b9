"""The cause of failures by comparison with peers: one rule a row."""

from __future__ import annotations

import pytest

from gitops_ds.model.rollouts.staged_rollout import NodeProgress, NodeStep
from gitops_ds.rollouts import failure_cause

STEPS = {
    "F": (NodeStep.FAILED, "CrashLoopBackOff"),
    "H": (NodeStep.FAILED, "CrashLoopBackOff"),  # as its agent was before
    "W": (NodeStep.WAITING, ""),
    "P": (NodeStep.PROVED, ""),
    "S": (NodeStep.SOAKING, ""),
    "A": (NodeStep.STARTING, ""),
    "R": (NodeStep.REPLACING, "Gated"),
    "O": (NodeStep.REPLACING, failure_cause.OVERDUE),
    "N": (NodeStep.SET_ASIDE, "NodeNotReady"),
    "D": (NodeStep.SET_ASIDE, "NodeDeleting"),
    "E": (NodeStep.SET_ASIDE, failure_cause.REPLACED),
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
    attributed = failure_cause.attributed(nodes, lambda _: "linux/amd64")
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
    assert failure_cause.attributed(nodes, lambda name: name).template == {"arm"}
