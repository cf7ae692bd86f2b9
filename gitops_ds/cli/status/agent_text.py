"""The text of `gitops-ds status`: an agent, its health, the stages of its rollout, its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gitops_ds.cli.get import tables
from gitops_ds.cli.output import table
from gitops_ds.core.decision import Observation
from gitops_ds.core.live import Node
from gitops_ds.core.objects import short
from gitops_ds.core.plain_text import counted, listed
from gitops_ds.core.rollouts.staged_rollout import StageProgress
from gitops_ds.kube.apimachinery import node_eligibility, timestamps
from gitops_ds.kube.apimachinery.node_eligibility import Placement, Placer
from gitops_ds.rollouts.views.staged_rollouts import StagedRollout
from gitops_ds.status import agent_json
from gitops_ds.status import agents as fleets
from gitops_ds.status.agents import Agent


def text_of(agent: Agent, now: float, *, nodes: bool, headers: bool = True) -> str:
    """One agent, its health, and its nodes."""
    text = (
        table.columns(tables.HEAD, [tables.row(agent, now, False)], headers=headers)
        + "\n"
        + table.line(f"{agent.health.state}: {agent.health.message}")
    )
    sync, word = fleets.sync_of(agent)
    text += table.line(f"{sync}: {word}") if sync in tables.APART else ""
    if agent.key in (agent.state.required or ()):
        text += "Required for work: gitops-ds get nodes lists the nodes that wait for it\n"
    if agent.rollout is not None:
        text += "\n" + _rollout(agent.rollout)
    elif agent.hold is not None:
        text += table.line(f"On hold: {agent.hold.text}")
    entries = agent_json.nodes(agent)
    if nodes:
        for reason, excluded in _excluded_nodes(agent.seen).items():
            where = f"No pod on {counted(len(excluded), 'node')}, {reason}"
            text += table.line(f"{where}: {listed(excluded, PROBLEM_ROWS)}")
    else:
        # the nodes of later stages are in the table of stages
        entries = [
            e for e in entries if e["reason"] and not (agent.rollout and e["blame"] == "unknown")
        ]
        grouped = grouped_nodes(entries)
        entries = grouped.rows
        text += "".join(map(table.line, grouped.lines))
    if not entries:
        return text
    head = ["NODE", "POD", "REVISION", "COMMIT", "STATE", "REASON", "BLAME", "MESSAGE"]
    rows = [
        [
            *(e["node"], e["pod"], str(e["revision"] or ""), short(e["commit"])),
            *(e["state"], e["reason"], e["blame"], e["message"]),
        ]
        for e in entries
    ]
    return text + "\n" + table.columns(head, rows, headers=headers)


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


def _rollout(shown: StagedRollout) -> str:
    """The stages of a rollout, the nodes at risk, the hold or halt, and the parked nodes."""
    stages, halt = shown.stages, shown.halt
    text = (
        f"Rollout of {short(shown.commit)}: {counted(stages.at_risk, 'node')} at risk, "
        f"the limit is {stages.cap}\n"
    )
    if stages.hold is not None and halt is None:
        text += table.line(f"On hold: {stages.hold.text}")
    if halt is not None:
        text += table.line(
            f"Halted at {timestamps.text(halt.at)} in stage {halt.stage}: {halt.message}"
        )
        text += "".join(table.line(f"  {fact}") for fact in (halt.gate.lines if halt.gate else ()))
    head = ["STAGE", "STATE", "PROVED", "WAITS FOR", "UNTIL"]
    text += table.columns(head, (_stage(shown, stage) for stage in stages.stages))
    for stage in stages.stages:
        text += "".join(
            table.line(f"Stage {stage.name} is approved: {approval.text}")
            for approval in shown.approvals_of(stage)
        )
    if shown.parked:
        head = ["PARKED", "STAGE", "REASON", "MESSAGE"]
        rows = ([p.node, p.stage, p.reason, p.message] for p in shown.parked)
        text += "\n" + table.columns(head, rows)
    return text


def _stage(shown: StagedRollout, stage: StageProgress) -> list[str]:
    waits = shown.waits_for(stage)
    until = timestamps.text(waits.until) if waits and waits.until is not None else "-"
    proved = f"{stage.proved}/{len(stage.nodes)}"
    return [stage.label, stage.state, proved, waits.reason if waits else "-", until]


def _excluded_nodes(seen: Observation) -> Mapping[str, tuple[str, ...]]:
    """The sorted names of the nodes that the node selector, the affinity or a taint excludes, by
    the reason.
    """
    placer = node_eligibility.read(seen.daemonset.template)
    found = dict[str, list[str]]()
    for node in sorted(seen.nodes, key=lambda node: node.name):
        if placer.place(node) is not Placement.RUN:
            found.setdefault(_exclusion(placer, node), []).append(node.name)
    return {reason: tuple(nodes) for reason, nodes in sorted(found.items())}


def _exclusion(placer: Placer, node: Node) -> str:
    if not placer.selects(node):
        return "not selected by nodeSelector or node affinity"
    taints = (
        taint for taint in node.taints if node_eligibility.untolerated(placer.tolerations, (taint,))
    )
    return f"not tolerated: {', '.join(taint.text for taint in taints)}"
