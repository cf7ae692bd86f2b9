"""DESIRED, READY and UP-TO-DATE count existing nodes, each once, regardless of their pods."""

from __future__ import annotations

import copy

from gitops_ds.status import agents
from tests.rollouts.rollout_world import SECOND, zoned
from tests.status.staged_world import Watched, watched


def consistent(there: Watched) -> None:
    """The counts of `get` are those of the nodes, also while the status is late."""
    agent = there.agent()
    counts, nodes = agent.counts, len(there.world.nodes)
    assert counts.desired == nodes
    assert max(counts.current, counts.ready, counts.updated, counts.available) <= nodes
    assert sum(agent.nodes_by_hash().values()) <= 2 * nodes
    assert max(agent.nodes_by_hash().values()) <= nodes
    assert agents.nodes_done(agent).nodes <= nodes


def test_counts_stay_within_the_nodes_while_nodes_join_and_leave() -> None:
    there = watched(nodes=7)
    late = copy.deepcopy(there.world.body["status"])
    there.commit(SECOND)
    extra = zoned(8)[7:]
    for number in range(60):
        there.world.pass_time()
        if number == 20:
            there.world.nodes += extra
        if number == 40:
            del there.world.nodes[0]  # its pod remains for a while
        consistent(there)
        fresh = there.world.body["status"]
        there.world.body["status"] = late
        consistent(there)
        there.world.body["status"] = fresh


def test_two_pods_of_a_node_and_the_pod_of_a_removed_node_are_not_two_nodes() -> None:
    there = watched(nodes=7)
    first, *_ = there.world.pods.values()
    second = copy.deepcopy(first)
    second["metadata"] |= {"name": "agent-second", "uid": "second"}
    there.world.pods["agent-second"] = second
    consistent(there)
    (hash,) = there.agent().nodes_by_hash()
    assert there.agent().nodes_by_hash()[hash] == 7
    del there.world.nodes[3]
    consistent(there)
    assert there.agent().nodes_by_hash()[hash] == 6


def test_after_an_edit_at_rest_the_nodes_with_the_proven_template_are_up_to_date() -> None:
    there = watched(nodes=7)
    there.world.edit(SECOND)
    there.world.one_turn()
    assert there.agent().counts.updated == 7
