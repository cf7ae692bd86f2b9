"""The page of an agent shows its staged rollout: stages, bars, nodes at risk, hold or halt, parked
nodes; the map has the colours of the target.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from gitops_ds.core.values import replace
from gitops_ds.rollouts.state import keys
from gitops_ds.service.web.page import node_map, rows
from gitops_ds.service.web.page.pages import Book
from tests.page import fleets
from tests.page.fleets import Show
from tests.rollouts.rollout_world import SECOND
from tests.status.staged_world import FAST, Watched, watched

PATH = "agents/logging/agent"


def panel(there: Watched) -> str:
    """The panel's text, without markup; empty without a rollout."""
    drawn = asyncio.run(Book(Show(found=(there.agent(),))).page(PATH, {}))
    return fleets.text(drawn.pieces["rollout"])


def test_without_a_rollout_the_panel_is_empty() -> None:
    assert panel(watched()) == ""


def test_the_panel_shows_the_stages_and_changes_with_them_alone() -> None:
    there = watched()
    there.commit(SECOND)
    there.rounds(6)
    text = panel(there)
    assert "2 nodes at risk, the limit is 4" in text
    assert re.search(r"canary open 0/2 \S+ \S+ UTC 2 soaking \S+ \S+ UTC rest pending 0/8", text)
    there.rounds(13)
    assert "canary passed 2/2" in panel(there)


def test_the_panel_shows_who_approved_a_stage() -> None:
    there = watched()
    there.commit(SECOND)
    there.rounds(6)
    there.approve("canary")
    words = "approved by ada@example.com (team-a), commit 0123456789ab"
    assert words in panel(there)


def test_the_panel_shows_hold_halt_and_parked_nodes() -> None:
    policy: dict[str, Any] = {**FAST, "freeze": [{"from": "2027-01-01", "to": "2027-01-15"}]}
    there = watched(policy)
    there.world.nodes[5]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    there.world.bad_images.add(SECOND)
    there.commit(SECOND)
    there.rounds(3)
    text = panel(there)
    assert "On hold freeze, until 2027-01-16T00:00:00Z" in text
    assert "1 parked node node-005 in stage rest: Node not ready" in text
    there.world.now += 86400.0
    there.rounds(20)
    text = panel(there)
    assert "Halted in stage canary: ImagePullBackOff on node-00" in text
    assert "On hold" not in text


def test_the_facts_count_the_nodes_of_the_target() -> None:
    there = watched()
    assert rows.row(there.agent()).counts.updated == 10
    there.commit(SECOND)
    there.rounds(6)
    counts = rows.row(there.agent()).counts
    assert (counts.desired, counts.updated) == (10, 2)
    assert replace(there.agent(), rollout=None).counts == counts  # without a right to nodes
    drawn = asyncio.run(Book(Show(found=(there.agent(),))).page(PATH, {}))
    assert any("2 of 10 have it" in piece for piece in drawn.pieces.values())


def test_the_update_strategy_that_a_policy_replaces_is_not_a_difference_to_git() -> None:
    there = watched()
    key, body = there.agent().key, there.world.body
    gentle = {"rollingUpdate": {"maxUnavailable": "10%"}}
    body["metadata"]["annotations"][keys.UPDATE_STRATEGY] = json.dumps(gentle)
    for strategy, same in ((gentle, True), ({"type": "OnDelete"}, False)):
        wanted = {**body, "spec": {**body["spec"], "updateStrategy": strategy}}
        show = Show(found=(there.agent(),), wants={key: wanted})
        html = fleets.html(show, PATH)
        assert ("Every field that Git sets is as Git sets it." in html) == same


def test_the_map_shows_the_target_as_the_wanted_revision() -> None:
    there = watched()
    there.commit(SECOND)
    there.rounds(6)
    agent = there.agent()
    drawn = node_map.draw(agent, {})
    assert [(shade.commit, shade.nodes, shade.wanted) for shade in drawn.shades] == [
        (SECOND, 2, True),
        ("", 8, False),
    ]
    assert drawn.states[""] == 2
    assert drawn.states["o"] == 8


def test_the_history_begins_with_the_target_and_names_the_proven_revision() -> None:
    there = watched()
    there.commit(SECOND)
    there.rounds(6)
    drawn = asyncio.run(Book(Show(found=(there.agent(),))).page(PATH, {}))
    text = fleets.text(drawn.pieces["history"])
    assert re.search(r"2 wanted agent:2 .* 1 proven ", text)
    assert "rollback" not in text
    assert "1 → 2" in drawn.pieces["facts"]
