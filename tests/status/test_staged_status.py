"""What `status`, `get` and their JSON show of a staged rollout."""

from __future__ import annotations

import copy
from typing import Any

from gitops_ds.cli.get import tables
from gitops_ds.cli.status import agent_text
from gitops_ds.core import names
from gitops_ds.core.health import HealthState
from gitops_ds.core.rollouts.staged_rollout import NodeStep
from gitops_ds.core.sources.source_status import EFFECTS
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.rollouts.state import daemonset_statements, keys
from gitops_ds.status import agent_json
from tests import schemas
from tests.rollouts.rollout_world import SECOND
from tests.status.shown_tables import cells
from tests.status.staged_world import FAST, Watched, watched

SCHEMA = schemas.read("status-list")


def shown(there: Watched) -> list[str]:
    """The lines of `status`, with single spaces."""
    text = agent_text.text_of(there.agent(), there.world.now, nodes=False)
    return [" ".join(line.split()) for line in text.splitlines()]


def document(there: Watched) -> dict[str, Any]:
    """The DaemonSet's item of `get -o json`, which matches the schema."""
    item = agent_json.as_json(there.agent())
    head = {"apiVersion": names.API_VERSION, "kind": "DaemonSetStatusList"}
    schemas.check({**head, "items": [item]}, "status-list")
    return item


def test_the_schema_has_every_state_of_sync() -> None:
    item = SCHEMA["properties"]["items"]["items"]["properties"]
    states = {effect.sync for effect in EFFECTS.values()}
    assert states == set(item["sync"]["properties"]["state"]["enum"])


def stage_and_health(there: Watched) -> tuple[str, str]:
    """The cells of `get`."""
    row = cells(tables.agents_table([there.agent()], there.world.now))
    return row["STAGE"], row["HEALTH"]


def test_no_rollout_has_no_stage() -> None:
    there = watched()
    assert document(there)["rollout"] is None
    assert document(there)["stage"] == ""
    assert "Rollout" not in "".join(shown(there))
    assert stage_and_health(there) == ("-", "Healthy")


def test_status_shows_the_stages_what_they_wait_for_and_until_when() -> None:
    there = watched()
    there.commit(SECOND)
    there.rounds(6)
    rollout = there.agent().rollout
    assert rollout is not None
    until = max(node.until or 0.0 for node in rollout.stages.nodes if node.step is NodeStep.SOAKING)
    lines = shown(there)
    assert "Rollout of agent:2: 2 nodes at risk, the limit is 4" in lines
    assert "STAGE STATE PROVED WAITS FOR UNTIL" in lines
    assert f"canary open 0/2 2 soaking {timestamps.text(until)}" in lines
    assert "rest pending 0/8 - -" in lines
    assert not any(line.startswith("NODE ") for line in lines)
    assert stage_and_health(there) == ("canary", "Progressing")
    item = document(there)
    assert item["stage"] == "canary"
    assert item["rollout"]["stages"][0] == {
        "name": "canary",
        "state": "open",
        "nodes": 2,
        "proved": 0,
        "takenFrom": None,
        "waitsFor": {"reason": "2 soaking", "until": timestamps.text(until), "kind": None},
        "approvedBy": [],
    }
    there.rounds(12)
    lines = shown(there)
    assert "canary passed 2/2 - -" in lines
    assert document(there)["stage"] == "rest"


def test_status_shows_the_halt_with_its_nodes() -> None:
    there = watched()
    there.world.bad_images.add(SECOND)
    there.commit(SECOND)
    there.rounds(20)
    lines = shown(there)
    (halted,) = (line for line in lines if line.startswith("Halted at"))
    assert "in stage canary: ImagePullBackOff on node-00" in halted
    assert any(line.startswith("canary halted 0/2 another commit") for line in lines)
    assert any("ImagePullBackOff template" in line for line in lines)
    halt = document(there)["rollout"]["halt"]
    assert halt["stage"] == "canary"
    assert {one["reason"] for one in halt["nodes"]} == {"ImagePullBackOff"}
    assert stage_and_health(there) == ("canary (halted)", "Failed")


def test_status_lists_the_parked_nodes_with_their_reasons() -> None:
    there = watched()
    there.world.nodes[5]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    there.commit(SECOND)
    there.rounds(3)
    assert "node-005 rest NodeNotReady <none>" in shown(there)
    (parked,) = document(there)["rollout"]["parked"]
    assert (parked["node"], parked["step"], parked["reason"]) == (
        "node-005",
        "parked",
        "NodeNotReady",
    )


def test_many_stages_are_counted() -> None:
    stages = [{"name": f"s{n}", "nodes": {"count": 1}, "soak": "5s"} for n in range(6)]
    there = watched({**FAST, "stages": stages})
    there.commit(SECOND)
    rollout = there.agent().rollout
    assert rollout is not None
    assert rollout.progress == "0 of 7 stages passed, s0 0/1"


def test_a_daemonset_with_an_unknown_target_is_not_done() -> None:
    there = watched()
    body = copy.deepcopy(there.world.body)
    assert daemonset_statements.rollout_status(body).done
    body["metadata"]["annotations"][keys.TARGET] = "agent-unknown"
    there.world.body = body
    health = there.agent().health
    assert health.state is HealthState.PROGRESSING
    assert health.message == "the target revision agent-unknown does not exist yet"
    assert not daemonset_statements.rollout_status(body).done
    body["metadata"]["annotations"][keys.ROLLOUT_POLICY] = "no policy"
    assert there.agent().health.message.startswith(keys.ROLLOUT_POLICY)


def test_status_shows_who_approved_a_stage_and_how() -> None:
    there = watched()
    there.commit(SECOND)
    there.rounds(6)
    there.approve("rest")
    text = "ada@example.com (team-a), commit 0123456789ab"
    assert f"Stage rest is approved: {text}" in shown(there)
    stages = document(there)["rollout"]["stages"]
    assert [stage["approvedBy"] for stage in stages] == [[], [text]]


def test_a_rollout_has_the_number_of_its_target_beside_that_of_the_proven_template() -> None:
    there = watched()
    assert agent_json.as_json(there.agent())["revision"] == 1
    there.commit(SECOND)
    there.rounds(6)
    agent = there.agent()
    document = agent_json.as_json(agent)
    assert (document["revision"], document["rollout"]["revision"]) == (1, 2)
    assert document["rollout"]["commit"] == document["commit"] == SECOND
    wide = tables.agents_table([agent], agent.seen.now, wide=True)
    assert wide.splitlines()[1][wide.index("REVISION") :].startswith("1 → 2   ")
