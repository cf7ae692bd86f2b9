"""The values of each page's template: rows, counts, runs of a commit. Pure except for the wait for
Git.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from gitops_ds.core import errors, names, stated_reasons
from gitops_ds.core.daemonset import OnDelete, RollingUpdate, Share
from gitops_ds.core.live import Node, Revision
from gitops_ds.core.objects import Body, Key, annotations_of, show_path
from gitops_ds.core.redaction import objects, report, texts
from gitops_ds.core.values import replace
from gitops_ds.deploy.plan import side_by_side_diff
from gitops_ds.kube.apimachinery import request_costs, timestamps
from gitops_ds.ownership import diff
from gitops_ds.rollouts.state import daemonset_statements
from gitops_ds.rollouts.views import halt_story
from gitops_ds.rollouts.views.halt_story import HaltStory
from gitops_ds.service.web.page import node_map, rendering, rollout_panel
from gitops_ds.service.web.page.rendering import Pages
from gitops_ds.service.web.page.rows import row
from gitops_ds.service.web.page.view import PageEvent, View
from gitops_ds.status import agents as fleet_agents
from gitops_ds.status import change_causes
from gitops_ds.status.agents import Agent
from gitops_ds.yaml import writer

EVENTS_OF_ONE = 20
PART = 250  # rows of a long table


async def agent(view: View, pages: Pages, agent: Agent) -> dict[str, Any]:
    """One agent: map, progress, history, diff, events."""
    one, drawn = row(agent), pages.map_of(agent)
    desired = view.wanted(agent.key)
    live = _with_strategy_of_git(agent.seen.daemonset.raw)
    pair = None if desired is None else side_by_side_diff.compare(live, desired)
    good = one.bar[0][1]
    return {
        "tab": "Agents",
        "row": replace(one, health=replace(one.health, message=texts.words(one.health.message))),
        "map": drawn,
        "words": f"{agent.key.name}: {one.health.state}, {one.counts.updated} of "
        f"{one.counts.desired} nodes up to date",
        "steering": steering(agent),
        "rollout": rollout_panel.panel(agent.rollout, one.timing) if agent.rollout else None,
        "pooled": any(group.pool for group in drawn.groups),
        "strategy": _strategy(agent),
        "requests": request_costs.words(fleet_agents.requests_of(agent)),
        "waits": _waits(view, agent.key),
        "target": agent.target.number if agent.target is not None else 0,
        "percent": 100 * good // one.counts.desired if one.counts.desired else 100,
        "commit_of": lambda cell: agent.commit_of(cell.revision) if cell.revision else "",
        "history": await _history(view, agent),
        "halts": await _halts(view, agent),
        "sides": pair,
        "events": [event for event in view.events() if event.key == agent.key][:EVENTS_OF_ONE],
    }


def _waits(view: View, key: Key) -> list[tuple[str, str]]:
    """The nodes that wait for this agent, each with the reason."""
    return [
        (name, waiting.reason)
        for name, wait in sorted(view.waits().items())
        for waiting in wait.agents
        if waiting.agent == key
    ]


def _with_strategy_of_git(live: Body) -> Body:
    """The DaemonSet with the update strategy that Git had at the last apply: a rollout policy
    replaces it in the cluster.
    """
    text = daemonset_statements.update_strategy(annotations_of(live))
    if text is None:
        return live
    try:
        strategy = orjson.loads(text)
    except orjson.JSONDecodeError:  # edited manually
        return live
    return {**live, "spec": {**live["spec"], "updateStrategy": strategy}}


def _strategy(agent: Agent) -> str:
    if daemonset_statements.has_policy(agent.seen.daemonset.annotations):
        return "in stages"
    match agent.seen.daemonset.strategy:
        case OnDelete():
            return "OnDelete"
        case RollingUpdate(max_unavailable=away, max_surge=extra) if extra.amount:
            return f"{_share(extra)} extra, {_share(away)} away at once"
        case RollingUpdate(max_unavailable=away):
            return f"{_share(away)} at once"


def _share(share: Share) -> str:
    return f"{share.amount}%" if share.percent else f"{share.amount}"


def steering(agent: Agent) -> list[tuple[str, str, str]]:
    """The reason why the agent or its repository is suspended or on hold, and the command that ends
    it.
    """
    annotations, key, notices = agent.seen.daemonset.annotations, agent.key, []
    if agent.seen.daemonset.suspended:
        reason = agent.seen.daemonset.suspend_reason
        notices.append(
            (
                "Suspended",
                f"{stated_reasons.after('its rollouts are paused', reason)}.",
                f"gitops-ds resume ds/{key.name} -n {key.namespace}",
            )
        )
    if annotations.get(names.HOLD):
        undo = f"kubectl annotate -n {key.namespace} ds/{key.name} {names.HOLD}-"
        notices.append(("Held", "nothing is applied to it while it has the annotation.", undo))
    return notices


class HistoryEntry(msgspec.Struct, frozen=True):
    """One revision in the history. `badge`: wanted, or proven during a staged rollout, else
    empty.
    """

    number: int
    commit: str
    subject: str
    author: str
    committed: str
    nodes: int
    badge: str
    command: str


async def _history(view: View, agent: Agent) -> list[HistoryEntry]:
    """The history, newest first; for commits unknown to Git, from the annotations of the
    revision.
    """
    target = agent.target
    revisions = [*([target] if target is not None else []), *reversed(agent.history)]
    infos = await view.commits(
        sorted({commit for revision in revisions if (commit := agent.commit_of(revision))})
    )
    counts, key, entries = agent.nodes_by_hash(), agent.key, []
    for revision in revisions:
        commit = agent.commit_of(revision)
        info = infos.get(commit)
        cause = "" if info else change_causes.of_revision(agent, revision, commit)
        entries.append(
            HistoryEntry(
                revision.number,
                commit,
                texts.words(info.subject if info else cause),
                info.author if info else "",
                fleet_agents.when(info.committed) if info else "",
                counts[revision.hash],
                _badge(agent, revision),
                f"gitops-ds rollback ds/{key.name} -n {key.namespace} "
                f"--to-revision {revision.number}",
            )
        )
    return entries


class HaltEntry(msgspec.Struct, frozen=True):
    """One halted rollout, with the commit that replaced it."""

    halt: HaltStory
    at: str
    subject: str
    author: str
    replaced: str
    by: str


async def _halts(view: View, agent: Agent) -> list[HaltEntry]:
    """The halted rollouts, newest first."""
    halts = () if fleet_agents.is_copy(agent) else halt_story.of(agent.seen, agent.state)
    ids = {id for halt in halts for id in (halt.commit, halt.replaced_by) if id}
    infos = await view.commits(sorted(ids))
    entries = []
    for halt in reversed(halts):
        bad, next_one = infos.get(halt.commit), infos.get(halt.replaced_by)
        entries.append(
            HaltEntry(
                halt,
                timestamps.text(halt.at),
                texts.words(bad.subject) if bad else "",
                bad.author if bad else "",
                texts.words(next_one.subject) if next_one else "",
                next_one.author if next_one else "",
            )
        )
    return entries


def _badge(agent: Agent, revision: Revision) -> str:
    current, target = agent.current, agent.target
    if target is not None and revision.name == target.name:
        return "wanted"
    if current is None or revision.name != current.name:
        return ""
    return "wanted" if target is None else "proven"


def agent_nodes(pages: Pages, agent: Agent, parameters: Mapping[str, str]) -> dict[str, Any]:
    """One part of the table of an agent's nodes, or of those with one reason."""
    drawn, reason, first = pages.map_of(agent), parameters.get("reason", ""), _first(parameters)
    all_cells = [cell for group in drawn.groups for cell in group.cells]
    if reason:
        all_cells = [cell for why, _, some in drawn.troubles if why == reason for cell in some]
    return {
        "tab": "Agents",
        "row": row(agent),
        "reason": reason,
        "cells": all_cells[first - 1 : first - 1 + PART],
        "count": len(all_cells),
        "commit_of": lambda cell: agent.commit_of(cell.revision) if cell.revision else "",
        **_part(first, parameters),
    }


def _part(first: int, parameters: Mapping[str, str]) -> dict[str, Any]:
    return {
        "first": first,
        "size": PART,
        "filters": {key: parameters[key] for key in ("q", "reason") if parameters.get(key)},
    }


def _first(parameters: Mapping[str, str]) -> int:
    text = parameters.get("first", "1")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 7 else 1


class NodeRow(msgspec.Struct, frozen=True):
    """One node in a table: the number of agents' pods, and the unhealthy ones."""

    node: Node
    pool: str
    zone: str
    state: str
    pods: int
    troubles: tuple[tuple[Key, str], ...]


def nodes(view: View, parameters: Mapping[str, str]) -> dict[str, Any]:
    """One part of the table of all nodes."""
    agents, query, first = view.agents(), parameters.get("q", ""), _first(parameters)
    node_list = agents[0].seen.nodes if agents else ()
    where = node_map.places(node_list, view.pools())
    terms = query.lower().split()
    shown = [
        listed
        for listed in node_list
        if all(term in " ".join((listed.name, *where[listed.name])).lower() for term in terms)
    ]
    part = shown[first - 1 : first - 1 + PART]
    here = {listed.name for listed in part}
    pods: Counter[str] = Counter()
    troubles: dict[str, list[tuple[Key, str]]] = {}
    for running in agents:
        pods.update(
            pod.node for pod in running.seen.pods if pod.node in here and not pod.terminating
        )
        for trouble in running.health.nodes:
            if trouble.node in here and trouble.reason != "Outdated":
                troubles.setdefault(trouble.node, []).append((running.key, trouble.reason))
    rows = [
        NodeRow(
            listed,
            *where[listed.name],
            _node_state(listed) + (", gets no work yet" if listed.name in view.waits() else ""),
            pods[listed.name],
            tuple(troubles.get(listed.name, ())),
        )
        for listed in part
    ]
    return {
        "tab": "Nodes",
        "rows": rows,
        "count": len(shown),
        "query": query,
        **_part(first, parameters),
    }


def _node_state(node: Node) -> str:
    return ("Ready" if node.ready else "Not ready") + (", cordoned" if node.unschedulable else "")


def node(view: View, name: str) -> dict[str, Any]:
    """One node with every agent on it. Raises NotFound for an unknown node."""
    agents = view.agents()
    node_seen = next(
        (node for node in (agents[0].seen.nodes if agents else ()) if node.name == name), None
    )
    if node_seen is None:
        raise errors.NoMatch(f"no node {name}: it may have left the cluster")
    rows, elsewhere = [], []
    where = node_map.places([node_seen], view.pools())
    for running in agents:
        seen = replace(
            running.seen,
            nodes=(node_seen,),
            pods=tuple(pod for pod in running.seen.pods if pod.node == name),
        )
        health = replace(
            running.health,
            nodes=tuple(trouble for trouble in running.health.nodes if trouble.node == name),
        )
        drawn = node_map.draw(replace(running, seen=seen, health=health), where)
        cell = drawn.by_node.get(name)
        if cell is None or cell.state == "n":
            elsewhere.append(running.key)
        else:
            rows.append(
                (running.key, cell, running.commit_of(cell.revision) if cell.revision else "")
            )
    place = dict(zip(("pool", "zone"), where[name], strict=True))
    wait = view.waits().get(name)
    shown = {"node": node_seen, "rows": rows, "elsewhere": elsewhere, "wait": wait}
    return {"tab": "Nodes", **shown, **place}


class Run(msgspec.Struct, frozen=True):
    """A revision of a commit: the nodes that run it, and the changed fields of the pod template
    (None: nothing to compare).
    """

    key: Key
    number: int
    before: int
    wanted: bool
    desired: int
    nodes: tuple[str, ...]
    fields: tuple[tuple[str, str, str], ...] | None


async def commit(view: View, id: str) -> dict[str, Any]:
    """One commit: its changes, and the nodes that run it."""
    runs = []
    for running in view.agents():
        history = running.history
        for place, revision in enumerate(history):
            if running.commit_of(revision) != id:
                continue
            on = tuple(
                sorted(
                    pod.node
                    for pod in running.seen.pods
                    if pod.hash == revision.hash and pod.node and not pod.terminating
                )
            )
            before = history[place - 1] if place else None
            is_current = running.current is not None and running.current.name == revision.name
            changes = _changes(running.key, before, revision) if before else None
            runs.append(
                Run(
                    running.key,
                    revision.number,
                    before.number if before else 0,
                    is_current,
                    running.counts.desired,
                    on,
                    changes,
                )
            )
    info = (await view.commits([id])).get(id)
    events_of_commit: list[PageEvent] = [event for event in view.events() if event.commit == id]
    if not runs and info is None and not events_of_commit:
        raise errors.NoMatch(f"no commit {id[:40]} is known here")
    return {"tab": "Agents", "id": id, "info": info, "runs": runs, "events": events_of_commit}


def _changes(key: Key, before: Revision, after: Revision) -> tuple[tuple[str, str, str], ...]:
    hidden = report.found_in(
        {"kind": "DaemonSet", "spec": revision.template} for revision in (before, after)
    )
    fields = [
        objects.field(key, change) for change in diff.compare(before.template, after.template)
    ]
    return tuple(
        (show_path(c.path), hidden.within(_as_text(c.old)), hidden.within(_as_text(c.new)))
        for c in fields
    )


def _as_text(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else writer.dump(value).rstrip("\n")


def events(view: View, parameters: Mapping[str, str]) -> dict[str, Any]:
    """What happened, newest first."""
    query, lines = parameters.get("q", ""), view.events()
    terms = query.lower().split()
    shown = [
        event
        for event in lines
        if all(
            term
            in f"{rendering.spaced(event.kind)} {event.key or ''} {event.commit} "
            f"{event.words}".lower()
            for term in terms
        )
    ]
    return {"tab": "Events", "events": shown, "query": query, "kept": len(lines)}
