"""The files of one agent: its folder, parsed, the findings in files of our format, and its
unresolved objects: the manifests of the folder, or the output of its source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import msgspec

from gitops_ds.core.finding import Finding
from gitops_ds.core.sources.bundle import ClusterFacts, Pointer
from gitops_ds.core.sources.source_tree import RenderedChart
from gitops_ds.core.values import replace
from gitops_ds.source.render import charts, layout, parameters, parsed_objects, traced_values
from gitops_ds.source.render.layout import File, Layout
from gitops_ds.source.render.parameters import Definition, Parameters
from gitops_ds.source.render.parsed_objects import ParsedObject
from gitops_ds.source.rules import NO_MATCH, NOT_RENDERED, UNUSED_FILE

# Files and folders of agents/NAME/ that are not manifests.
OUR_FILES = frozenset(
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
        declared=parameters.read(schema, source.section("bind")),
        values=parameters.own_files(own, "values", repo_layout),
    )


def is_ours(path: PurePosixPath) -> bool:
    """Whether a path of the folder is in our format, not a manifest."""
    return path.parts[2] in (OUR_FILES if len(path.parts) == 3 else _OUR_FOLDERS)


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
            yield NO_MATCH.refusal(message, repo_layout.place(Pointer(str(path), 0, ())))


def kustomize_path(source: File) -> str:
    """The folder in source.yaml, relative to itself; empty without one."""
    return source.text("kustomize") or source.text("kustomize", "path")


def templates(
    agent: AgentFolder, around: RenderContext, findings: list[Finding]
) -> Iterator[ParsedObject]:
    """The unresolved objects of the agent's folder, or of the source in its source.yaml."""
    repo_layout = around.layout
    folder = PurePosixPath("agents", agent.name)
    explained = any(finding.refused for finding in repo_layout.snapshot.findings)
    if (chart := repo_layout.snapshot.charts.get(folder / "source.yaml")) is not None:
        yield from _of_chart(chart, agent, around, findings)
    elif agent.source.section("helm") and not explained:
        message = "the chart was not rendered; without it the agent is incomplete"
        findings.append(
            NOT_RENDERED.refusal(message, repo_layout.place(agent.source.at("helm"), key=True))
        )
    named = kustomize_path(agent.source)
    kustomize_folder = charts.inside(folder, named) if named else None
    if named and (
        kustomize_folder is None
        or (kustomize_folder not in repo_layout.snapshot.expanded and not explained)
    ):
        message = (
            f"kustomize has no output for {named}: is it in the repository, with a "
            "kustomization.yaml?"
        )
        findings.append(
            NOT_RENDERED.refusal(message, repo_layout.place(agent.source.at("kustomize")))
        )
    for made, data in sorted(repo_layout.snapshot.expanded.items()):
        if made == kustomize_folder or (not named and made.parts[:2] == folder.parts):
            objects = parsed_objects.expanded(made, data, repo_layout.snapshot.placed.get(made, {}))
            findings += objects.findings
            yield from objects.drafts
    for path in agent.paths:
        if (
            path in repo_layout.files
            and path.suffix in layout.MANIFEST_SUFFIXES
            and not is_ours(path)
        ):
            objects = repo_layout.objects(path)
            findings += objects.findings
            yield from objects.drafts


def is_missing(agent: AgentFolder, around: RenderContext) -> bool:
    """Whether the rendered output of the agent's source is missing; a finding of the snapshot has
    the reason.
    """
    snapshot, folder = around.layout.snapshot, PurePosixPath("agents", agent.name)
    if agent.source.section("helm"):
        return folder / "source.yaml" not in snapshot.charts
    if named := kustomize_path(agent.source):
        return charts.inside(folder, named) not in snapshot.expanded
    consumed = any(path.parts[:2] == folder.parts for path in snapshot.consumed)
    return consumed and not any(made.parts[:2] == folder.parts for made in snapshot.expanded)


def _of_chart(
    chart: RenderedChart, agent: AgentFolder, around: RenderContext, findings: list[Finding]
) -> Iterator[ParsedObject]:
    """The objects of the chart, with the origins of their values. Hooks are not run."""
    objects = parsed_objects.read(agent.source.name, chart.data)
    for finding in objects.findings:
        place = around.layout.place(agent.source.at("helm", "chart"))
        findings.append(
            replace(
                finding,
                message=f"in the output of helm: {finding.message}",
                place=place,
                end=None,
            )
        )
    for draft in objects.drafts:
        origins = {} if draft.base.path else chart.places.get(draft.base.document, {})
        base = origins[()][0] if () in origins else agent.source.at("helm", "chart")
        metadata = draft.body.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
        hook = annotations.get("helm.sh/hook") if isinstance(annotations, Mapping) else None
        if hook is None:
            yield replace(draft, base=base, set_by=origins, literal=True)
        elif hook not in ("test", "test-success", "test-failure"):
            message = (
                f"{draft.body['kind']} {traced_values.object_name(draft.body)} is a hook of the "
                f"chart ({hook}), and is omitted: only Helm runs hooks"
            )
            findings.append(UNUSED_FILE.finding(message, around.layout.place(base)))
