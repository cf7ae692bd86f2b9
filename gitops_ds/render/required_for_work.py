"""The key `requiredForWork` of an agent, as the annotation of its DaemonSets.

The precedence is that of values, from low to high: the agent, the environment, the cluster, the
variant.
"""

from __future__ import annotations

from typing import Any

from gitops_ds.model import names
from gitops_ds.model.sources.bundle import Pointer
from gitops_ds.render import traced_values
from gitops_ds.render.agent_folder import AgentFolder, RenderContext
from gitops_ds.render.traced_values import TracedTree
from gitops_ds.render.variants import Variant

KEY = "requiredForWork"


def annotated(
    daemonset: dict[str, Any], agent: AgentFolder, around: RenderContext, variant: Variant
) -> TracedTree:
    """The traced DaemonSet with the annotation if its agent is required, and without it if the key
    is false. Without the key it is unchanged.
    """
    declared = _declared(agent, around, variant)
    if declared is None:
        return daemonset
    is_required, at = declared
    metadata = _mapping(daemonset.get("metadata"))
    annotations = _mapping(metadata.get("annotations"))
    annotations.pop(names.REQUIRED_FOR_WORK, None)
    if is_required:
        annotations[names.REQUIRED_FOR_WORK] = traced_values.TracedScalar("true", (at,))
    elif "annotations" not in metadata:
        return daemonset
    return {**daemonset, "metadata": {**metadata, "annotations": annotations}}


def _declared(
    agent: AgentFolder, around: RenderContext, variant: Variant
) -> tuple[bool, Pointer] | None:
    """The effective value with its place; None if no file has one."""
    at = variant.below(KEY)
    if variant.required_for_work is not None and at is not None:
        return variant.required_for_work, at
    for file in (around.cluster, around.environment):
        if isinstance(value := file.section("agents", agent.name).get(KEY), bool):
            return value, file.at("agents", agent.name, KEY)
    value = agent.about.value.get(KEY)
    return (value, agent.about.at(KEY)) if isinstance(value, bool) else None


def _mapping(tree: TracedTree) -> dict[str, Any]:
    return dict(tree) if isinstance(tree, dict) else {}
