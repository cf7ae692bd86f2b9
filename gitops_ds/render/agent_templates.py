"""The unresolved objects of an agent: the manifests of its folder, or the output of its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from gitops_ds.model.finding import Finding, Severity, refusal
from gitops_ds.model.sources.source_tree import RenderedChart
from gitops_ds.model.values import replace
from gitops_ds.render import (
    agent_folder,
    charts,
    layout,
    parsed_objects,
    traced_values,
)
from gitops_ds.render.agent_folder import AgentFolder, RenderContext
from gitops_ds.render.parsed_objects import ParsedObject


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
            refusal("DS801", message, repo_layout.place(agent.source.at("helm"), key=True))
        )
    named = agent_folder.kustomize_path(agent.source)
    kustomize_folder = charts.inside(folder, named) if named else None
    if named and (
        kustomize_folder is None
        or (kustomize_folder not in repo_layout.snapshot.expanded and not explained)
    ):
        message = (
            f"kustomize has no output for {named}: is it in the repository, with a "
            "kustomization.yaml?"
        )
        findings.append(refusal("DS801", message, repo_layout.place(agent.source.at("kustomize"))))
    for made, data in sorted(repo_layout.snapshot.expanded.items()):
        if made == kustomize_folder or (not named and made.parts[:2] == folder.parts):
            yield from parsed_objects.expanded(
                made, data, repo_layout.snapshot.placed.get(made, {})
            ).drafts
    for path in agent.paths:
        if (
            path in repo_layout.files
            and path.suffix in layout.MANIFEST_SUFFIXES
            and not agent_folder.is_ours(path)
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
    if named := agent_folder.kustomize_path(agent.source):
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
            findings.append(Finding("DS804", Severity.INFO, message, around.layout.place(base)))
