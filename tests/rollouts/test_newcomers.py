"""Which platforms of a rollout are proved, one case a row."""

from __future__ import annotations

import pytest

from gitops_ds.daemonset import decide
from gitops_ds.model.rollouts.staged_rollout import NodeProgress, NodeStep
from gitops_ds.model.values import replace
from gitops_ds.rollouts import node_selection
from gitops_ds.rollouts.failures import AttributedNodes
from gitops_ds.rollouts.staged_nodes import StagedNodes
from tests.daemonset.world import node
from tests.rollouts.rollout_world import SECOND, RolloutWorld
from tests.rollouts.test_stages import FAST

STEPS = {
    "W": NodeStep.WAITING,
    "P": NodeStep.PROVED,
    "S": NodeStep.SOAKING,
    "N": NodeStep.SET_ASIDE,
    "B": NodeStep.PARKED,
}


@pytest.mark.parametrize(
    ("amd", "arm", "proved"),
    [
        ("P", "P", True),
        ("PW", "P", True),
        ("P", "W", False),
        ("P", "S", False),
        ("W", "W", False),
        ("P", "", True),
        ("P", "B", True),  # no node of it can be proved
        ("P", "N", True),
        ("P", "NW", False),
        ("P", "-", True),  # the rollout has no node of it
        ("B", "N", False),
    ],
)
def test_every_platform_with_a_healthy_node_has_a_proved_one(
    amd: str, arm: str, proved: bool
) -> None:
    letters = {
        f"{arch}-{index}": (arch, letter)
        for arch, some in (("amd64", amd), ("arm64", arm))
        for index, letter in enumerate(some)
    }
    nodes = [node(name, {"kubernetes.io/arch": arch}) for name, (arch, _) in letters.items()]
    world = RolloutWorld(FAST, nodes)
    world.commit(SECOND)
    inputs = world.inputs()
    assert inputs is not None
    fleet = StagedNodes.of(decide.layout(world.observe()), inputs)
    progress = {
        name: NodeProgress(name, "canary", STEPS[letter])
        for name, (_, letter) in letters.items()
        if letter in STEPS
    }
    fleet = replace(fleet, attributed=AttributedNodes(progress))
    assert node_selection.every_platform_is_proved(fleet) is proved
