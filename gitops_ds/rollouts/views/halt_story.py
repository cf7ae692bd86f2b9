"""The halted rollouts of a DaemonSet: which commit, where, why, and the commit that replaced it.

The annotation of the DaemonSet has them, and the state of the deployer the evidence, so both
survive a restart; a proven or released template is no longer there.
"""

from __future__ import annotations

import msgspec

from gitops_ds.core.decision import Observation
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.redaction import texts
from gitops_ds.core.rollouts.proven_templates import HaltedTemplate, TemplateHistory
from gitops_ds.core.rollouts.staged_rollout import FailedNode
from gitops_ds.rollouts.state import halted_templates, target_revisions


class HaltStory(msgspec.Struct, frozen=True):
    """A halted rollout. `at` is in seconds since 1970; `nodes` are the failed ones, none if the
    state was lost or a gate halted it; `replaced_by` is the first applied commit without the
    template, empty before.
    """

    at: float
    commit: str
    stage: str
    reason: str
    nodes: tuple[FailedNode, ...] = ()
    replaced_by: str = ""


def of(seen: Observation, state: DeployerState) -> tuple[HaltStory, ...]:
    """The halted rollouts of a DaemonSet, oldest first; `state` is that of its owner."""
    daemonset = seen.daemonset
    targets = [
        revision
        for revision in seen.revisions
        if (owner := target_revisions.daemonset_of(revision)) is not None
        and owner.uid == daemonset.uid
    ]
    history = state.templates.get(daemonset.key, TemplateHistory())
    metadata = daemonset.raw.get("metadata") or {}
    halted = halted_templates.remembered(metadata, targets, history)
    return tuple(
        _story(template) for template in reversed(halted) if not halted_templates.is_hold(template)
    )


def _story(one: HaltedTemplate) -> HaltStory:
    stage, _, reason = one.message.removeprefix("stage ").partition(": ")
    nodes: tuple[FailedNode, ...] = ()
    if one.halt is not None:
        stage, reason = one.halt.stage, one.halt.message
        nodes = tuple(
            FailedNode(node.node, node.reason, texts.words(node.message), node.blame)
            for node in one.halt.nodes
        )
    return HaltStory(one.at, one.commit, stage, texts.words(reason), nodes, one.ended)
