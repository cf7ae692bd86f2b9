"""The source of a value: every place that sets it, the effective one first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gitops_ds.core.errors import UsageError
from gitops_ds.core.finding import Place
from gitops_ds.core.objects import Path, show_path
from gitops_ds.core.sources.bundle import Bundle, Manifest, Pointer
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.source.render import agent as one
from gitops_ds.source.render import (
    agent_folder,
    field_path,
    layout,
    selector_coverage,
    traced_values,
    variants,
)
from gitops_ds.source.render import bundle as bundles
from gitops_ds.source.render.layout import Layout
from gitops_ds.source.render.traced_values import TracedTree


class Setting(msgspec.Struct, frozen=True):
    """A place that sets a value, and the path of the scalar (empty: the value of the request)."""

    place: Place
    path: Path = ()


class Explanation(msgspec.Struct, frozen=True):
    """A value of an agent and its sources, the effective one first.

    For a mapping or a list, `set_by` has the places of its scalars, each with its path.
    """

    value: Any
    set_by: tuple[Setting, ...]


def explain(
    snapshot: SourceTree,
    agent: str,
    path: str = "",
    *,
    cluster: str = "",
    node_labels: Mapping[str, str] | None = None,
) -> Explanation:
    """The value at a path and every file, line and column that sets it.

    `path` is the name of a parameter, possibly with a path in its value, or a path in the manifest
    of the DaemonSet; empty for the whole manifest. In an agent with variants, `node_labels` select
    the variant of such a node; the default is the variant `default`. Raises UsageError for an
    unknown agent, path or node.
    """
    repo_layout = layout.read(snapshot)
    steps = field_path.parse(path)
    if steps is None:
        raise UsageError(
            f"{path!r} is not a valid path; write it like spec.template.spec.containers[0].image"
        )
    rendered = bundles.render(snapshot, cluster=cluster)
    manifest = _chosen(rendered, agent, node_labels)
    if steps and agent in repo_layout.agents:
        parameter = _parameter(repo_layout, rendered, manifest, str(steps[0]))
        if parameter is not None:
            way = field_path.resolve(traced_values.plain(parameter), steps[1:])
            if way is None:
                raise UsageError(
                    f"the parameter {steps[0]} of agent {agent} has nothing at "
                    f"{show_path(steps[1:])}"
                )
            return _explanation(field_path.get(parameter, way), repo_layout, manifest)
    way = field_path.resolve(manifest.body, steps)
    if way is None:
        raise UsageError(
            f"agent {agent} has neither a parameter nor a field {path} in {manifest.key}"
        )
    return _explanation(field_path.get(_as_tree(manifest), way), repo_layout, manifest)


def _chosen(rendered: Bundle, agent: str, labels: Mapping[str, str] | None) -> Manifest:
    """The DaemonSet of the agent for a node with these labels."""
    candidates = [
        m for m in rendered.manifests.values() if m.agent == agent and m.key.kind == "DaemonSet"
    ]
    if not candidates:
        agents = {m.agent for m in rendered.manifests.values() if m.key.kind == "DaemonSet"}
        raise UsageError(
            f"there is no agent {agent} on this cluster{layout.did_you_mean(agent, agents)}"
        )
    if labels is not None:
        taking = [
            m
            for m in candidates
            if selector_coverage.matches(selector_coverage.terms_of_daemonset(m.body), labels)
        ]
        if not taking:
            raise UsageError(f"agent {agent} has no DaemonSet for a node with these labels")
        return taking[0]
    return next((m for m in candidates if m.variant in ("", variants.DEFAULT)), candidates[0])


def _parameter(
    repo_layout: Layout, rendered: Bundle, manifest: Manifest, name: str
) -> TracedTree | None:
    around = bundles.surroundings(repo_layout, rendered.cluster)
    agent = agent_folder.read(manifest.agent, repo_layout)
    if name not in agent.declared.names:
        return None
    agent_variants, _ = variants.read(agent.variants, repo_layout, rendered.cluster)
    variant = next(
        (v for v in agent_variants if v.name == (manifest.variant or variants.DEFAULT)),
        agent_variants[-1],
    )
    return one.scope(agent, around, variant, one.Rendered()).values.get(name)


def _as_tree(manifest: Manifest) -> TracedTree:
    """The body as a traced tree: the source of a value without pointers is its path under the
    base.
    """
    origin = manifest.origin

    def setters(path: Path) -> tuple[Pointer, ...]:
        own = Pointer(origin.base.file, origin.base.document, origin.base.path + path)
        return origin.set_by.get(path, (own,))

    return traced_values.tree(manifest.body, setters)


def _explanation(tree: TracedTree, repo_layout: Layout, manifest: Manifest) -> Explanation:
    settings = [
        Setting(repo_layout.place(pointer), path)
        for path, scalar in traced_values.scalars(tree)
        for pointer in scalar.set_by
    ]
    return Explanation(traced_values.plain(tree), tuple(dict.fromkeys(settings)))
