"""Each kind of hold on each surface: status, get, page, JSON, metrics, and the one event."""

from __future__ import annotations

import ast
import asyncio
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.cli.get import tables
from gitops_ds.cli.status import agent_text
from gitops_ds.core import errors, names
from gitops_ds.core.cluster import EVERYTHING, Listing, Selection
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, NODE, POD, Body, Resource
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.staged_rollout import HoldKind, StageHold, StageState
from gitops_ds.core.values import replace
from gitops_ds.notify.metrics import Metrics, MetricsSource
from gitops_ds.rollouts.state import keys
from gitops_ds.service.web.page.pages import Book
from gitops_ds.status import agent_json, agent_lists, health, reporter
from gitops_ds.status.agents import Agent
from tests.page.fleets import Show
from tests.rollouts.rollout_world import SECOND, RolloutWorld
from tests.status.shown_tables import cells
from tests.status.staged_world import FAST, watched

REASON = "a reason of its own"
SOURCES = Path(rollout_policy.__file__).parents[2] / "rollouts/decisions"


def held(kind: HoldKind) -> Agent:
    """An agent in a rollout with that hold."""
    there = watched()
    there.commit(SECOND)
    agent = there.agent()
    assert agent.rollout is not None
    decided, hold = agent.rollout.stages, StageHold(REASON, 86400.0, kind=kind)
    first = replace(decided.stages[0], state=StageState.HELD)
    decided = replace(decided, hold=hold, stages=(first, *decided.stages[1:]))
    rollout = replace(agent.rollout, stages=decided)
    judged = replace(agent.health, message=health.staged_message(rollout))
    return replace(agent, health=judged, rollout=rollout)


def surfaces(agent: Agent) -> dict[str, str]:
    """The text of each surface that names the reason of a hold."""
    book = Book(Show(found=(agent,)))
    page = {
        path: html.unescape(asyncio.run(book.page(path, {})).html.decode())
        for path in (f"agents/{agent.key.namespace}/{agent.key.name}", "wall")
    }
    return page | {
        "status": agent_text.text_of(agent, agent.seen.now, nodes=False).partition("On hold: ")[2],
        "get": tables.agents_table([agent], agent.seen.now, wide=True),
        "JSON": json.dumps(agent_json.as_json(agent)["hold"]),
    }


def metric(agent: Agent) -> str:
    """The kind in the metric of the hold, empty without one."""
    text = Metrics(MetricsSource(lambda: [reporter.status_of(agent)])).text().decode()
    return "".join(re.findall(r'gitopsds_rollout_hold{kind="([^"]*)"', text))


@pytest.mark.parametrize("kind", HoldKind)
def test_each_hold_is_on_each_surface(kind: HoldKind) -> None:
    agent, until = held(kind), "1970-01-02T00:00:00Z"
    for surface, text in surfaces(agent).items():
        assert REASON in text, surface
        assert until in text, surface
    assert agent.rollout is not None
    assert agent.rollout.state == "canary (held)"
    lines = agent_text.text_of(agent, agent.seen.now, nodes=False).splitlines()
    assert ["canary", "held", "0/2", *REASON.split(), until] in map(str.split, lines)
    row = cells(tables.agents_table([agent], agent.seen.now))
    assert (row["STAGE"], row["HEALTH"]) == ("canary (held)", "Progressing")
    expected = {"reason": REASON, "until": until, "kind": kind.value}
    document = agent_json.as_json(agent)
    assert document["hold"] == document["rollout"]["hold"] == expected
    assert document["rollout"]["stages"][0]["waitsFor"] == expected
    assert metric(agent) == kind.value


def test_a_text_of_another_writer_is_one_printable_line_of_limited_length() -> None:
    agent = held(HoldKind.HALTED_BEFORE)
    assert agent.rollout is not None
    forged = StageHold("\x1b[31mred\nHealthy: forged" + "x" * 100_000, kind=HoldKind.EDITED)
    stages = replace(agent.rollout.stages, hold=forged)
    agent = replace(agent, rollout=replace(agent.rollout, stages=stages))
    for line in agent_text.text_of(agent, agent.seen.now, nodes=False).splitlines():
        assert line.isprintable()
        assert len(line) <= 2_100
        assert not line.startswith("Healthy: forged")


@pytest.mark.parametrize("at_rest", ["OnDelete", "RollingUpdate"])
def test_the_hold_at_rest_is_on_each_surface(at_rest: str) -> None:
    there = watched()
    assert there.agent().hold is None
    assert metric(there.agent()) == ""
    there.world.edit(SECOND)
    there.world.body["spec"]["updateStrategy"] = {"type": at_rest}
    agent = there.agent()
    assert agent.rollout is None
    rolls = at_rest == "RollingUpdate"
    effect = "controller rolls it out" if rolls else "no pod is replaced because of it"
    for surface, text in surfaces(agent).items():
        assert "the template was edited in the cluster" in text, surface
        assert effect in text, surface
    assert metric(agent) == "edited"
    there.world.body["metadata"]["annotations"][names.SUSPEND] = "true"
    assert metric(there.agent()) == "suspended"
    assert "On hold: suspended" in agent_text.text_of(there.agent(), there.world.now, nodes=False)


def test_a_template_without_a_proof_is_not_called_an_edit() -> None:
    there = watched()
    del there.world.body["metadata"]["annotations"][keys.PROVEN]
    for surface, text in surfaces(there.agent()).items():
        assert "no template is proven yet" in text, surface
        assert "was edited" not in text, surface


def test_the_hold_at_rest_is_the_one_of_the_controller() -> None:
    there = watched()
    there.world.edit(SECOND)
    there.world.pass_time()
    assert there.world.last is not None
    assert there.agent().hold == there.world.last.stages.hold


def test_each_kind_is_decided_and_each_hold_has_a_kind() -> None:
    calls, used = 0, set[str]()
    for path in SOURCES.glob("*.py"):
        text = path.read_text()
        used |= set(re.findall(r"HoldKind\.(\w+)", text))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "StageHold":
                calls += 1
                assert any(keyword.arg == "kind" for keyword in node.keywords), (
                    f"{path}:{node.lineno}"
                )
    assert calls >= len(HoldKind)
    assert used == {kind.name for kind in HoldKind}


class Lists:
    """A cluster with the objects of a world only, and a pod that is not of a DaemonSet on each
    node.
    """

    def __init__(self, world: RolloutWorld) -> None:
        load = [pod("load", node["metadata"]["name"]) for node in world.nodes]
        self.objects: dict[Resource, list[Body]] = {
            DAEMONSET: [world.body],
            CONTROLLER_REVISION: [*world.revisions.values()],
            NODE: [*world.nodes],
            POD: [*world.pods.values(), *load],
        }

    async def list(self, resource: Resource, which: Selection = EVERYTHING) -> Listing:
        return Listing(tuple(self.objects.get(resource, ())), "1")

    async def get(self, resource: Resource, namespace: str, name: str) -> Body:
        raise errors.NotFound(f"{resource.plural} {namespace}/{name}")


def pod(name: str, node: str) -> Body:
    """A pod that is not of a DaemonSet."""
    metadata = {"namespace": "web", "name": f"{name}-{node}", "uid": f"{name}-{node}"}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Running"}}


def test_commands_show_the_hold_of_nodes_with_other_pods() -> None:
    canary, rest = FAST["stages"]
    there = watched({**FAST, "stages": [{**canary, "nodesWhen": "idle"}, rest]})
    there.commit(SECOND)
    cluster: Any = Lists(there.world)
    [agent] = asyncio.run(agent_lists.list_agents(cluster, "gitops-ds", there.world.now))
    assert agent.hold is not None
    assert agent.hold.kind is HoldKind.IDLE
    assert "2 nodes with other pods (nodesWhen: idle)" in surfaces(agent)["status"]
