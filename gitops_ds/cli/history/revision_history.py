"""The history of a DaemonSet: the commits of its ControllerRevisions, and its halted rollouts."""

from __future__ import annotations

from typing import Any

from gitops_ds.core import errors
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import CommitId, template_of
from gitops_ds.core.sources.source_tree import CommitInfo
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.rollouts.views import halt_story
from gitops_ds.source.git.repository import Repository
from gitops_ds.status import agents as fleet_agents
from gitops_ds.status import change_causes
from gitops_ds.status.agents import Agent, when


async def history(agent: Agent, repository: Repository | None) -> list[dict[str, Any]]:
    """The revisions, oldest first, each with its commit, and with author and time if Git is
    available.
    """
    current, counts, entries = agent.current, agent.nodes_by_hash(), []
    for revision in agent.history:
        commit = agent.commit_of(revision)
        info = await _info(repository, commit)
        cause = info.subject if info else change_causes.of_revision(agent, revision, commit)
        entries.append(
            {
                "revision": revision.number,
                "name": revision.name,
                "hash": revision.hash,
                "commit": commit,
                "author": info.author if info else "",
                "committed": when(info.committed) if info else "",
                "changeCause": cause,
                "nodes": counts[revision.hash],
                "current": current is not None and revision.name == current.name,
            }
        )
    return entries


async def halts(agent: Agent, repository: Repository | None) -> list[dict[str, Any]]:
    """The halted rollouts, oldest first, each with its commit and the one that replaced it."""
    halted = () if fleet_agents.is_copy(agent) else halt_story.of(agent.seen, agent.state)
    return [
        {
            **await commit_of(repository, halt.commit),
            "haltedAt": timestamps.text(halt.at),
            "stage": halt.stage,
            "reason": halt.reason,
            "nodes": [
                {"name": node.node, "reason": node.reason, "message": node.message}
                for node in halt.nodes
            ],
            "replacedBy": await commit_of(repository, halt.replaced_by)
            if halt.replaced_by
            else None,
        }
        for halt in halted
    ]


async def commit_of(repository: Repository | None, commit: str) -> dict[str, str]:
    """A commit with its author, time and subject; empty ones if Git does not have it."""
    info = await _info(repository, commit)
    return {
        "commit": commit,
        "author": info.author if info else "",
        "committed": when(info.committed) if info else "",
        "changeCause": info.subject if info else "",
    }


async def _info(repository: Repository | None, commit: str) -> CommitInfo | None:
    if repository is None or not commit or template_of(commit):
        return None
    try:
        await repository.fetch(CommitId(commit))
        return await repository.info(CommitId(commit))
    except errors.SourceError:  # a rewritten branch: the number and the commit are still true
        return None


def revision_of(agent: Agent, number: int) -> Revision:
    """The revision with that number. Raises UsageError with the existing numbers."""
    for revision in agent.history:
        if revision.number == number:
            return revision
    numbers = ", ".join(str(revision.number) for revision in agent.history) or "none"
    raise errors.UsageError(f"{agent.key} has no revision {number}; it has {numbers}")


def revision_before(agent: Agent) -> Revision:
    """The newest revision with another template than the agent's, as for `kubectl rollout undo`.

    Raises UsageError without one.
    """
    earlier = [revision for revision in agent.history if revision is not agent.current]
    if not earlier:
        raise errors.UsageError(
            f"the cluster has no earlier revision of {agent.key} (revisionHistoryLimit): name a "
            "commit of Git with --to-commit"
        )
    return earlier[-1]
