"""The files of one agent: its folder, parsed, and the findings in files of our format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import msgspec

from gitops_ds.model.finding import Finding, refusal
from gitops_ds.model.sources.bundle import ClusterFacts, Pointer
from gitops_ds.render import (
    layout,
    values,
)
from gitops_ds.render.layout import File, Layout
from gitops_ds.render.parameter_schema import Definition
from gitops_ds.render.values import Parameters

# Files and folders of agents/NAME/ that are not manifests.
_OUR_FILES = frozenset(
    ["params.schema.json", "variants.yaml", "source.yaml", "agent.yaml", "rollout.yaml"]
)
_OUR_FOLDERS = frozenset(["values", "patches", "config"])


class RenderContext(msgspec.Struct, frozen=True):
    """The context of an agent beyond its folder: the cluster, its environment, the repository."""

    layout: Layout
    facts: ClusterFacts
    cluster: File
    environment: File
    definition: Definition


class AgentFolder(msgspec.Struct, frozen=True):
    """An agent's parsed files."""

    name: str
    paths: tuple[PurePosixPath, ...]
    about: File
    source: File
    variants: File
    declared: Parameters
    values: Mapping[str, File]

    @property
    def depends_on(self) -> tuple[str, ...]:
        """The agents that must be ready before this one is applied."""
        return layout.texts(self.about.value.get("dependsOn"))

    @property
    def bound(self) -> Mapping[str, Any]:
        """Parameters that are bound to fields of a source, which can't be edited."""
        return self.source.section("bind")


def read(name: str, repo_layout: Layout) -> AgentFolder:
    """The agent of that name."""
    folder = PurePosixPath("agents", name)
    source = repo_layout.read(folder / "source.yaml")
    schema = repo_layout.read(folder / "params.schema.json")
    own = repo_layout.agents[name]
    return AgentFolder(
        name=name,
        paths=own,
        about=repo_layout.read(folder / "agent.yaml"),
        source=source,
        variants=repo_layout.read(folder / "variants.yaml"),
        declared=values.parameters(schema, source.section("bind")),
        values=values.own_files(own, "values", repo_layout),
    )


def is_ours(path: PurePosixPath) -> bool:
    """Whether a path of the folder is in our format, not a manifest."""
    return path.parts[2] in (_OUR_FILES if len(path.parts) == 3 else _OUR_FOLDERS)


def file_findings(agent: AgentFolder, around: RenderContext) -> Iterator[Finding]:
    """Findings of unreadable files of our format, and of values or patches for unknown environments
    and clusters.
    """
    repo_layout = around.layout
    for path in agent.paths:
        if (
            path not in repo_layout.files
            or path.suffix not in layout.MANIFEST_SUFFIXES
            or layout.is_config(path)
            or not is_ours(path)
        ):
            continue
        yield from repo_layout.findings_of(path)
        if path.parts[2] in ("values", "patches") and path.stem not in repo_layout.names:
            hint = layout.did_you_mean(path.stem, repo_layout.names)
            message = (
                f"{path.stem} is neither an environment nor a cluster of this repository{hint}"
            )
            yield refusal("DS803", message, repo_layout.place(Pointer(str(path), 0, ())))


def kustomize_path(source: File) -> str:
    """The folder in source.yaml, relative to itself; empty without one."""
    return source.text("kustomize") or source.text("kustomize", "path")
