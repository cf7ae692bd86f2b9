"""What Prometheus is told: counters folded from records, and how things stand, reckoned when it
asks.

Never a node's name or a commit's subject is a label, and the number of agents that are told of is
bounded.
"""

from __future__ import annotations

from collections import Counter as Tallied
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gitops_ds.model.change import DriftPolicy
from gitops_ds.model.decision import NodeCounts
from gitops_ds.model.events import base, deployer, leader_election, notifications
from gitops_ds.model.events.agents import AgentLine
from gitops_ds.model.events.base import Record
from gitops_ds.model.events.requests import HookHeard
from gitops_ds.model.guards import PRUNING
from gitops_ds.model.source_status import Condition, SourceStatus

AGENTS = 2000  # of so many at most
PASS_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
GIT_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60)


@dataclass(frozen=True, slots=True)
class Inside:
    """What is asked of the service itself at each scrape.

    `requests` are those to the API server by method and code, `waiting` the agents that wait for a
    turn, `ages` the seconds since each watch was heard of, by the plural of its kind, `sources` the
    status of each followed repository.
    """

    agents: Callable[[], Iterable[AgentLine]] = tuple
    requests: Callable[[], Mapping[tuple[str, str], int]] = dict
    waiting: Callable[[], int] = int
    ages: Callable[[], Mapping[str, float]] = dict
    sources: Callable[[], Iterable[SourceStatus]] = tuple


class _Standing(Collector):
    """How things stand, at each scrape anew."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside

    def collect(self) -> Iterator[Metric]:
        """The families."""
        agents = list(islice(self._inside.agents(), AGENTS + 1))
        yield from _agents(agents[:AGENTS])
        yield GaugeMetricFamily(
            "gitopsds_agents_left_out",
            "Whether agents are left out, for there are too many.",
            len(agents) > AGENTS,
        )
        sent = CounterMetricFamily(
            "gitopsds_api_requests", "Requests to the API server.", labels=["method", "code"]
        )
        for (method, code), count in sorted(self._inside.requests().items()):
            sent.add_metric([method, code], count)
        yield sent
        yield GaugeMetricFamily(
            "gitopsds_queue_depth",
            "Agents that wait for a turn of the controller.",
            self._inside.waiting(),
        )
        ages = GaugeMetricFamily(
            "gitopsds_watch_age_seconds", "Seconds since a watch was heard of.", labels=["resource"]
        )
        for resource, age in sorted(self._inside.ages().items()):
            ages.add_metric([resource], age)
        yield ages
        yield from _sources(self._inside.sources())


def _agents(agents: Sequence[AgentLine]) -> Iterator[Metric]:
    which = ["namespace", "name"]
    told = [*which, "ready", "health", "sync", "suspended", "revision"]
    info = GaugeMetricFamily(
        "gitopsds_resource_info", "How an agent stands, and which commit it is of.", labels=told
    )
    nodes = GaugeMetricFamily(
        "gitopsds_daemonset_nodes",
        "The nodes that shall run it, each in one state.",
        labels=[*which, "state"],
    )
    lost = GaugeMetricFamily(
        *("gitopsds_coverage_lost_nodes", "Nodes that lost it without a commit."),
        labels=[*which, "pool", "cause"],
    )
    for agent in agents:
        name = [agent.namespace, agent.name]
        told = [_bool(agent.ready), agent.health, agent.sync, _bool(agent.suspended), agent.commit]
        info.add_metric([*name, *told], 1)
        for state in NodeCounts.__dataclass_fields__:
            nodes.add_metric([*name, state], getattr(agent.tally, state))
        for (pool, cause), count in sorted(
            Tallied((loss.pool, loss.cause.value) for loss in agent.losses).items()
        ):
            lost.add_metric([*name, pool, cause], count)
    paused = sum(agent.suspended for agent in agents)
    yield from (
        info,
        nodes,
        lost,
        GaugeMetricFamily("gitopsds_paused", "How many agents are suspended.", paused),
    )


def _sources(found: Iterable[SourceStatus]) -> Iterator[Metric]:
    condition = GaugeMetricFamily(
        *(
            "gitopsds_source_condition",
            "The condition of a followed repository: 1 for the one that it has.",
        ),
        labels=["repository", "condition"],
    )
    looked = GaugeMetricFamily(
        "gitopsds_source_last_look_timestamp_seconds",
        "When Git last gave an answer.",
        labels=["repository"],
    )
    for status in found:
        name = " ".join(filter(None, (status.repository, status.branch)))
        for one in Condition:
            condition.add_metric([name, one], one is status.condition)
        looked.add_metric([name], status.looked)
    yield from (condition, looked)


def _bool(value: bool) -> str:
    return "true" if value else "false"


class Metrics:
    """The service's own metrics in a registry of their own."""

    def __init__(self, inside: Inside | None = None) -> None:
        """All begin at zero."""
        self._registry = CollectorRegistry()
        made = self._registry
        made.register(_Standing(inside or Inside()))
        self._took = Histogram(
            "gitopsds_reconcile_duration_seconds",
            "How long passes took.",
            registry=made,
            buckets=PASS_SECONDS,
        )
        self._git = Histogram(
            *("gitopsds_git_fetch_duration_seconds", "How long talks with Git took.", ["result"]),
            registry=made,
            buckets=GIT_SECONDS,
        )
        self._pruned = Counter(
            "gitopsds_prune_refused",
            "Passes in which a guard held back deletions.",
            ["guard"],
            registry=made,
        )
        self._passes = Counter(
            "gitopsds_reconcile", "Passes of the deployer.", ["result"], registry=made
        )
        self._writes = Counter("gitopsds_applied", "Objects written.", ["operation"], registry=made)
        self._refused = Counter(
            "gitopsds_refused", "Objects not written, by guard.", ["guard"], registry=made
        )
        self._last = Gauge(
            *(
                "gitopsds_git_last_success_timestamp_seconds",
                "When a pass last ended well, with an answer of Git.",
            ),
            registry=made,
        )
        self._drift = Counter(
            "gitopsds_drift",
            "Objects that somebody changed in the cluster.",
            ["action"],
            registry=made,
        )
        self._rejected = Counter(
            "gitopsds_commits_rejected", "Commits whose findings stood in the way.", registry=made
        )
        self._differed = Counter(
            "gitopsds_shadow_differences", "What theirs did otherwise.", ["what"], registry=made
        )
        self._compared = Counter(
            "gitopsds_shadow_intervals", "Intervals compared.", ["result"], registry=made
        )
        self._restarts = Counter(
            *(
                "gitopsds_task_restarts",
                "Background tasks restarted after an internal error.",
                ["task"],
            ),
            registry=made,
        )
        self._info = Gauge(
            "gitopsds_commit_info",
            "The commit that was last applied as a whole.",
            ["commit"],
            registry=made,
        )

        self._leader = Gauge("gitopsds_leader", "Whether this replica leads.", registry=made)
        self._leader.set(1)  # a service alone
        self._hooks = Counter(
            "gitopsds_webhook_requests", "Requests to the webhook.", ["result"], registry=made
        )
        self._news = Counter(
            "gitopsds_news", "Pieces of news for receivers and forges.", ["result"], registry=made
        )

    def hear(self, told: Record) -> None:
        """Counts one record."""
        self._asked(told)
        self._timed(told)
        match told:
            case deployer.PassEnded(commit=commit, refusals=refusals):
                self._passes.labels("success" if told.whole else "partial").inc()
                if told.whole:
                    self._info.clear()
                    self._info.labels(commit or "").set(1)
                for refusal in refusals:
                    self._refused.labels(refusal.guard).inc()
                for guard in {refusal.guard for refusal in refusals} & PRUNING:
                    self._pruned.labels(guard).inc()
            case deployer.Unchanged():
                self._passes.labels("unchanged").inc()
            case deployer.PassFailed():
                self._passes.labels("failure").inc()
            case deployer.Applied(change=change):
                self._writes.labels(change.operation.value).inc()
            case deployer.DriftFact():
                self._drifted(told)
            case deployer.CommitRejected():
                self._rejected.inc()
            case base.TaskRestarted(task=task):
                self._restarts.labels(task).inc()
            case base.Differed(what=what):
                self._differed.labels(what.value).inc()
            case base.Compared(differences=differences):
                self._compared.labels("differed" if differences else "agreed").inc()
            case _:
                pass

    def _drifted(self, told: deployer.DriftFact) -> None:
        match told:
            case deployer.DriftDetected(drifted=drifted) if drifted.choice is DriftPolicy.REPORT:
                self._drift.labels("reported").inc()
            case deployer.DriftHeld():
                self._drift.labels("held").inc()
            case deployer.DriftCorrected():
                self._drift.labels("corrected").inc()
            case deployer.DriftContested():
                self._drift.labels("contested").inc()
            case _:
                pass

    def _timed(self, told: Record) -> None:
        match told:
            case deployer.PassTook(at=at, seconds=seconds, well=well):
                self._took.observe(seconds)
                if well:
                    self._last.set(at)
            case deployer.GitTook(seconds=seconds, well=well):
                self._git.labels("success" if well else "failure").observe(seconds)
            case _:
                pass

    def _asked(self, told: Record) -> None:
        match told:
            case notifications.Told(items=items):
                self._news.labels("told").inc(items)
            case notifications.NotTold(lost=lost):
                self._news.labels("lost" if lost else "failed").inc(lost or 1)
            case HookHeard(result=result):
                self._hooks.labels(result.value).inc()
            case leader_election.StandsBy() | leader_election.LeaderLost():
                self._leader.set(0)
            case leader_election.LeaderElected():
                self._leader.set(1)
            case _:
                pass

    def text(self) -> bytes:
        """The exposition text. https://prometheus.io/docs/instrumenting/exposition_formats/"""
        return generate_latest(self._registry)
