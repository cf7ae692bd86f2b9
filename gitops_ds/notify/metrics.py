"""The metrics of the service: counters of events, and gauges of the state at each scrape.

No label is the name of a node or the subject of a commit, and the number of agents is bounded.
"""

from __future__ import annotations

from collections import Counter as Tallied
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gitops_ds.core.events.base import Event
from gitops_ds.core.events.definition import Sample
from gitops_ds.core.health import AgentStatus, NodeCounts
from gitops_ds.core.sources.source_status import Condition, SourceStatus

AGENTS = 2000  # at most
PASS_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
GIT_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60)


class MetricsSource(msgspec.Struct, frozen=True):
    """The state of the service, read at each scrape.

    `requests` counts those to the API server by method and code, `waiting` the agents in the work
    queue, `ages` are the seconds since the last event or bookmark of each watch, by the plural of
    its kind, `sources` the status of each followed repository, `waiting_nodes` those with a startup
    taint by state.
    """

    agents: Callable[[], Iterable[AgentStatus]] = tuple
    requests: Callable[[], Mapping[tuple[str, str], int]] = dict
    waiting: Callable[[], int] = int
    ages: Callable[[], Mapping[str, float]] = dict
    sources: Callable[[], Iterable[SourceStatus]] = tuple
    waiting_nodes: Callable[[], Mapping[str, int]] = dict


class _Standing(Collector):
    """The gauges of the state, computed at each scrape."""

    def __init__(self, inside: MetricsSource) -> None:
        self._inside = inside

    def collect(self) -> Iterator[Metric]:
        """The families."""
        agents = list(islice(self._inside.agents(), AGENTS + 1))
        yield from _agents(agents[:AGENTS])
        yield GaugeMetricFamily(
            "gitopsds_agents_left_out",
            "1 if there are more than 2,000 agents, beyond which none are exported.",
            len(agents) > AGENTS,
        )
        sent = CounterMetricFamily(
            "gitopsds_api_requests",
            "Requests to the API server; an empty code is a missing response.",
            labels=["method", "code"],
        )
        for (method, code), count in sorted(self._inside.requests().items()):
            sent.add_metric([method, code], count)
        yield sent
        yield GaugeMetricFamily(
            "gitopsds_queue_depth",
            "Agents in the work queue of the controller.",
            self._inside.waiting(),
        )
        ages = GaugeMetricFamily(
            "gitopsds_watch_age_seconds",
            "Seconds since the last event of a watch; a bookmark arrives each minute.",
            labels=["resource"],
        )
        for resource, age in sorted(self._inside.ages().items()):
            ages.add_metric([resource], age)
        yield ages
        nodes = GaugeMetricFamily(
            "gitopsds_nodes_waiting",
            "Nodes with a startup taint that wait for required agents, late after reportAfter: "
            "state is starting or late.",
            labels=["state"],
        )
        for state, count in self._inside.waiting_nodes().items():
            nodes.add_metric([state], count)
        yield nodes
        yield from _sources(self._inside.sources())


def _agents(agents: Sequence[AgentStatus]) -> Iterator[Metric]:
    which = ["namespace", "name"]
    labels = [*which, "ready", "health", "sync", "suspended", "revision"]
    info = GaugeMetricFamily(
        "gitopsds_resource_info", "1 for each agent; `revision` is its commit.", labels=labels
    )
    nodes = GaugeMetricFamily(
        "gitopsds_daemonset_nodes",
        "Nodes of the agent, each in one state: updated, starting, old, parked, joining, "
        "node_fault, template_fault or refused.",
        labels=[*which, "state"],
    )
    lost = GaugeMetricFamily(
        *(
            "gitopsds_coverage_lost_nodes",
            "Nodes that lost the agent without a commit, and do not have it again.",
        ),
        labels=[*which, "pool", "cause"],
    )
    requests = GaugeMetricFamily(
        "gitopsds_daemonset_requests",
        "Requests of the agent on all nodes that need it: cpu in cores, memory in bytes.",
        labels=[*which, "resource"],
    )
    for agent in agents:
        name = [agent.namespace, agent.name]
        for resource, amount in agent.requests.items():
            requests.add_metric([*name, resource], amount / 1000)
        values = [_bool(agent.ready), agent.health, agent.sync, _bool(agent.suspended)]
        info.add_metric([*name, *values, agent.commit], 1)
        for state in NodeCounts.__struct_fields__:
            nodes.add_metric([*name, state], getattr(agent.node_counts, state))
        for (pool, cause), count in sorted(
            Tallied((loss.pool, loss.cause.value) for loss in agent.losses).items()
        ):
            lost.add_metric([*name, pool, cause], count)
    paused = sum(agent.suspended for agent in agents)
    yield from (
        info,
        nodes,
        lost,
        requests,
        GaugeMetricFamily("gitopsds_paused", "The number of suspended agents.", paused),
    )
    yield from _rollouts(agents)


def _rollouts(agents: Sequence[AgentStatus]) -> Iterator[Metric]:
    which = ["namespace", "name"]
    nodes = GaugeMetricFamily(
        "gitopsds_rollout_nodes",
        "Nodes of a staged rollout in progress: at_risk, parked (also set aside), proved or total.",
        labels=[*which, "state"],
    )
    limit = GaugeMetricFamily(
        "gitopsds_rollout_at_risk_limit",
        "The most nodes of a staged rollout that may be at risk.",
        labels=which,
    )
    halted = GaugeMetricFamily(
        "gitopsds_rollout_halted", "1 if the staged rollout is halted.", labels=which
    )
    hold = GaugeMetricFamily(
        "gitopsds_rollout_hold",
        "1 while no further node gets the template, by the kind of the hold.",
        labels=[*which, "kind"],
    )
    for agent in agents:
        rollout, name = agent.rollout, [agent.namespace, agent.name]
        if agent.hold:
            hold.add_metric([*name, agent.hold], 1)
        if rollout is None:
            continue
        for state in ("at_risk", "parked", "proved", "total"):
            nodes.add_metric([*name, state], getattr(rollout, state))
        limit.add_metric(name, rollout.limit)
        halted.add_metric(name, rollout.halted)
    yield from (nodes, limit, halted, hold)


def _sources(statuses: Iterable[SourceStatus]) -> Iterator[Metric]:
    condition = GaugeMetricFamily(
        *(
            "gitopsds_source_condition",
            "1 for the condition of each followed repository, 0 for the other conditions.",
        ),
        labels=["repository", "condition"],
    )
    looked = GaugeMetricFamily(
        "gitopsds_source_last_look_timestamp_seconds",
        "Time of the last response of Git.",
        labels=["repository"],
    )
    for status in statuses:
        name = " ".join(filter(None, (status.repository, status.branch)))
        for value in Condition:
            condition.add_metric([name, value], value is status.condition)
        looked.add_metric([name], status.looked)
    yield from (condition, looked)


def _bool(value: bool) -> str:
    return "true" if value else "false"


class _Definition(msgspec.Struct, frozen=True):
    """A metric that events change; `buckets` are for histograms."""

    name: str
    help: str
    label: str = ""
    type: type[Counter | Gauge | Histogram] = Counter
    buckets: tuple[float, ...] = ()

    def register(self, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
        """The metric in a registry."""
        labels = [self.label] if self.label else []
        if self.type is Histogram:
            return Histogram(self.name, self.help, labels, registry=registry, buckets=self.buckets)
        return self.type(self.name, self.help, labels, registry=registry)


_DEFINITIONS = (
    _Definition(
        "gitopsds_reconcile_duration_seconds",
        "Duration of reconciliations.",
        type=Histogram,
        buckets=PASS_SECONDS,
    ),
    _Definition(
        "gitopsds_git_fetch_duration_seconds",
        "Duration of requests to Git.",
        "result",
        Histogram,
        GIT_SECONDS,
    ),
    _Definition(
        "gitopsds_prune_refused", "Reconciliations in which a guard prevented deletions.", "guard"
    ),
    _Definition(
        "gitopsds_reconcile",
        "Reconciliations: success, partial (a part of the commit was skipped or waits), failure or "
        "unchanged.",
        "result",
    ),
    _Definition("gitopsds_applied", "Objects written.", "operation"),
    _Definition("gitopsds_refused", "Skipped objects, by reason.", "guard"),
    _Definition(
        "gitopsds_git_last_success_timestamp_seconds",
        "Time of the last successful reconciliation with a response of Git.",
        type=Gauge,
    ),
    _Definition(
        "gitopsds_drift", "Drift of objects: corrected, reported, held or contested.", "action"
    ),
    _Definition("gitopsds_commits_rejected", "Commits with blocking findings."),
    _Definition(
        "gitopsds_shadow_differences",
        "Differences of the built-in controller under observe: create, delete, rollout or "
        "standstill.",
        "what",
    ),
    _Definition(
        "gitopsds_shadow_intervals",
        "Intervals under observe in which the built-in controller agreed or differed.",
        "result",
    ),
    _Definition(
        "gitopsds_task_restarts",
        "Restarts of background tasks (watches, events) after an internal error: please report it.",
        "task",
    ),
    _Definition(
        "gitopsds_commit_info",
        "1 for the last commit that was applied completely.",
        "commit",
        Gauge,
    ),
    _Definition("gitopsds_leader", "1 on the leader, and without election.", type=Gauge),
    _Definition(
        "gitopsds_webhook_requests",
        "Requests to the webhook: accepted, ping, unauthorized, replayed, malformed, too_large, "
        "too_slow or limited.",
        "result",
    ),
    _Definition(
        "gitopsds_rollout_stage_events",
        "Stage events of staged rollouts: opened, passed, replaced nodes, held or halted.",
        "event",
    ),
    _Definition(
        "gitopsds_news",
        "Notifications to receivers and forges: told (sent), failed or lost (dropped).",
        "result",
    ),
)
_LABELLED = frozenset(definition.name for definition in _DEFINITIONS if definition.label)


class MetricDescription(msgspec.Struct, frozen=True):
    """One metric, for the documentation; `labels` are names."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


class Metrics:
    """The metrics of the service in a separate registry."""

    def __init__(self, inside: MetricsSource | None = None) -> None:
        """All counters start at zero."""
        self._registry = CollectorRegistry()
        self._registry.register(_Standing(inside or MetricsSource()))
        self._metrics = {
            definition.name: definition.register(self._registry) for definition in _DEFINITIONS
        }
        self.add(Sample("gitopsds_leader"))  # a service without replicas

    def handle(self, event: Event) -> None:
        """Adds the samples of an event."""
        for sample in event.samples():
            self.add(sample)

    def add(self, sample: Sample) -> None:
        """Adds a sample; a gauge with a label keeps only the last one."""
        metric = self._metrics[sample.metric]
        if sample.metric in _LABELLED:
            if isinstance(metric, Gauge):
                metric.clear()
            metric = metric.labels(sample.label)
        match metric:
            case Counter():
                metric.inc(sample.value)
            case Gauge():
                metric.set(sample.value)
            case Histogram():
                metric.observe(sample.value)

    def descriptions(self) -> Iterator[MetricDescription]:
        """Every metric, in the order of the exposition text."""
        labels = {
            definition.name: (definition.label,) for definition in _DEFINITIONS if definition.label
        }
        for family in self._registry.collect():
            suffix = "_total" if family.type == "counter" else ""
            named = labels.get(family.name) or tuple(getattr(family, "_labelnames", ()))
            yield MetricDescription(
                f"{family.name}{suffix}", family.type, named, family.documentation
            )

    def text(self) -> bytes:
        """The exposition text. https://prometheus.io/docs/instrumenting/exposition_formats/"""
        return generate_latest(self._registry)
