"""The tables of `gitops-ds get`: agents, nodes and clusters."""

from __future__ import annotations

from collections.abc import Sequence

from gitops_ds.cli.get.node_work import NodeWork
from gitops_ds.cli.output import table
from gitops_ds.core import plain_text
from gitops_ds.core.objects import short
from gitops_ds.core.plain_text import counted
from gitops_ds.kube.apimachinery import request_costs, timestamps
from gitops_ds.status import agents as fleets
from gitops_ds.status.agents import Agent
from gitops_ds.status.cluster_reports import ClusterRow

HEAD = [
    *("NAMESPACE", "NAME", "DESIRED", "CURRENT", "READY", "UP-TO-DATE", "AVAILABLE"),
    *("NODE SELECTOR", "AGE", "COMMIT", "STAGE", "HEALTH"),
]


CLUSTERS = ["CLUSTER", "WAVE", "STATE", "COMMIT", "SINCE", "AGENTS", "REPORTED"]

# sync states other than in sync
APART = ("Held", "OutOfSync", "Suspended", "Unknown")


def agents_table(
    agents: Sequence[Agent], now: float, *, wide: bool = False, headers: bool = True
) -> str:
    """The table of agents; `wide` adds revision, requests on all nodes, sync and the message of
    health.
    """
    if not agents:
        return "No DaemonSets found.\n"
    head = [*HEAD, "REVISION", "REQUESTS", "SYNC", "MESSAGE"] if wide else HEAD
    return table.columns(head, (row(agent, now, wide) for agent in agents), headers=headers)


def clusters(
    rows: Sequence[ClusterRow], now: float, *, wide: bool = False, headers: bool = True
) -> str:
    """The table of clusters, then the messages of those that are not proved; `wide` has all of them
    as a column.
    """
    if not rows:
        return "No clusters found: the repository has no file in clusters/.\n"
    head = [*CLUSTERS, "NEWEST", "CONDITION", "MESSAGE"] if wide else CLUSTERS
    text = table.columns(head, (_cluster(row, now, wide) for row in rows), headers=headers)
    waiting = (row for row in rows if row.message and (row.state != "Proved" or _waits(row)))
    lines = [f"{row.name}: {plain_text.line(row.message)}\n" for row in waiting]
    return text + ("\n" + "".join(lines) if lines and not wide else "")


def nodes(rows: Sequence[NodeWork], now: float, *, headers: bool = True) -> str:
    """The nodes, and the agents that they wait for."""
    lines = [
        [
            row.node.name,
            "Ready" if row.node.ready else "NotReady",
            row.word,
            timestamps.elapsed(now - row.wait.since) if row.wait else "",
            row.wait.text if row.wait else "",
        ]
        for row in rows
    ]
    return table.columns(["NAME", "STATUS", "WORK", "WAITS", "WAITS FOR"], lines, headers=headers)


def _waits(row: ClusterRow) -> bool:
    """Whether the newest commit is not the applied one."""
    return row.report is not None and row.report.newest != row.report.applied


def _cluster(row: ClusterRow, now: float, wide: bool) -> list[str]:
    report = row.report
    cells = [
        row.name,
        str(row.order.wave or "-"),
        f"{row.state} (unverified)" if row.unverified else row.state,
        short(report.applied) if report else "",
        timestamps.elapsed(now - report.since) if report else "",
        row.agents(),
        f"{timestamps.elapsed(now - report.at)} ago" if report else "",
    ]
    if not wide:
        return cells
    return [
        *cells,
        short(report.newest) if report else "",
        report.condition if report else "",
        row.message,
    ]


def apart(agents: Sequence[Agent]) -> list[str]:
    """One line per reason why agents of a followed repository are not in sync; `wide` has it in
    each row.
    """
    counts: dict[tuple[str, str], int] = {}
    for agent in agents:
        sync, word = fleets.sync_of(agent)
        if sync in APART and agent.source is not None and agent.source.active:
            counts[sync, word] = counts.get((sync, word), 0) + 1
    return [
        f"{sync} ({counted(number, 'DaemonSet')}): {word}"
        for (sync, word), number in counts.items()
    ]


def row(agent: Agent, now: float, wide: bool) -> list[str]:
    """The cells of an agent below HEAD, and those of the wide table."""
    counts = agent.counts
    numbers = [counts.desired, counts.current, counts.ready, counts.updated, counts.available]
    selector = (agent.seen.daemonset.template.get("spec") or {}).get("nodeSelector") or {}
    cells = [
        agent.key.namespace,
        agent.key.name,
        *map(str, numbers),
        ",".join(f"{k}={v}" for k, v in sorted(selector.items())),
    ]
    cells += [
        fleets.age(agent, now),
        short(fleets.commit_of(agent)),
        _stage_word(agent),
        agent.health.state.value,
    ]
    if wide:
        requests = request_costs.words(fleets.requests_of(agent))
        cells += [_revision(agent), requests, *_sync_and_message(agent)]
    return cells


def _revision(agent: Agent) -> str:
    """`1`; `1 → 2` while the nodes get another revision."""
    current, target = agent.current, agent.target
    numbers = dict.fromkeys(str(r.number) for r in (current, target) if r is not None)
    return " → ".join(numbers)


def _sync_and_message(agent: Agent) -> tuple[str, str]:
    """The state of sync, and its reason if it is not in sync, else the message of health; each with
    the hold.
    """
    sync, word = fleets.sync_of(agent)
    if sync not in APART:
        return sync, agent.health.message
    return sync, word + (f"; on hold: {agent.hold.text}" if agent.hold else "")


def _stage_word(agent: Agent) -> str:
    if agent.rollout is not None:
        return agent.rollout.state
    return "(held)" if agent.hold is not None else "-"
