"""All agents of a cluster: selection, holds, dependencies, and the nodes that variants.yaml expects
against the affinities of the DaemonSets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from gitops_ds.core.finding import Finding
from gitops_ds.core.sources.bundle import Requirement
from gitops_ds.source.render import agent as one
from gitops_ds.source.render import agent_folder, layout, selector_coverage, variants
from gitops_ds.source.render.agent import Rendered
from gitops_ds.source.render.agent_folder import AgentFolder, RenderContext
from gitops_ds.source.render.parsed_objects import ParsedObject
from gitops_ds.source.render.selector_coverage import EVERYWHERE, SelectorTerms
from gitops_ds.source.rules import LEFT_OUT_NODE, NO_MATCH, SHARED_NODE, UNUSED_FILE

if TYPE_CHECKING:
    from gitops_ds.core.skip_reasons import DriftPolicy


class All(msgspec.Struct, frozen=True):
    """The result of all agents. `held` are those on hold, each with its file; `drift` their drift
    policies.

    `expected` has, by agent, the expected nodes and the nodes without a pod, if declared.
    """

    drafts: tuple[ParsedObject, ...]
    findings: tuple[Finding, ...]
    held: Mapping[str, str]
    drift: Mapping[str, DriftPolicy]
    expected: Mapping[str, tuple[SelectorTerms, SelectorTerms]]


def render(around: RenderContext) -> All:
    """Renders every agent of the cluster, sorted by name."""
    repo_layout = around.layout
    here = chosen(around)
    agents = {name: agent_folder.read(name, repo_layout) for name in here}
    findings = list(
        _dependencies(
            {name: agent_folder.read(name, repo_layout) for name in repo_layout.agents}, around
        )
    )
    drafts: list[ParsedObject] = []
    used: dict[str, Rendered] = {}
    expected: dict[str, tuple[SelectorTerms, SelectorTerms]] = {}
    for name, agent in agents.items():
        result = used[name] = one.render(agent, around)
        drafts += result.drafts
        findings += [*result.findings, *_check_expected(agent, around, result.drafts)]
        if counted := _expected_of(agent, around):
            expected[name] = counted
    findings += _unused_values(agents, around)
    held = {name: file for name, agent in agents.items() if (file := _held_by(agent, around))}
    return All(tuple(drafts), tuple(findings), held, _drift(agents), expected)


def _drift(agents: Mapping[str, AgentFolder]) -> dict[str, DriftPolicy]:
    policies = {
        name: word
        for name, agent in agents.items()
        if isinstance(word := agent.about.value.get("drift"), str)
    }
    if not policies:
        return {}
    from gitops_ds.core.skip_reasons import DriftPolicy

    return {name: DriftPolicy(word) for name, word in policies.items() if word in set(DriftPolicy)}


def chosen(around: RenderContext) -> tuple[str, ...]:
    """The agents listed in the cluster file; all of them without a list."""
    chosen_names = around.cluster.value.get("agents")
    if not isinstance(chosen_names, Mapping):
        return tuple(around.layout.agents)
    return tuple(name for name in around.layout.agents if name in chosen_names)


def _held_by(agent: AgentFolder, around: RenderContext) -> str:
    """The file with `hold: true` for an agent, the cluster's first; empty without one."""
    sections = [
        (file, file.section("agents", agent.name)) for file in (around.cluster, around.environment)
    ]
    sections.append((agent.about, agent.about.value))
    return next((file.name for file, value in sections if value.get("hold") is True), "")


def _dependencies(agents: Mapping[str, AgentFolder], around: RenderContext) -> Iterator[Finding]:
    """Findings of dependencies on unknown agents, and of dependency cycles."""
    for name, agent in agents.items():
        for index, other in enumerate(agent.depends_on):
            place = around.layout.place(agent.about.at("dependsOn", index))
            if other not in agents:
                hint = layout.did_you_mean(other, agents)
                yield NO_MATCH.refusal(
                    f"agent {name} waits for {other}, which is not an agent "
                    f"of this repository{hint}",
                    place,
                )
            elif (circle := _way(agents, other, name)) is not None:
                yield NO_MATCH.refusal(f"dependency cycle: {' -> '.join((name, *circle))}", place)


def _way(
    agents: Mapping[str, AgentFolder], start: str, end: str, seen: tuple[str, ...] = ()
) -> tuple[str, ...] | None:
    """The agents from start to end along their dependencies."""
    if start == end:
        return (*seen, start)
    if start in seen or start not in agents:
        return None
    ways = (_way(agents, other, end, (*seen, start)) for other in agents[start].depends_on)
    return next((way for way in ways if way is not None), None)


def _unused_values(agents: Mapping[str, AgentFolder], around: RenderContext) -> Iterator[Finding]:
    """Shared values without a parameter in any agent of this cluster."""
    parameters = {name for agent in agents.values() for name in agent.declared.names}
    for file in (around.environment, around.cluster):
        for name in file.section("values"):
            if name not in parameters:
                hint = layout.did_you_mean(name, parameters)
                place = around.layout.place(file.at("values", name), key=True)
                yield UNUSED_FILE.finding(
                    f"no agent of this cluster has a parameter {name}{hint}", place
                )


_LINUX: SelectorTerms = ((Requirement("kubernetes.io/os", "In", ("linux",)),),)


def _check_expected(
    agent: AgentFolder, around: RenderContext, drafts: Sequence[ParsedObject]
) -> Iterator[Finding]:
    """A finding with the labels of a node for each pair of variants that share a node, and for an
    expected node without a variant.

    The rendered DaemonSets are compared, so that a patch that breaks an affinity is found, and the
    nodes declared without a pod.
    """
    repo_layout = around.layout
    agent_variants, _ = variants.read(agent.variants, repo_layout, around.facts)
    if all(variant.absent or variant.at is None for variant in agent_variants):
        return
    ignored: SelectorTerms = (around.facts.ignore,) if around.facts.ignore else ()
    places = {
        variant.name: repo_layout.place(variant.at) for variant in agent_variants if variant.at
    }
    never = {variant.name: variant.terms for variant in agent_variants if variant.never}
    universe, findings = _universe(agent, around)
    yield from findings
    for document in dict.fromkeys(draft.base for draft in drafts if draft.variant):
        parts = {
            d.variant: selector_coverage.terms_of_daemonset(d.body)
            for d in drafts
            if d.base == document and d.variant
        } | never
        for overlap in selector_coverage.find_overlaps(parts, ignored):
            message = (
                f"variants {overlap.first} and {overlap.second} of agent {agent.name} both select "
                f"a node {overlap.node}"
            )
            yield SHARED_NODE.refusal(message, places[overlap.second])
        gap = selector_coverage.find_gap(universe, parts.values(), ignored) if universe else None
        if gap:
            message = (
                f"no variant of agent {agent.name} selects a node {gap}, which `expect` counts on"
            )
            place = repo_layout.place(agent.variants.at("expect", "coverage"))
            yield LEFT_OUT_NODE.refusal(message, place)


def _expected_of(
    agent: AgentFolder, around: RenderContext
) -> tuple[SelectorTerms, SelectorTerms] | None:
    """The nodes of `expect`, and the nodes of variants without a pod; None without `expect` for the
    cluster.
    """
    universe = _universe(agent, around)[0] if agent.variants.value else ()
    if not universe:
        return None
    agent_variants, _ = variants.read(agent.variants, around.layout, around.facts)
    return universe, tuple(
        term for variant in agent_variants if variant.never for term in variant.terms
    )


def _universe(agent: AgentFolder, around: RenderContext) -> tuple[SelectorTerms, list[Finding]]:
    """The nodes of `expect`; none without it."""
    coverage = agent.variants.section("expect").get("coverage")
    match coverage:
        case "all-linux-nodes":
            return _LINUX, []
        case "all-nodes":
            return EVERYWHERE, []
        case Mapping():
            return variants.nodes_of(
                coverage, agent.variants.at("expect", "coverage"), around.layout, around.facts
            )
        case _:
            return (), []
