"""The report of this cluster for others: the applied commit, and whether it is proved; and the
clusters of a repository in their order, each with its last report. Pure.

A commit is proved when it is applied as a whole and every agent is healthy on every healthy node.
It remains proved while later commits roll out; after a failure all proofs start again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import msgspec

from gitops_ds.core import names
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.health import HealthState
from gitops_ds.core.objects import CommitId, Key, short
from gitops_ds.core.redaction import texts
from gitops_ds.core.rollouts.cluster_report import (
    KEPT,
    NO_ORDER,
    ClusterOrder,
    ClusterReport,
    ClusterState,
    ProvedCommit,
)
from gitops_ds.core.sources.source_status import Condition, SourceStatus
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.rollouts.waves.cluster_waves import ClusterReports
from gitops_ds.status.agents import Agent, is_edited

COUNTS_EVERY = 60.0  # seconds between two reports that differ in counts and messages only
_WELL = frozenset((HealthState.HEALTHY, HealthState.DEGRADED))
# Conditions in which the watches are current and the applied commit is the selected one.
_CURRENT = frozenset(
    (
        Condition.SYNCED,
        Condition.WAITING,
        Condition.HELD,
        Condition.DELETIONS_HELD,
        Condition.REJECTED,
        Condition.UNVERIFIED,
        Condition.REWOUND,
    )
)


class ReportInput(msgspec.Struct, frozen=True):
    """The input of a report: the status of the repository, the stored state, the DaemonSets in Git,
    and the agents of the repository by the watches; `path` is the followed folder.
    """

    cluster: str
    status: SourceStatus
    state: DeployerState
    daemonsets: Set[Key]
    agents: Sequence[Agent]
    url: str = ""
    path: str = ""


def report(inputs: ReportInput, before: ClusterReport | None, now: float) -> ClusterReport:
    """The report at this time; `before` is the last one of this cluster."""
    status = inputs.status
    applied = status.applied or CommitId("")
    state, message = _judge(inputs)
    proved = () if before is None or state is ClusterState.FAILED else before.proved
    if state is ClusterState.PROVED and applied not in {
        proved_commit.commit for proved_commit in proved
    }:
        proved = (*proved, ProvedCommit(applied, now))[-KEPT:]
    same = before is not None and (before.state, before.applied) == (state, applied)
    return ClusterReport(
        inputs.cluster,
        state,
        now,
        condition=status.condition.value,
        message=message,
        newest=status.newest or CommitId(""),
        applied=applied,
        since=before.since if before is not None and same else now,
        proved=proved,
        agents=len(inputs.agents),
        well=sum(_is_well(inputs, agent) for agent in inputs.agents),
        url=inputs.url,
        path=inputs.path,
    )


def due(
    published: ClusterReport | None, current: ClusterReport, soaks: Iterable[float]
) -> float | None:
    """When the current report is to be published, None if the published one has the same content.

    Changes are due at once, counts and messages after COUNTS_EVERY seconds. At the end of each soak
    that a later cluster requires, a report confirms that this one stayed healthy.
    """
    if published is None or _essence(published) != _essence(current):
        return current.at
    same = replace(current, at=published.at) == published
    times = [] if same else [published.at + COUNTS_EVERY]
    if current.state is not ClusterState.FAILED:
        ends = (proved_commit.at + soak for proved_commit in current.proved for soak in soaks)
        times += [end for end in ends if end > published.at]
    return min(times, default=None)


def all_well(agents: Sequence[Agent]) -> bool:
    """Whether the agents are up to date and available on every healthy node."""
    every = [agent.health.node_counts for agent in agents]
    if any(agent.rollout is not None and not agent.rollout.complete for agent in agents):
        return False
    open = any(t.starting or t.old or t.parked or t.template_fault or t.refused for t in every)
    return not open and all(agent.health.state in _WELL for agent in agents)


def _essence(one: ClusterReport) -> object:
    """The values that other clusters use."""
    return one.state, one.condition, one.newest, one.applied, one.proved


def _judge(inputs: ReportInput) -> tuple[ClusterState, str]:
    status, state = inputs.status, inputs.state
    edited = {agent.key for agent in inputs.agents if is_edited(replace(agent, state=state))}
    for agent in inputs.agents:
        if agent.health.state is HealthState.FAILED and agent.key not in edited:
            return ClusterState.FAILED, texts.words(f"{agent.key}: {agent.health.message}")
    applied = status.applied
    whole = applied is not None and applied == state.last_good == state.last_attempted
    if status.condition not in _CURRENT or not whole:
        return ClusterState.PROGRESSING, texts.words(status.message)
    if edited:
        key = min(edited)
        return ClusterState.PROGRESSING, f"{key} has a template of an edit in the cluster"
    waiting = sorted(inputs.daemonsets - {agent.key for agent in inputs.agents})
    late = [*waiting, *(agent.key for agent in inputs.agents if not _is_well(inputs, agent))]
    if late:
        rolling = next((a.rollout for a in inputs.agents if a.key == late[0]), None)
        stage = f" {rolling.progress}" if rolling is not None else ""
        return ClusterState.PROGRESSING, f"rolling out {late[0]}{stage}"
    if status.condition is Condition.SYNCED:
        return ClusterState.PROVED, f"commit {short(applied)} is proved"
    return ClusterState.PROVED, texts.words(status.message)


def _is_well(inputs: ReportInput, agent: Agent) -> bool:
    """Whether the watches show the agent as applied and healthy."""
    generation = inputs.state.generations.get(agent.key)
    carried = agent.seen.daemonset.annotations.get(names.COMMIT)
    shown = not agent.stale and generation is not None and generation.commit == carried
    return shown and all_well((agent,))


UNKNOWN = "Unknown"
NO_REPORT = "no report was published"


class ClusterRow(msgspec.Struct, frozen=True):
    """One cluster: its place in the order, and its report; None with the reason in `problem`.

    `verified`: the report is signed by a trusted key. `unverified`: the signature was not verified,
    although the reports of the repository are signed.
    """

    name: str
    order: ClusterOrder
    report: ClusterReport | None = None
    problem: str = ""
    verified: bool = False
    unverified: bool = False

    @property
    def state(self) -> str:
        """The state in its report, else Unknown."""
        return self.report.state.value if self.report else UNKNOWN

    @property
    def message(self) -> str:
        """The message of its report, or why it is missing."""
        return self.report.message if self.report else self.problem

    def agents(self) -> str:
        """`3/5`: the healthy agents of all; empty without a report."""
        return f"{self.report.well}/{self.report.agents}" if self.report else ""


def rows(
    names: Iterable[str], orders: Mapping[str, ClusterOrder], reports: ClusterReports
) -> tuple[ClusterRow, ...]:
    """The clusters by wave and name."""
    all_rows = [
        ClusterRow(
            name,
            orders.get(name, NO_ORDER),
            reports.reports.get(name),
            reports.problems.get(name, NO_REPORT),
        )
        for name in names
    ]
    return tuple(sorted(all_rows, key=lambda one: (one.order.wave, one.name)))


def as_json(row: ClusterRow) -> dict[str, Any]:
    """One item of a ClusterReportList (docs/reference/json.md)."""
    report = row.report
    return {
        "cluster": row.name,
        "wave": row.order.wave,
        "after": list(row.order.after),
        "soak": row.order.soak,
        "within": row.order.within,
        "state": row.state,
        "verified": row.verified,
        "condition": report.condition if report else "",
        "message": row.message,
        "newestCommit": report.newest if report else "",
        "appliedCommit": report.applied if report else "",
        "since": _time(report.since) if report else "",
        "reported": _time(report.at) if report else "",
        "proved": [
            {"commit": proved_commit.commit, "at": _time(proved_commit.at)}
            for proved_commit in (report.proved if report else ())
        ],
        "agents": report.agents if report else 0,
        "well": report.well if report else 0,
        "url": report.url if report else "",
    }


def _time(at: float) -> str:
    return timestamps.text(at) if at else ""
