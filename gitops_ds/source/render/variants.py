"""Variants of an agent for sets of nodes, in order. The first match counts, so the affinity of each
variant excludes those before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gitops_ds.core import names
from gitops_ds.core.finding import Finding, Place
from gitops_ds.core.sources.bundle import ClusterFacts, Pointer, Requirement
from gitops_ds.source.render import layout, traced_values
from gitops_ds.source.render.layout import File, Layout
from gitops_ds.source.render.selector_coverage import EVERYWHERE, SelectorTerms
from gitops_ds.source.render.traced_values import TracedTree
from gitops_ds.source.rules import INVALID_AFFINITY, NO_NODE, NOT_RENDERED, UNDEFINED_NAME

DEFAULT = "default"
# More terms are unreadable, and the scheduler evaluates them for every pod and node.
MOST_TERMS = 16
_BLOW_UP = 512


class Variant(msgspec.Struct, frozen=True):
    """One entry of variants.yaml; `terms` are its nodes without those of the entries before it.

    `never`: its nodes must not get a pod. `absent`: this cluster has none of its pools. `at` is the
    pointer to the entry. `required_for_work` is None if the entry lacks the key.
    """

    name: str
    at: Pointer | None
    terms: SelectorTerms
    values: Mapping[str, Any]
    patches: Any = None
    never: bool = False
    absent: bool = False
    required_for_work: bool | None = None

    def below(self, *path: str | int) -> Pointer | None:
        """The pointer to a value in the entry."""
        return self.at and Pointer(self.at.file, self.at.document, (*self.at.path, *path))


ONLY = Variant(DEFAULT, None, EVERYWHERE, {})


def read(
    file: File, repo_layout: Layout, facts: ClusterFacts
) -> tuple[list[Variant], list[Finding]]:
    """The variants of an agent's variants.yaml for a cluster; without the file, one for every
    node.
    """
    entries = file.value.get("variants")
    if not isinstance(entries, list) or not entries:
        return [ONLY], []
    variants: list[Variant] = []
    findings: list[Finding] = []
    before: list[SelectorTerms] = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            continue
        name, at = entry["name"], file.at("variants", index)
        if any(name == other.name for other in variants):
            place = repo_layout.place(file.at("variants", index, "name"))
            findings.append(NOT_RENDERED.refusal(f"duplicate variant {name}", place))
            continue
        own, unknown = nodes_of(
            entry.get("nodes"), file.at("variants", index, "nodes"), repo_layout, facts
        )
        findings += unknown
        terms = without(own, before)
        absent = not own
        if own and terms is not None and not terms:
            message = (
                f"variant {name} never selects a node: earlier variants select them all; move it "
                "up, or narrow them"
            )
            findings.append(NO_NODE.refusal(message, repo_layout.place(at)))
            absent = True
        if terms is None or len(terms) > MOST_TERMS:
            findings.append(too_many(name, repo_layout.place(at)))
            terms, absent = (), True
        before.append(own)
        variants.append(_variant(entry, at, terms, absent=absent))
    return variants or [ONLY], findings


def _variant(
    entry: Mapping[str, Any], at: Pointer, terms: SelectorTerms, *, absent: bool
) -> Variant:
    values = entry.get("values")
    required = entry.get("requiredForWork")
    return Variant(
        entry["name"],
        at,
        terms,
        values if isinstance(values, Mapping) else {},
        entry.get("patches"),
        never=entry.get("deploy") == "never",
        absent=absent,
        required_for_work=required if isinstance(required, bool) else None,
    )


def nodes_of(
    nodes: Any, at: Pointer, repo_layout: Layout, facts: ClusterFacts
) -> tuple[SelectorTerms, list[Finding]]:
    """The nodes of pools, with labels, or (both) with labels in pools; all nodes without a
    selection.

    A pool of another cluster is empty here; an unknown one is a finding.
    """
    if not isinstance(nodes, Mapping):
        return EVERYWHERE, []
    match = layout.requirements(nodes.get("match"))
    if "pool" not in nodes:
        return (match,), []
    here = {pool.name: pool.match for pool in facts.pools}
    everywhere = {
        name for cluster in repo_layout.clusters.values() for name in cluster.section("pools")
    }
    pool_names = layout.texts(nodes["pool"])
    findings = []
    for name in pool_names:
        if name not in everywhere:
            hint = (
                layout.did_you_mean(name, everywhere)
                or "; declare it under `pools:` of a clusters/*.yaml"
            )
            place = repo_layout.place(Pointer(at.file, at.document, (*at.path, "pool")))
            findings.append(UNDEFINED_NAME.refusal(f"there is no pool {name}{hint}", place))
    return _simplified((*here[name], *match) for name in pool_names if name in here), findings


def without(own: SelectorTerms, before: Iterable[SelectorTerms]) -> SelectorTerms | None:
    """The nodes of `own` that are in none of `before`; None if that requires too many terms.

    The negation of an AND is an OR of the negated parts, so each earlier term multiplies;
    contradictions and terms within another one are dropped.
    """
    terms = _simplified(own)
    for earlier in (term for terms_before in before for term in terms_before):
        terms = _simplified(
            (*term, _negated(requirement)) for term in terms for requirement in earlier
        )
        if len(terms) > _BLOW_UP:
            return None
    return terms


def too_many(name: str, place: Place) -> Finding:
    """The finding for a variant whose affinity would be too long."""
    advice = "give its nodes a common pool label"
    return INVALID_AFFINITY.refusal(
        f"variant {name} needs more than {MOST_TERMS} affinity terms; {advice}", place
    )


def place_on(daemonset: dict[str, Any], variant: Variant) -> TracedTree:
    """The traced DaemonSet of this variant: its name, its label, and its affinity ANDed with that
    of the template.
    """
    if variant.at is None:
        return daemonset
    daemonset = dict(daemonset)
    spec = _child(daemonset, "spec")
    template = _child(spec, "template")
    if variant.name != DEFAULT:
        metadata = _child(daemonset, "metadata")
        name_at = variant.below("name")
        pointers = (name_at,) if name_at else ()
        old = metadata.get("name")
        if isinstance(old, traced_values.TracedScalar):
            metadata["name"] = traced_values.TracedScalar(
                f"{old.value}-{variant.name}", (*pointers, *old.set_by)
            )
        label = traced_values.TracedScalar(variant.name, pointers)
        for owner in (metadata, _child(template, "metadata")):
            _child(owner, "labels")[names.VARIANT] = label
        _child(_child(spec, "selector"), "matchLabels")[names.VARIANT] = label
    if variant.terms != EVERYWHERE:
        affinity = _child(_child(_child(template, "spec"), "affinity"), "nodeAffinity")
        required = _child(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
        own = required.get("nodeSelectorTerms")
        generated = [_written(term, variant) for term in variant.terms]
        required["nodeSelectorTerms"] = (
            [_and(a, b) for a in own for b in generated]
            if isinstance(own, list) and own
            else generated
        )
    return daemonset


def _child(parent: dict[str, Any], key: str) -> dict[str, Any]:
    """A copy of the mapping at the key, which replaces it; a new one if it is missing."""
    old = parent.get(key)
    parent[key] = dict(old) if isinstance(old, dict) else {}
    child: dict[str, Any] = parent[key]
    return child


def _and(own: Any, generated: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(own, dict) or not own:
        return {}  # an empty term matches no node, and must stay empty
    expressions = own.get("matchExpressions")
    return {
        **own,
        "matchExpressions": [
            *(expressions if isinstance(expressions, list) else ()),
            *generated["matchExpressions"],
        ],
    }


def _written(term: Iterable[Requirement], variant: Variant) -> dict[str, Any]:
    expressions = [
        {"key": r.key, "operator": r.operator} | ({"values": list(r.values)} if r.values else {})
        for r in term
    ]
    tree: dict[str, Any] = traced_values.set_by(
        {"matchExpressions": expressions}, *((variant.at,) if variant.at else ())
    )
    return tree


def _negated(requirement: Requirement) -> Requirement:
    opposite = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}
    return Requirement(requirement.key, opposite[requirement.operator], requirement.values)


class _Values(msgspec.Struct, frozen=True):
    """The allowed values of a key: these or (`cofinite`) all others, and whether it may be
    absent.
    """

    values: frozenset[str]
    cofinite: bool
    absent: bool

    def __and__(self, other: _Values) -> _Values:
        absent = self.absent and other.absent
        if self.cofinite and other.cofinite:
            return _Values(self.values | other.values, cofinite=True, absent=absent)
        if self.cofinite:
            return _Values(other.values - self.values, cofinite=False, absent=absent)
        return _Values(
            self.values - other.values if other.cofinite else self.values & other.values,
            cofinite=False,
            absent=absent,
        )

    def __bool__(self) -> bool:
        return self.cofinite or self.absent or bool(self.values)


_ANY = _Values(frozenset(), cofinite=True, absent=True)


def _values(requirement: Requirement) -> _Values:
    named = frozenset(requirement.values)
    match requirement.operator:
        case "In":
            return _Values(named, cofinite=False, absent=False)
        case "NotIn":
            return _Values(named, cofinite=True, absent=True)
        case "Exists":
            return _Values(frozenset(), cofinite=True, absent=False)
        case _:
            return _Values(frozenset(), cofinite=False, absent=True)


def _requirements(key: str, allowed: _Values) -> tuple[Requirement, ...]:
    """The minimal requirements for the allowed values. Intersections never result in `some values,
    or absent`, which would need an OR.
    """
    values = tuple(sorted(allowed.values))
    if not allowed.cofinite:
        return (Requirement(key, "In", values),) if values else (Requirement(key, "DoesNotExist"),)
    exists = () if allowed.absent else (Requirement(key, "Exists"),)
    return (*exists, Requirement(key, "NotIn", values)) if values else exists


def _simplified(terms: Iterable[tuple[Requirement, ...]]) -> SelectorTerms:
    """Shorter terms for the same nodes: one condition per key, no empty term, no term within
    another one.
    """
    merged: list[dict[str, _Values]] = []
    for term in terms:
        allowed: dict[str, _Values] = {}
        for requirement in term:
            allowed[requirement.key] = allowed.get(requirement.key, _ANY) & _values(requirement)
        if all(allowed.values()) and allowed not in merged:
            merged.append({key: value for key, value in allowed.items() if value != _ANY})
    kept = [
        term
        for i, term in enumerate(merged)
        if not any(_holds(o, term) for j, o in enumerate(merged) if _before(i, j, merged))
    ]
    return tuple(
        tuple(r for key, allowed in term.items() for r in _requirements(key, allowed))
        for term in kept
    )


def _before(i: int, j: int, terms: list[dict[str, _Values]]) -> bool:
    """Whether term j may replace term i: any other term, but the first of two equal ones is
    kept.
    """
    return i != j and (terms[i] != terms[j] or j < i)


def _holds(outer: Mapping[str, _Values], inner: Mapping[str, _Values]) -> bool:
    """Whether the outer term includes every node of the inner one."""
    return all(
        (inner.get(key, _ANY) & allowed) == inner.get(key, _ANY) for key, allowed in outer.items()
    )
