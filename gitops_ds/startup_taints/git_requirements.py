"""The agents that Git requires, from the selected commit of a repository and the stored state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gitops_ds.core.deployer_state import TEMPLATES, DeployerState
from gitops_ds.core.objects import CONTROLLER_REVISION, Key
from gitops_ds.core.required_agents import AgentRecord, RequiredInGit
from gitops_ds.core.rollouts.proven_templates import TemplateHistory
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.kube.apimachinery import agent_records, daemonsets


def wanted_by(bundle: Bundle) -> Mapping[Key, AgentRecord]:
    """The agents that a commit requires."""
    return {
        key: agent_records.of_manifest(one.body, staged=one.agent in bundle.rollouts)
        for key, one in bundle.manifests.items()
        if key.is_daemonset and daemonsets.is_required_for_work(one.body)
    }


def required_by(
    state: DeployerState, wanted: Mapping[Key, AgentRecord] | None, *, followed: bool
) -> Iterator[RequiredInGit]:
    """The agents that a repository requires; `wanted` by its selected commit, None while that is
    not read. Who writes templates into the cluster requires none.
    """
    if state.repository == TEMPLATES:
        return
    revisions = [key for key in state.inventory if key.kind == CONTROLLER_REVISION.kind]
    applied = state.required or {}
    for key in sorted(applied if wanted is None else wanted):
        yield RequiredInGit(
            key,
            None if wanted is None else wanted[key],
            applied.get(key),
            state.templates.get(key, TemplateHistory()),
            frozenset(
                revision.name for revision in revisions if revision.namespace == key.namespace
            ),
            followed,
        )


def of_states(states: Iterable[DeployerState]) -> Mapping[Key, RequiredInGit]:
    """The agents that the stored states require."""
    return {
        agent.key: agent for state in states for agent in required_by(state, None, followed=True)
    }
