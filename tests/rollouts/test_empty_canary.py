"""A first stage without a node of its own takes one of the next stage: a template never passes a
canary that nothing ran.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gitops_ds.core.plain_text import counted
from gitops_ds.core.rollouts.staged_rollout import StageState
from gitops_ds.deploy.plan import printers
from gitops_ds.rollouts.views import staged_rollouts
from tests.daemonset.world import node
from tests.rollouts.rollout_world import SECOND, RolloutWorld, both, zoned
from tests.rollouts.test_staged_forecast import preview
from tests.rollouts.test_stages import FAST

GHOST: dict[str, Any] = {"where": {"match": [{"key": "pool", "in": ["ghost"]}]}}
LABEL = "canary (no node matches it: a node of rest)"


def policy(**canary: Any) -> dict[str, Any]:
    """A canary of nodes that do not exist, by default of two."""
    changed = copy.deepcopy(FAST)
    changed["stages"][0] |= {**GHOST, **canary}
    return changed


@both
@pytest.mark.parametrize("canary", [{}, {"nodes": None}])
def test_one_node_of_the_next_stage_is_the_canary(canary: dict[str, Any], owned: bool) -> None:
    chosen = policy(**canary)
    if chosen["stages"][0].get("nodes", 0) is None:
        del chosen["stages"][0]["nodes"]
    world = RolloutWorld(chosen, 10, owned=owned)
    world.commit(SECOND)
    began = world.now
    while world.now < began + 60:  # the soak of the canary
        world.pass_time()
        assert len(world.on(SECOND)) <= 1
    assert world.on(SECOND)
    first = world.stages.stages[0]
    assert (first.label, len(first.nodes), first.taken_from) == (LABEL, 1, "rest")
    world.run()
    assert len(world.on(SECOND)) == 10


@both
def test_a_stage_without_nodes_takes_one_of_the_first_stage_with_nodes(owned: bool) -> None:
    chosen = policy()
    other = {"name": "other", "where": {"match": [{"key": "pool", "in": ["other"]}]}}
    chosen["stages"].insert(1, other)
    world = RolloutWorld(chosen, 4, owned=owned)
    world.commit(SECOND)
    world.pass_time()
    canary, empty, rest = world.stages.stages
    assert (canary.taken_from, len(canary.nodes)) == ("rest", 1)
    assert (empty.taken_from, empty.nodes, empty.state) == ("", (), StageState.PENDING)
    assert len(rest.nodes) == 3


def test_a_node_that_joins_the_scope_takes_the_place() -> None:
    world = RolloutWorld(policy(), 4)
    world.commit(SECOND)
    world.until(lambda: bool(world.on(SECOND)))
    (first,) = world.on(SECOND)
    world.nodes.append(node("node-new", {"pool": "ghost"}))
    world.until(lambda: "node-new" in world.on(SECOND))
    canary, rest = world.stages.stages
    assert (canary.nodes, canary.taken_from) == (("node-new",), "")
    assert first in rest.nodes
    assert world.on(SECOND) == {first, "node-new"}
    world.run()
    assert len(world.on(SECOND)) == 5


def test_a_passed_stage_whose_nodes_left_takes_no_other() -> None:
    bodies = zoned(4)
    bodies[0]["metadata"]["labels"]["pool"] = "ghost"
    world = RolloutWorld(policy(), bodies)
    world.commit(SECOND)
    world.until(lambda: len(world.on(SECOND)) > 1)
    assert world.stages.stages[0].state is StageState.PASSED
    del world.nodes[0]
    world.pass_time()
    assert world.stages.stages[0].nodes == ()


def test_a_preview_names_the_other_stage() -> None:
    simulation = preview(policy(), zoned(10))
    canary, rest = simulation.stages
    assert (len(canary.nodes), canary.begins, canary.ends) == (1, 0.0, 95.0)
    assert rest.begins == 95.0
    lines = list(printers.staged_lines(simulation, None))
    assert any(line.startswith(f"  {LABEL}: {counted(1, 'node')}") for line in lines)
    stages = printers.staged_json(simulation, None)["stages"]
    assert [stage["takenFrom"] for stage in stages] == ["rest", None]


def test_status_names_the_other_stage() -> None:
    world = RolloutWorld(policy(), 4)
    world.commit(SECOND)
    world.pass_time()
    inputs = world.inputs()
    assert inputs is not None
    assert world.last is not None
    rollout = staged_rollouts.of(world.last.layout, inputs)
    assert rollout.progress.startswith(f"{LABEL} 0/1, rest 0/3")
    first = staged_rollouts.as_json(rollout)["stages"][0]
    assert (first["name"], first["nodes"], first["takenFrom"]) == ("canary", 1, "rest")
