"""The subject of a commit without Git: the annotation kubernetes.io/change-cause beside it."""

from __future__ import annotations

from collections.abc import Mapping

from gitops_ds.core import names
from gitops_ds.core.live import Revision
from gitops_ds.kube.apimachinery import revisions
from gitops_ds.status.agents import Agent


def of_commit(agent: Agent, commit: str) -> str:
    """The subject of a commit, from the DaemonSet or a revision that names it; empty without
    one.
    """
    known = (agent.seen.daemonset.annotations, *map(revisions.annotations_of, agent.seen.revisions))
    causes = (stated.get(names.CHANGE_CAUSE) for stated in known if _names(stated, commit))
    return next((cause for cause in causes if cause), "")


def of_revision(agent: Agent, revision: Revision, commit: str) -> str:
    """The cause of a revision whose template is that of a commit, or of none.

    A revision keeps the annotations of its first commit, also when a later one, such as a revert,
    gives the same template again.
    """
    own = revisions.annotations_of(revision)
    if names.COMMIT not in own or _names(own, commit):
        return str(own.get(names.CHANGE_CAUSE) or "")
    return of_commit(agent, commit)


def _names(annotations: Mapping[str, str], commit: str) -> bool:
    return bool(commit) and annotations.get(names.COMMIT) == commit
