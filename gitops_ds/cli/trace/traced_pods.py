"""The trace of a pod, a node, a DaemonSet or a commit to the author of its template: pod, node,
revision, commit, author, file, line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from gitops_ds.cli.history import revision_history
from gitops_ds.core import errors, names
from gitops_ds.core.cluster import ClusterReader, Selection
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import POD, CommitId, Key, template_of
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.kube.apimachinery import pods
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.render import bundle as rendering
from gitops_ds.status import agent_json, change_causes
from gitops_ds.status import agents as fleet_agents
from gitops_ds.status.agent_lists import AgentScope
from gitops_ds.status.agents import Agent
from gitops_ds.yaml.provenance import lookup

KINDS = {
    "pod": ("pod", "pods", "po"),
    "node": ("node", "nodes", "no"),
    "ds": ("ds", "daemonset", "daemonsets", "daemonset.apps"),
    "commit": ("commit",),
}


def parse_target(text: str) -> tuple[str, str]:
    """The kind (pod, node, ds or commit) and the name in `pod/NAME`. Raises UsageError."""
    kind, slash, name = text.partition("/")
    for resource_kind, words in KINDS.items():
        if slash and name and kind in words:
            return resource_kind, name
    raise errors.UsageError(
        f"{text!r} is not a valid target: write pod/NAME, node/NAME, ds/NAME or commit/SHA"
    )


async def scope_of(cluster: ClusterReader, kind: str, name: str, namespace: str) -> AgentScope:
    """The agents that can have pods of a target: of a pod its DaemonSet, if it has one. Raises
    ClusterError, and NoMatch without such a pod.
    """
    if kind == "ds":
        return AgentScope((name,), namespace)
    if kind != "pod":
        return AgentScope((), namespace)
    with contextlib.suppress(errors.BadRequest):  # no pod has such a name
        named = Selection(namespace, fields=f"metadata.name={name}")
        owners = [
            pods.controller_of(body["metadata"]) for body in (await cluster.list(POD, named)).items
        ]
        if None in owners:  # any DaemonSet that selects the orphan
            return AgentScope((), namespace)
        if daemonsets := [owner.name for owner in owners if owner and pods.is_of_daemonset(owner)]:
            return AgentScope(tuple(daemonsets), namespace)
    raise _no_match(kind, name, namespace)


def found(
    agents: Sequence[Agent], kind: str, name: str, namespace: str
) -> list[tuple[Agent, dict[str, Any]]]:
    """The pods of a target, each with its agent, by agent and node: entries of
    `status.agent_json.nodes`. Raises NotFound without any.
    """
    where = {"pod": "pod", "node": "node", "commit": "commit"}
    if kind == "ds":
        agent = fleet_agents.find_agent(tuple(agents), f"ds/{name}", namespace)
        return [(agent, entry) for entry in agent_json.nodes(agent)]
    entries = [
        (agent, entry)
        for agent in agents
        if namespace in ("", agent.key.namespace)
        for entry in agent_json.nodes(agent)
        if (entry[where[kind]].startswith(name) if kind == "commit" else entry[where[kind]] == name)
    ]
    if not entries:
        raise _no_match(kind, name, namespace)
    return entries


def _no_match(kind: str, name: str, namespace: str) -> errors.NoMatch:
    inside = f" in namespace {namespace}" if namespace else ""
    what = {
        "pod": f"is named {name}",
        "node": f"runs on node {name}",
        "commit": f"runs the template of commit {name}",
    }[kind]
    hint = ": `gitops-ds history ds/NAME` lists commits" if kind == "commit" else ""
    return errors.NoMatch(f"no pod of a DaemonSet{inside} {what}{hint}")


async def traced(
    entries: Sequence[tuple[Agent, Mapping[str, Any]]], repository: Repository | None, path: str
) -> list[dict[str, Any]]:
    """The entries with author, time and subject of the commit, and the file and line of the
    DaemonSet in it; `path` is the directory inside of the repository.
    """
    sources: dict[tuple[Key, str], dict[str, Any]] = {}
    items = []
    for agent, entry in entries:
        commit = entry["commit"]
        if (agent.key, commit) not in sources:
            sources[agent.key, commit] = await _source(agent, commit, repository, path)
        source, revision = sources[agent.key, commit], _revision(agent, entry["revision"])
        items.append(
            {
                "node": entry["node"],
                "pod": entry["pod"],
                "agent": {"namespace": agent.key.namespace, "name": agent.key.name},
                "revision": entry["revision"],
                "commit": commit,
                "author": source["author"],
                "committed": source["committed"],
                "changeCause": source["changeCause"] or _cause(agent, revision, commit),
                "repository": agent.seen.daemonset.annotations.get(names.REPOSITORY, ""),
                "file": source["file"],
                "line": source["line"],
                "state": entry["state"],
                "reason": entry["reason"],
            }
        )
    return items


def _revision(agent: Agent, number: int | None) -> Revision | None:
    return next((held for held in agent.history if held.number == number), None)


def _cause(agent: Agent, revision: Revision | None, commit: str) -> str:
    if revision is None:  # of the target of a rollout
        return change_causes.of_commit(agent, commit)
    return change_causes.of_revision(agent, revision, commit)


async def _source(
    agent: Agent, commit: str, repository: Repository | None, path: str
) -> dict[str, Any]:
    """The commit of a template, with its file and line."""
    file, line = await _place(agent, commit, repository, path)
    return {**await revision_history.commit_of(repository, commit), "file": file, "line": line}


async def _place(
    agent: Agent, commit: str, repository: Repository | None, path: str
) -> tuple[str, int | None]:
    """The file in the DaemonSet's annotation, and the line of its template at that commit, if Git
    has it.
    """
    file = agent.seen.daemonset.annotations.get(names.PATH, "")
    if repository is None or not commit or template_of(commit):
        return file, None
    try:
        snapshot = await open_repository.snapshot_of(repository, CommitId(commit), path)
        manifests = rendering.render(
            snapshot, cluster=agent.state.cluster, namespace=agent.key.namespace
        ).manifests
        manifest = manifests.get(agent.key)
    except errors.GitopsError:
        return file, None
    if manifest is None:
        return file, None
    place = lookup.locate(manifest.origin, ("spec", "template"), lookup.sources(snapshot), key=True)
    return place.file, place.line or None
