"""Agents in the JSON of the command line (docs/reference/json.md)."""

from __future__ import annotations

from typing import Any

from gitops_ds.rollouts.views import staged_rollouts
from gitops_ds.status import agents
from gitops_ds.status.agents import Agent


def as_json(agent: Agent) -> dict[str, Any]:
    """One item of a DaemonSetStatusList (docs/reference/json.md)."""
    counts, current = agent.counts, agent.current
    template = agent.seen.daemonset.template.get("spec") or {}
    sync, word = agents.sync_of(agent)
    return {
        "metadata": _metadata(agent),
        "namespace": agent.key.namespace,
        "name": agent.key.name,
        **agents.counts_json(counts),
        "nodeSelector": dict(template.get("nodeSelector") or {}),
        "requests": {name: amount / 1000 for name, amount in agents.requests_of(agent).items()},
        "commit": agents.commit_of(agent),
        "revision": current.number if current else None,
        "stage": current_stage.name if (current_stage := agents.stage_of(agent)) else "",
        "health": {"state": agent.health.state.value, "message": agent.health.message},
        "sync": {"state": sync, "message": word},
        "hold": staged_rollouts.hold_json(agent.hold),
        "rollout": _rollout(agent),
    }


def _rollout(agent: Agent) -> dict[str, Any] | None:
    """The staged rollout, with the number that its target revision has after the promotion."""
    if agent.rollout is None:
        return None
    number = agent.rollout.number(agent.seen)
    return {**staged_rollouts.as_json(agent.rollout), "revision": number}


def _metadata(agent: Agent) -> dict[str, Any]:
    """The part of the metadata of the DaemonSet that templates of kubectl refer to."""
    metadata = agent.seen.daemonset.raw.get("metadata") or {}
    return {
        "name": agent.key.name,
        "namespace": agent.key.namespace,
        "labels": dict(metadata.get("labels") or {}),
        "creationTimestamp": metadata.get("creationTimestamp"),
    }


def nodes(agent: Agent) -> list[dict[str, Any]]:
    """An entry for each node that has or needs a pod: revision, commit, state and reason."""
    by_hash = {revision.hash: revision for revision in agent.history}
    if (target := agent.target) is not None:
        by_hash[target.hash] = target
    commits = {hash: agent.commit_of(revision) for hash, revision in by_hash.items()}
    troubles = {trouble.node: trouble for trouble in agent.health.nodes}
    rows = []
    for pod in sorted(agent.seen.pods, key=lambda pod: (pod.node, pod.name)):
        revision, trouble = by_hash.get(pod.hash), troubles.pop(pod.node, None)
        rows.append(
            {
                "node": pod.node,
                "pod": pod.name,
                "revision": revision.number if revision else None,
                "commit": commits.get(pod.hash, ""),
                "state": "Terminating" if pod.terminating else "Ready" if pod.ready else "NotReady",
                "reason": trouble.reason if trouble else "",
                "blame": trouble.blame.value if trouble else "",
                "message": trouble.message if trouble else "",
            }
        )
    for node, trouble in troubles.items():
        rows.append(
            {
                "node": node,
                "pod": "",
                "revision": None,
                "commit": "",
                "state": "Missing",
                "reason": trouble.reason,
                "blame": trouble.blame.value,
                "message": trouble.message,
            }
        )
    return sorted(rows, key=lambda entry: str(entry["node"]))
