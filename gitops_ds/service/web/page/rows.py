"""The rows of agents and of repositories in the tables of the page. Pure."""

from __future__ import annotations

from collections import Counter

import msgspec

from gitops_ds.core.daemonset import Counts
from gitops_ds.core.health import Blame, Health, HealthState
from gitops_ds.core.objects import Key
from gitops_ds.core.redaction import texts
from gitops_ds.core.sources.source_status import EFFECTS, SourceStatus
from gitops_ds.rollouts.views import rollout_timing
from gitops_ds.rollouts.views.rollout_timing import RolloutTiming
from gitops_ds.status import agents as fleet_agents
from gitops_ds.status.agents import Agent


class AgentRow(msgspec.Struct, frozen=True):
    """One agent in a table. `stage` is the stage of its staged rollout, `source` the ID of its
    repository; both may be empty.
    """

    key: Key
    health: Health
    sync: str
    sync_word: str
    counts: Counts
    commit: str
    revision: int
    bar: tuple[tuple[str, int], ...]
    stage: str
    timing: RolloutTiming | None
    source: str

    @property
    def id(self) -> str:
        """The unique name of its element: its parts can't contain a slash."""
        return f"r/{self.key.namespace}/{self.key.name}"

    @property
    def words(self) -> str:
        """The text for the filter."""
        key = self.key
        return (
            f"{key.name} {key.namespace} {self.health.state} {self.sync} {self.stage} {self.commit}"
        )

    @property
    def note(self) -> str:
        """The health's message, if it adds to the state."""
        return "" if self.health.state is HealthState.HEALTHY else texts.words(self.health.message)

    @property
    def bar_words(self) -> str:
        """The text of the bar for screen readers."""
        fills = {
            "good": "up to date",
            "old": "earlier revision",
            "way": "on their way",
            "warn": "broken nodes",
            "bad": "broken",
        }
        return ", ".join(f"{count} {fills[fill]}" for fill, count in self.bar if count) or "no node"


def row(agent: Agent) -> AgentRow:
    """The agent in a table."""
    sync, word = fleet_agents.sync_of(agent)
    by = Counter(_fill(trouble.reason, trouble.blame) for trouble in agent.health.nodes)
    bar = (
        ("good", max(0, agent.counts.desired - sum(by.values()))),
        *((fill, by[fill]) for fill in ("old", "way", "warn", "bad")),
    )
    current = agent.current
    commit = fleet_agents.commit_of(agent)
    return AgentRow(
        agent.key,
        agent.health,
        sync,
        word,
        agent.counts,
        commit,
        current.number if current else 0,
        bar,
        agent.rollout.state if agent.rollout is not None else "",
        rollout_timing.timing(agent.seen, agent.health, agent.rollout),
        agent.source.id if agent.source is not None else "",
    )


def _fill(reason: str, blame: Blame) -> str:
    if reason == "Outdated":
        return "old"
    if reason in ("NoPod", "Starting", "Terminating", "Joining"):
        return "way"
    return "bad" if blame is Blame.TEMPLATE else "warn"


class SourceRow(msgspec.Struct, frozen=True):
    """One followed repository."""

    id: str
    condition: str
    tone: str
    repository: str
    branch: str
    message: str
    newest: str
    applied: str
    since: float
    looked: float

    @property
    def is_trouble(self) -> bool:
        """Whether every page has a banner about it."""
        return self.tone in ("bad", "warn")


def source(status: SourceStatus) -> SourceRow:
    """The row of a repository."""
    message, tone = texts.words(status.message), EFFECTS[status.condition].tone
    if status.warning:  # the second service is the trouble of any condition
        message = "; ".join(filter(None, (message, status.warning)))
        tone = tone if tone == "bad" else "warn"
    commits = status.newest or "", status.applied or ""
    return SourceRow(
        status.id,
        status.condition.value,
        tone,
        status.repository,
        status.branch,
        message,
        *commits,
        status.since,
        status.looked,
    )
