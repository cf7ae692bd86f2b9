"""DS306 and DS318: required node affinity that the API server rejects, or that matches no node or
nearly all nodes.

A node must match one term (OR), and all expressions of the term (AND). Sources:
https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity and
ValidateNodeSelector in pkg/apis/core/validation/validation.go of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gitops_ds.checks.admission import label_selectors, object_names
from gitops_ds.checks.advice import scheduling
from gitops_ds.checks.advice.scheduling import PREFERRED, REQUIRED
from gitops_ds.checks.engine.rule import (
    POD,
    Spec,
    Violation,
    of_daemonsets,
    pod_specs,
    rule,
    section,
)
from gitops_ds.core.finding import Severity, advice
from gitops_ds.core.objects import Body, Path
from gitops_ds.core.sources.bundle import Requirement
from gitops_ds.kube.apimachinery import label_selector
from gitops_ds.source.rules import INVALID_AFFINITY

_NAME: Final = "metadata.name"
_BY_FIELD: Final = "use matchFields of nodeAffinity, or the label kubernetes.io/hostname"
_COMPARING: Final = frozenset(("Gt", "Lt"))


@rule(INVALID_AFFINITY)
def terms_can_be_meant(body: Body) -> Iterator[Violation]:
    """The number of values of each operator, valid keys, and at least one term."""
    for path, spec in pod_specs(body):
        if not spec.get("affinity"):
            continue
        affinity = section(section(spec.get("affinity")).get("nodeAffinity"))
        way = (*path, "affinity", "nodeAffinity")
        required = affinity.get(REQUIRED)
        if required:
            at = (*way, REQUIRED, "nodeSelectorTerms")
            terms = required.get("nodeSelectorTerms") or ()
            if not terms:
                yield Violation(
                    at, "nodeSelectorTerms is empty: add a term, or remove the affinity"
                )
            for index, term in enumerate(terms):
                yield from _term((*at, index), section(term), values_too=True)
        for index, wish in enumerate(affinity.get(PREFERRED) or ()):
            place = (*way, PREFERRED, index)
            yield from _weight(place, section(wish))
            yield from _term(
                (*place, "preference"), section(section(wish).get("preference")), values_too=False
            )
        for field in ("podAffinity", "podAntiAffinity"):
            yield from _among_pods(
                (*path, "affinity", field), section(section(spec.get("affinity")).get(field))
            )


def _weight(place: Path, wish: Spec) -> Iterator[Violation]:
    if not 0 < (wish.get("weight") or 0) <= 100:
        yield Violation(
            (*place, "weight"), f"the weight is {wish.get('weight')}: must be between 1 and 100"
        )


def _among_pods(way: Path, affinity: Spec) -> Iterator[Violation]:
    for index, term in enumerate(affinity.get(REQUIRED) or ()):
        yield from _pod_term((*way, REQUIRED, index), section(term))
    for index, wish in enumerate(affinity.get(PREFERRED) or ()):
        place = (*way, PREFERRED, index)
        yield from _weight(place, section(wish))
        yield from _pod_term(
            (*place, "podAffinityTerm"), section(section(wish).get("podAffinityTerm"))
        )


def _pod_term(place: Path, term: Spec) -> Iterator[Violation]:
    if not object_names.qualified(str(term.get("topologyKey") or "")):
        yield Violation(
            (*place, "topologyKey"), f'"{term.get("topologyKey")}" is not a valid node label key'
        )
    for index, name in enumerate(term.get("namespaces") or ()):
        if not object_names.label(name or ""):
            yield Violation(
                (*place, "namespaces", index), f'"{name}" is not a valid namespace name'
            )
    for field in ("labelSelector", "namespaceSelector"):
        yield from label_selectors.selector((*place, field), term.get(field))
        yield from object_names.pairs(
            (*place, field, "matchLabels"), section(section(term.get(field)).get("matchLabels"))
        )
    yield from label_selectors.label_keys(place, term)


def _term(way: Path, term: Spec, *, values_too: bool) -> Iterator[Violation]:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        at, values = (*way, "matchExpressions", index), section(expression).get("values") or ()
        operator = section(expression).get("operator")
        yield from label_selectors.number_of_values(at, operator, len(values))
        if operator in _COMPARING and len(values) != 1:
            yield Violation(at, f"operator {operator} requires one value, not {len(values)}")
        if not object_names.qualified(str(section(expression).get("key"))):
            yield Violation((*at, "key"), f'"{expression.get("key")}" is not a valid label key')
        for number, value in enumerate(values if values_too else ()):
            if not object_names.label_value(value):
                yield Violation(
                    (*at, "values", number), f'"{value}" is not a valid label value: no node has it'
                )
    for index, expression in enumerate(term.get("matchFields") or ()):
        at, field = (*way, "matchFields", index), section(expression)
        if field.get("key") != "metadata.name":
            yield Violation(
                (*at, "key"), f'matchFields supports only metadata.name, not "{field.get("key")}"'
            )
        if field.get("operator") not in ("In", "NotIn") or len(field.get("values") or ()) != 1:
            yield Violation(at, "matchFields supports only In or NotIn with one value")
        elif not object_names.subdomain(str(field["values"][0] or "")):
            yield Violation((*at, "values", 0), f'"{field["values"][0]}" is not a valid node name')


@rule(advice("DS318", Severity.ERROR, "node name is matched as a label"))
@of_daemonsets
def names_are_fields(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """metadata.name is a field of a node, which matchExpressions do not match."""
    for key in section(pod.get("nodeSelector")):
        if key == _NAME:
            yield Violation(
                (*POD, "nodeSelector", key),
                "nodeSelector matches labels only, and metadata.name is not a label: " + _BY_FIELD,
            )
    if not pod.get("affinity"):
        return
    for way, term in scheduling.required_terms(pod):
        for index, expression in enumerate(term.get("matchExpressions") or ()):
            if section(expression).get("key") == _NAME:
                yield Violation(
                    (*way, "matchExpressions", index, "key"),
                    "matchExpressions match labels only, and metadata.name is not a label; "
                    + _BY_FIELD,
                )


@rule(advice("DS306", Severity.WARNING, "node affinity matches no node"))
@of_daemonsets
def terms_can_be_met(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
    """Terms that match no node, and terms that together exclude none."""
    if not pod.get("affinity"):
        return
    chosen = [
        Requirement(key, "In", (str(value),))
        for key, value in section(pod.get("nodeSelector")).items()
    ]
    terms = scheduling.required_terms(pod)
    for way, term in terms:
        conditions = [
            label_selector.from_body(section(expression))
            for expression in term.get("matchExpressions") or ()
        ]
        if not conditions and not term.get("matchFields"):
            yield Violation(way, "an empty term matches no node: remove it, or add expressions")
            continue
        wrong = next(
            (
                condition
                for condition in conditions
                if condition.operator in _COMPARING
                and len(condition.values) == 1
                and not label_selector.is_valid(condition)
            ),
            None,
        )
        if wrong:
            yield Violation(
                way,
                f"{wrong.operator} requires an integer, not {wrong.values[0]}: no node matches",
            )
        elif key := _contradiction([*chosen, *conditions]):
            yield Violation(way, f"no node can match all expressions on the label {key}")
    if len(terms) > 1 and all(_only_refuses(term) for _, term in terms):
        message = (
            "a node must match only one of the terms, and every node excluded by one term is "
            "included by another. Merge the expressions into one term"
        )
        yield Violation(terms[0][0][:-1], message)


def _only_refuses(term: Spec) -> bool:
    conditions = term.get("matchExpressions") or ()
    return (
        bool(conditions)
        and not term.get("matchFields")
        and all(condition.get("operator") in ("NotIn", "DoesNotExist") for condition in conditions)
    )


def _contradiction(conditions: Iterable[Requirement]) -> str:
    """The label with contradictory requirements; empty if a node can match all of them."""
    by_key: dict[str, list[Requirement]] = {}
    for condition in conditions:
        by_key.setdefault(condition.key, []).append(condition)
    return next(
        (
            key
            for key, requirements in by_key.items()
            if len(requirements) > 1 and not _possible(key, requirements)
        ),
        "",
    )


def _possible(key: str, requirements: list[Requirement]) -> bool:
    if label_selector.all_match(requirements, {}):
        return True
    listed = [
        set(requirement.values) for requirement in requirements if requirement.operator == "In"
    ]
    if listed:
        return any(
            label_selector.all_match(requirements, {key: value})
            for value in set.intersection(*listed)
        )
    if any(requirement.operator == "DoesNotExist" for requirement in requirements):
        return False  # another requirement needs the label, otherwise all would match without it
    above, below = (_bounds(requirements, operator) for operator in ("Gt", "Lt"))
    return not above or not below or max(above) + 1 < min(below)


def _bounds(requirements: list[Requirement], operator: str) -> list[int]:
    """The numbers that a label is compared with."""
    numbers = (
        label_selector.integer(requirement.values[0])
        for requirement in requirements
        if requirement.operator == operator and requirement.values
    )
    return [number for number in numbers if number is not None]
