"""Renders one agent's folder to objects: templates with values, patches, and variants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from gitops_ds.core import names
from gitops_ds.core.finding import Finding
from gitops_ds.core.sources.bundle import Pointer
from gitops_ds.source.render import (
    agent_folder,
    field_path,
    hashed_config_map,
    layout,
    parameters,
    patches,
    selector_coverage,
    traced_values,
    variants,
)
from gitops_ds.source.render.agent_folder import AgentFolder, RenderContext
from gitops_ds.source.render.hashed_config_map import Config
from gitops_ds.source.render.parameters import ValuesLayer
from gitops_ds.source.render.parsed_objects import ParsedObject
from gitops_ds.source.render.patches import Patch
from gitops_ds.source.render.placeholders import PlaceholderScope
from gitops_ds.source.render.traced_values import TracedTree
from gitops_ds.source.render.variants import Variant
from gitops_ds.source.rules import NO_MATCH, UNDEFINED_NAME, UNUSED_FILE
from gitops_ds.yaml import parser


@dataclass(slots=True)
class Rendered:
    """The result of an agent, filled while it is rendered."""

    drafts: list[ParsedObject] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    fitted: set[Pointer] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    config_used: bool = False


def render(agent: AgentFolder, around: RenderContext) -> Rendered:
    """The agent's objects for the cluster."""
    repo_layout, facts = around.layout, around.facts
    result = Rendered()
    result.findings += agent_folder.file_findings(agent, around)
    config, findings = hashed_config_map.of_folder(
        agent.name, {p: repo_layout.files[p] for p in agent.paths if layout.is_config(p)}
    )
    result.findings += findings
    agent_variants, findings = variants.read(agent.variants, repo_layout, facts)
    result.findings += findings
    general = list(_patches(agent, around))
    shared = scope(agent, around, None, result)
    namespaces: dict[str, None] = {}
    for draft in agent_folder.templates(agent, around, result.findings):
        if _is_main(draft, agent.name):
            own_namespaces = _daemonset(
                agent, around, draft, agent_variants, general, config, result
            )
            namespaces |= dict.fromkeys(own_namespaces)
        else:
            tree = _traced(draft, shared)
            tree = _patched(tree, general, (traced_values.object_name(tree),), around, result)
            result.drafts.append(_draft(agent, tree, draft, ""))
    _settle(shared, agent, around, result)
    if config:
        result.drafts += [config.draft(namespace) for namespace in namespaces if result.config_used]
    if not agent_folder.is_missing(agent, around):  # values and patches may be for missing objects
        result.findings += _unused(agent, around, agent_variants, general, config, result)
    return result


def scope(
    agent: AgentFolder, around: RenderContext, variant: Variant | None, result: Rendered
) -> PlaceholderScope:
    """The names that the agent's templates may reference, for one variant (None: for its
    companions).
    """
    repo_layout, facts = around.layout, around.facts
    stack = parameters.layers(agent.name, around.cluster, around.environment, agent.values, facts)
    if variant and variant.at:
        stack.append(
            ValuesLayer(
                variant.values,
                Pointer(variant.at.file, variant.at.document, (*variant.at.path, "values")),
            )
        )
    result.findings += parameters.unknown(agent.declared, stack, agent.name, repo_layout)
    resolved = parameters.resolve(agent.declared, stack)
    result.findings += parameters.violations(
        agent.declared, resolved, agent.name, repo_layout, around.definition
    )
    built_in: dict[str, TracedTree] = {"agent.name": traced_values.TracedScalar(agent.name, ())}
    if facts.name:
        built_in["cluster.name"] = traced_values.TracedScalar(facts.name, (around.cluster.at(),))
        labels = around.cluster.section("labels").items()
        built_in |= {
            f"cluster.labels.{key}": traced_values.trace(label, around.cluster.at("labels", key))
            for key, label in labels
        }
    if facts.environment:
        built_in["environment.name"] = traced_values.TracedScalar(
            facts.environment, (around.cluster.at("environment"),)
        )
    if variant:
        pointer = variant.below("name")
        built_in["variant.name"] = traced_values.TracedScalar(
            variant.name, (pointer,) if pointer else ()
        )
    return PlaceholderScope({**resolved, **built_in}, parameters.missing(agent.declared, resolved))


def _daemonset(
    agent: AgentFolder,
    around: RenderContext,
    draft: ParsedObject,
    agent_variants: list[Variant],
    general: list[Patch],
    config: Config | None,
    result: Rendered,
) -> Iterator[str]:
    """Adds the DaemonSet of every variant to the result; yields their namespaces."""
    for variant in agent_variants:
        if variant.never or variant.absent:
            continue
        own = scope(agent, around, variant, result)
        at = variant.below("patches")
        special = list(patches.of_entries(variant.patches, at)) if at else []
        template = _bind(_traced(draft, own), agent, own, around, result)
        base_name = traced_values.object_name(template)
        tree = variants.place_on(template, variant)
        tree = _with_required_for_work(tree, agent, around, variant)
        if (
            len(selector_coverage.terms_of_daemonset(traced_values.plain(tree)))
            > variants.MOST_TERMS
            and variant.at
        ):
            result.findings.append(variants.too_many(variant.name, around.layout.place(variant.at)))
        tree = _patched(
            tree,
            [_resolved(p, own) for p in (*general, *special)],
            (base_name, traced_values.object_name(tree)),
            around,
            result,
        )
        if config:
            tree, used = hashed_config_map.point_to(tree, config)
            result.config_used |= used
        _settle(own, agent, around, result)
        result.drafts.append(_draft(agent, tree, draft, variant.name if variant.at else ""))
        metadata = tree.get("metadata")
        yield (
            str(traced_values.plain(metadata.get("namespace")) or "")
            if isinstance(metadata, dict)
            else ""
        )
        result.findings += [_no_such(p, around) for p in special if p.at not in result.fitted]


def _traced(draft: ParsedObject, own: PlaceholderScope) -> TracedTree:
    """The body with resolved references. A chart's body is literal: there `${HOME}` is for a shell,
    and can't be escaped.
    """
    tree = traced_values.trace(draft.body, draft.base, draft.set_by)
    return tree if draft.literal else own.resolve(tree)


def _is_main(draft: ParsedObject, agent: str) -> bool:
    """Whether the object has variants: the agent's DaemonSets, except those under companions/."""
    is_daemonset = draft.body["kind"] == "DaemonSet" and str(draft.body["apiVersion"]).startswith(
        "apps/"
    )
    return is_daemonset and not PurePosixPath(draft.base.file).is_relative_to(
        f"agents/{agent}/companions"
    )


def _patches(agent: AgentFolder, around: RenderContext) -> Iterator[Patch]:
    """patches/ENVIRONMENT.yaml, then patches/CLUSTER.yaml."""
    for name in dict.fromkeys((around.facts.environment, around.facts.name)):
        path = PurePosixPath("agents", agent.name, "patches", f"{name}.yaml")
        if name and path in around.layout.files:
            yield from patches.of_documents(
                str(path), parser.read(str(path), around.layout.files[path]).documents
            )


def _patched(
    tree: TracedTree,
    all_patches: list[Patch],
    known_as: tuple[str, ...],
    around: RenderContext,
    result: Rendered,
) -> TracedTree:
    kind = str(traced_values.plain(tree.get("kind")))
    for patch in all_patches:
        if patch.fits(kind, *known_as):
            result.fitted.add(patch.at)
            tree, finding = patches.apply(tree, patch, around.layout.place)
            result.findings += [finding] if finding else []
    return tree


def _resolved(patch: Patch, own: PlaceholderScope) -> Patch:
    return Patch(patch.kind, patch.name, own.resolve(patch.change), patch.at)


def _bind(
    tree: TracedTree,
    agent: AgentFolder,
    own: PlaceholderScope,
    around: RenderContext,
    result: Rendered,
) -> TracedTree:
    """The template with the values of bound parameters."""
    for name, binding in agent.bound.items():
        text = binding.get("path") if isinstance(binding, Mapping) else None
        if name not in own.values or not isinstance(text, str) or not isinstance(binding, Mapping):
            continue
        if str(binding.get("kind", "DaemonSet")) != "DaemonSet" or binding.get(
            "name", traced_values.object_name(tree)
        ) != traced_values.object_name(tree):
            continue
        own.used.add(name)
        steps = field_path.parse(text)
        path = (
            field_path.resolve(traced_values.plain(tree), steps, missing_key=True)
            if steps
            else None
        )
        if not path:
            message = f"there is nothing at {text} in DaemonSet {traced_values.object_name(tree)}"
            result.findings.append(
                NO_MATCH.refusal(
                    message, around.layout.place(agent.source.at("bind", name, "path"))
                )
            )
            continue
        tree = _set(tree, path, own.values[name], agent.source.at("bind", name))
    return tree


def _set(
    tree: TracedTree, path: tuple[str | int, ...], value: TracedTree, at: Pointer
) -> TracedTree:
    """The tree with the value at the path; the origins of the previous value follow those of the
    new one.
    """
    if not path:
        old = tree.set_by if isinstance(tree, traced_values.TracedScalar) else ()
        return (
            traced_values.TracedScalar(value.value, (*value.set_by, at, *old))
            if isinstance(value, traced_values.TracedScalar)
            else value
        )
    step, rest = path[0], path[1:]
    if isinstance(tree, dict):
        return {**tree, step: _set(tree.get(step), rest, value, at)}
    return [
        _set(item, rest, value, at) if index == step else item for index, item in enumerate(tree)
    ]


def _settle(
    own: PlaceholderScope, agent: AgentFolder, around: RenderContext, result: Rendered
) -> None:
    """Adds the used and undefined names of the scope to the result."""
    result.used |= own.used
    names = {*own.values, "cluster.name", "environment.name", "variant.name"}
    for undefined in own.undefined:
        hint = layout.did_you_mean(undefined.name, names)
        literal = f"for the literal text write $${{{undefined.name}}}"
        message = f"agent {agent.name} has no value for ${{{undefined.name}}}{hint} ({literal})"
        result.findings.append(UNDEFINED_NAME.refusal(message, around.layout.place(undefined.at)))


def _draft(agent: AgentFolder, tree: TracedTree, draft: ParsedObject, variant: str) -> ParsedObject:
    # Lists and mappings of rendered output have places as well, for findings on missing fields.
    set_by = {**draft.set_by, **traced_values.origins(tree, draft.base)}
    return ParsedObject(
        traced_values.plain(tree), draft.base, set_by, agent.name, variant, agent.depends_on
    )


def _unused(
    agent: AgentFolder,
    around: RenderContext,
    agent_variants: list[Variant],
    general: list[Patch],
    config: Config | None,
    result: Rendered,
) -> Iterator[Finding]:
    """Patches without target; unused parameters and config files."""
    repo_layout = around.layout
    if not all(variant.absent or variant.never for variant in agent_variants):
        yield from (_no_such(patch, around) for patch in general if patch.at not in result.fitted)
        for name in sorted(agent.declared.names - agent.bound.keys() - result.used):
            at = agent.declared.schema.at("properties", name)
            yield UNUSED_FILE.finding(
                f"nothing in agent {agent.name} refers to ${{{name}}}",
                repo_layout.place(at, key=True),
            )
        if config and not result.config_used:
            message = (
                f"nothing in agent {agent.name} reads its config/; reference the ConfigMap "
                f"{agent.name}"
            )
            yield UNUSED_FILE.finding(message, repo_layout.place(Pointer(config.file, 0, ())))


def _no_such(patch: Patch, around: RenderContext) -> Finding:
    what = f"{patch.kind} {patch.name}".rstrip()
    return NO_MATCH.refusal(
        f"this patch is for a {what}, which the agent does not have", around.layout.place(patch.at)
    )


_REQUIRED_FOR_WORK = "requiredForWork"


def _with_required_for_work(
    daemonset: dict[str, Any], agent: AgentFolder, around: RenderContext, variant: Variant
) -> TracedTree:
    """The traced DaemonSet with the annotation if its agent is required, and without it if the key
    is false. Without the key it is unchanged.
    """
    declared = _required_for_work(agent, around, variant)
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


def _required_for_work(
    agent: AgentFolder, around: RenderContext, variant: Variant
) -> tuple[bool, Pointer] | None:
    """The effective value with its place; None if no file has one. The precedence is that of
    values, from low to high: the agent, the environment, the cluster, the variant.
    """
    at = variant.below(_REQUIRED_FOR_WORK)
    if variant.required_for_work is not None and at is not None:
        return variant.required_for_work, at
    for file in (around.cluster, around.environment):
        if isinstance(value := file.section("agents", agent.name).get(_REQUIRED_FOR_WORK), bool):
            return value, file.at("agents", agent.name, _REQUIRED_FOR_WORK)
    value = agent.about.value.get(_REQUIRED_FOR_WORK)
    return (value, agent.about.at(_REQUIRED_FOR_WORK)) if isinstance(value, bool) else None


def _mapping(tree: TracedTree) -> dict[str, Any]:
    return dict(tree) if isinstance(tree, dict) else {}
