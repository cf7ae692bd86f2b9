"""The reason that a person stated for a suspension or a hold is on each surface that shows it."""

from __future__ import annotations

import asyncio
import html
import json

import pytest

from gitops_ds.cli.get import tables
from gitops_ds.cli.status import agent_text
from gitops_ds.core import names
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.events.rollouts import RolloutHeld
from gitops_ds.core.objects import CommitId
from gitops_ds.core.rollouts.proven_templates import HaltedTemplate, StopKind
from gitops_ds.core.rollouts.staged_rollout import StageHold
from gitops_ds.core.sources.source_status import Condition, SourceStatus
from gitops_ds.core.values import replace
from gitops_ds.rollouts.state import halted_templates, keys
from gitops_ds.service.web.page.pages import Book
from gitops_ds.status import agent_json, agents
from gitops_ds.status.agents import Agent
from tests.page.fleets import Show, text
from tests.rollouts.rollout_world import SECOND
from tests.status.staged_world import Watched, watched

WHY = "incident 42: the network is slow"


def suspended(there: Watched, reason: str) -> None:
    stated = {names.SUSPEND_REASON: reason} if reason else {}
    there.world.body["metadata"]["annotations"] |= {names.SUSPEND: "true", **stated}


def held(there: Watched, reason: str) -> None:
    agent = there.agent()
    assert agent.target is not None
    hold = HaltedTemplate(
        agent.target.hash, "", 5.0, halted_templates.ON_HOLD, kind=StopKind.HOLD, reason=reason
    )
    annotations = there.world.body["metadata"]["annotations"]
    annotations[keys.HALTED] = halted_templates.encoded([hold])


def rolling(steer: str, reason: str) -> Watched:
    """A rollout that a person suspended or put on hold after the canary began."""
    there = watched()
    there.commit(SECOND)
    there.rounds(6)
    {"suspended": suspended, "on hold": held}[steer](there, reason)
    there.rounds(2)
    return there


def surfaces(there: Watched) -> dict[str, str]:
    agent = there.agent()
    drawn = asyncio.run(Book(Show(found=(agent,))).page("agents/logging/agent", {}))
    assert isinstance(agent.hold, StageHold)
    event = RolloutHeld(agent.seen.now, agent.key, CommitId("a" * 40), agent.hold)
    return {
        "status": agent_text.text_of(agent, agent.seen.now, nodes=False).partition("On hold: ")[2],
        "get -o wide": tables.agents_table([agent], agent.seen.now, wide=True),
        "get -o json": json.dumps(agent_json.as_json(agent)["hold"]),
        "panel of the page": text(html.unescape(drawn.pieces["rollout"])),
        "event": event.kube_text(),
        "log": event.text(),
    }


@pytest.mark.parametrize("steer", ["suspended", "on hold"])
def test_a_reason_is_on_each_surface_during_a_rollout(steer: str) -> None:
    for surface, shown in surfaces(rolling(steer, WHY)).items():
        assert WHY in shown, surface


@pytest.mark.parametrize(
    ("steer", "words"), [("suspended", "suspended"), ("on hold", "this template was put on hold")]
)
def test_without_a_reason_each_surface_has_the_words_alone(steer: str, words: str) -> None:
    there = rolling(steer, "")
    for surface, shown in surfaces(there).items():
        assert words in shown, surface
        assert f"{words}:" not in shown, surface
    hold = there.agent().hold
    assert hold is not None
    assert hold.reason == words


def at_rest(reason: str) -> Agent:
    there = watched()
    suspended(there, reason)
    agent, commit = there.agent(), "a" * 40
    there.world.body["metadata"]["annotations"][names.COMMIT] = commit
    state = DeployerState(waiting=frozenset({agent.key}))
    source = SourceStatus("test", condition=Condition.SYNCED, active=True, written=1.0)
    return replace(agent, state=state, source=source)


@pytest.mark.parametrize(("reason", "end"), [(WHY, f": {WHY}"), ("", "")])
def test_the_sync_and_the_notice_of_a_suspended_agent_have_its_reason(
    reason: str, end: str
) -> None:
    agent = at_rest(reason)
    assert agents.sync_of(agent) == ("OutOfSync", f"suspended, with pending changes{end}")
    drawn = asyncio.run(Book(Show(found=(agent,))).page("agents/logging/agent", {}))
    page = text(html.unescape(drawn.html.decode()))
    assert f"Suspended its rollouts are paused{end}." in page
    message = f"suspended by the annotation {names.SUSPEND}{end}"
    assert agent_json.as_json(agent)["health"] == {"state": "Suspended", "message": message}
    assert f"Suspended: {message}\n" in agent_text.text_of(agent, agent.seen.now, nodes=False)
