"""Compares the nodes that variants.yaml expects with the rendered affinities of an agent's
DaemonSets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gitops_ds.model.finding import Finding, refusal
from gitops_ds.model.sources.bundle import Requirement
from gitops_ds.render import selector_coverage, variants
from gitops_ds.render.agent_folder import AgentFolder, RenderContext
from gitops_ds.render.parsed_objects import ParsedObject
from gitops_ds.render.selector_coverage import EVERYWHERE, SelectorTerms

_LINUX: SelectorTerms = ((Requirement("kubernetes.io/os", "In", ("linux",)),),)


def check(
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
            yield refusal("DS602", message, places[overlap.second])
        gap = selector_coverage.find_gap(universe, parts.values(), ignored) if universe else None
        if gap:
            message = (
                f"no variant of agent {agent.name} selects a node {gap}, which `expect` counts on"
            )
            place = repo_layout.place(agent.variants.at("expect", "coverage"))
            yield refusal("DS603", message, place)


def counted(
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
