"""Tables as kubectl prints them: columns three spaces apart, no lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec

from gitops_ds.cli.commands.node_work import NodeWork
from gitops_ds.core import plain_text
from gitops_ds.core.objects import short
from gitops_ds.core.plain_text import counted, listed
from gitops_ds.core.rollouts.staged_rollout import StageProgress
from gitops_ds.kube.apimachinery import request_costs, timestamps
from gitops_ds.rollouts.views.staged_rollouts import StagedRollout
from gitops_ds.status import agent_json, excluded_nodes
from gitops_ds.status import agents as fleets
from gitops_ds.status.agents import Agent
from gitops_ds.status.cluster_reports import ClusterRow

HEAD = [
    "NAMESPACE",
    "NAME",
    "DESIRED",
    "CURRENT",
    "READY",
    "UP-TO-DATE",
    "AVAILABLE",
    "NODE SELECTOR",
    "AGE",
    "COMMIT",
    "STAGE",
    "HEALTH",
]


CLUSTERS = ["CLUSTER", "WAVE", "STATE", "COMMIT", "SINCE", "AGENTS", "REPORTED"]

# of health, of sync, of nodes and of clusters
_COLOURS = {
    **dict.fromkeys(("Healthy", "Synced", "Ready", "Proved"), "green"),
    **dict.fromkeys(("Progressing", "Suspended", "Held", "Waiting", "Terminating"), "yellow"),
    **dict.fromkeys(("Degraded", "Failed", "Missing", "OutOfSync", "NotReady"), "red"),
}
_STATE = re.compile(rf"(?:(?<=   )|^)(?:{'|'.join(_COLOURS)})(?=   |:|$)", re.MULTILINE)

# sync states other than in sync
_APART = ("Held", "OutOfSync", "Suspended", "Unknown")


def columns(head: Sequence[str], rows: Iterable[Sequence[str]], *, headers: bool = True) -> str:
    """The table as text, with a line break at its end; an empty cell is `<none>`."""
    lines = [list(head), *([plain_text.line(cell) or "<none>" for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return "".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in (lines if headers else lines[1:])
    )


_LONGEST_LINE = 2_000


def _line(text: str) -> str:
    """A line beside a table. Messages quote annotations and events of other writers."""
    return f"{plain_text.line(text, _LONGEST_LINE)}\n"


def coloured(text: str) -> str:
    """A printable table with coloured states; a state is a separate cell or starts a line."""
    from gitops_ds.checks.report import printable

    text = printable.block(text)
    return _STATE.sub(lambda match: click.style(match[0], fg=_COLOURS[match[0]]), text)


def fleet(agents: Sequence[Agent], now: float, *, wide: bool = False, headers: bool = True) -> str:
    """The table of agents; `wide` adds revision, requests on all nodes, sync and the message of
    health.
    """
    if not agents:
        return "No DaemonSets found.\n"
    head = [*HEAD, "REVISION", "REQUESTS", "SYNC", "MESSAGE"] if wide else HEAD
    return columns(head, (_row(agent, now, wide) for agent in agents), headers=headers)


def clusters(
    rows: Sequence[ClusterRow], now: float, *, wide: bool = False, headers: bool = True
) -> str:
    """The table of clusters, then the messages of those that are not proved; `wide` has all of them
    as a column.
    """
    if not rows:
        return "No clusters found: the repository has no file in clusters/.\n"
    head = [*CLUSTERS, "NEWEST", "CONDITION", "MESSAGE"] if wide else CLUSTERS
    text = columns(head, (_cluster(row, now, wide) for row in rows), headers=headers)
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
    return columns(["NAME", "STATUS", "WORK", "WAITS", "WAITS FOR"], lines, headers=headers)


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
    for one in agents:
        sync, word = fleets.sync_of(one)
        if sync in _APART and one.source is not None and one.source.active:
            counts[sync, word] = counts.get((sync, word), 0) + 1
    return [
        f"{sync} ({counted(number, 'DaemonSet')}): {word}"
        for (sync, word), number in counts.items()
    ]


def agent(one: Agent, now: float, *, nodes: bool, headers: bool = True) -> str:
    """One agent, its health, and its nodes."""
    text = (
        columns(HEAD, [_row(one, now, False)], headers=headers)
        + "\n"
        + _line(f"{one.health.state}: {one.health.message}")
    )
    sync, word = fleets.sync_of(one)
    text += _line(f"{sync}: {word}") if sync in _APART else ""
    if one.key in (one.state.required or ()):
        text += "Required for work: gitops-ds get nodes lists the nodes that wait for it\n"
    if one.rollout is not None:
        text += "\n" + rollout(one.rollout)
    elif one.hold is not None:
        text += _line(f"On hold: {one.hold.text}")
    entries = agent_json.nodes(one)
    if nodes:
        for reason, excluded in excluded_nodes.by_reason(one.seen).items():
            where = f"No pod on {counted(len(excluded), 'node')}, {reason}"
            text += _line(f"{where}: {listed(excluded, PROBLEM_ROWS)}")
    else:
        # the nodes of later stages are in the table of stages
        entries = [
            e for e in entries if e["reason"] and not (one.rollout and e["blame"] == "unknown")
        ]
        grouped = grouped_nodes(entries)
        entries = grouped.rows
        text += "".join(map(_line, grouped.lines))
    if not entries:
        return text
    head = ["NODE", "POD", "REVISION", "COMMIT", "STATE", "REASON", "BLAME", "MESSAGE"]
    rows = [
        [
            e["node"],
            e["pod"],
            str(e["revision"] or ""),
            short(e["commit"]),
            e["state"],
            e["reason"],
            e["blame"],
            e["message"],
        ]
        for e in entries
    ]
    return text + "\n" + columns(head, rows, headers=headers)


# nodes of a reason that have a row each: in progress, and with a problem
WAITING_ROWS, PROBLEM_ROWS = 5, 20
_NAMED = 3


class GroupedNodes(msgspec.Struct, frozen=True):
    """The entries with separate rows, and a line for each reason of more nodes."""

    rows: list[dict[str, Any]]
    lines: list[str]


def grouped_nodes(entries: Sequence[dict[str, Any]]) -> GroupedNodes:
    """The entries of nodes by reason, as on the page: many nodes in progress are a line, and of
    many with the same problem the first have rows.
    """
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in entries:
        groups.setdefault((entry["reason"], entry["blame"]), []).append(entry)
    lines, left_out = list[str](), list[int]()
    for (reason, blame), some in groups.items():
        in_progress = blame == "unknown"
        if len(some) <= (WAITING_ROWS if in_progress else PROBLEM_ROWS):
            continue
        rest = some if in_progress else some[PROBLEM_ROWS:]
        left_out += map(id, rest)
        number = counted(len(rest), "node" if in_progress else "more node")
        names = ", ".join(entry["node"] for entry in rest[:_NAMED])
        lines.append(f"{reason}: {number}, such as {names}; --nodes lists every node")
    hidden = set(left_out)
    return GroupedNodes([entry for entry in entries if id(entry) not in hidden], lines)


def rollout(one: StagedRollout) -> str:
    """The stages of a rollout, the nodes at risk, the hold or halt, and the parked nodes."""
    stages, halt = one.stages, one.halt
    text = (
        f"Rollout of {short(one.commit)}: {counted(stages.at_risk, 'node')} at risk, "
        f"the limit is {stages.cap}\n"
    )
    if stages.hold is not None and halt is None:
        text += _line(f"On hold: {stages.hold.text}")
    if halt is not None:
        text += _line(f"Halted at {timestamps.text(halt.at)} in stage {halt.stage}: {halt.message}")
        text += "".join(_line(f"  {fact}") for fact in (halt.gate.lines if halt.gate else ()))
    head = ["STAGE", "STATE", "PROVED", "WAITS FOR", "UNTIL"]
    text += columns(head, (_stage(one, stage) for stage in stages.stages))
    for stage in stages.stages:
        text += "".join(
            _line(f"Stage {stage.name} is approved: {approval.text}")
            for approval in one.approvals_of(stage)
        )
    if one.parked:
        head = ["PARKED", "STAGE", "REASON", "MESSAGE"]
        rows = ([p.node, p.stage, p.reason, p.message] for p in one.parked)
        text += "\n" + columns(head, rows)
    return text


def _stage(one: StagedRollout, stage: StageProgress) -> list[str]:
    waits = one.waits_for(stage)
    until = timestamps.text(waits.until) if waits and waits.until is not None else "-"
    proved = f"{stage.proved}/{len(stage.nodes)}"
    return [stage.label, stage.state, proved, waits.reason if waits else "-", until]


def _row(one: Agent, now: float, wide: bool) -> list[str]:
    counts = one.counts
    numbers = [counts.desired, counts.current, counts.ready, counts.updated, counts.available]
    selector = (one.seen.daemonset.template.get("spec") or {}).get("nodeSelector") or {}
    row = [
        one.key.namespace,
        one.key.name,
        *map(str, numbers),
        ",".join(f"{k}={v}" for k, v in sorted(selector.items())),
    ]
    row += [
        fleets.age(one, now),
        short(fleets.commit_of(one)),
        _stage_word(one),
        one.health.state.value,
    ]
    if wide:
        requests = request_costs.words(fleets.requests_of(one))
        row += [_revision(one), requests, *_sync_and_message(one)]
    return row


def _revision(one: Agent) -> str:
    """`1`; `1 → 2` while the nodes get another revision."""
    current, target = one.current, one.target
    numbers = dict.fromkeys(str(r.number) for r in (current, target) if r is not None)
    return " → ".join(numbers)


def _sync_and_message(one: Agent) -> tuple[str, str]:
    """The state of sync, and its reason if it is not in sync, else the message of health; each with
    the hold.
    """
    sync, word = fleets.sync_of(one)
    if sync not in _APART:
        return sync, one.health.message
    return sync, word + (f"; on hold: {one.hold.text}" if one.hold else "")


def _stage_word(one: Agent) -> str:
    if one.rollout is not None:
        return one.rollout.state
    return "(held)" if one.hold is not None else "-"
