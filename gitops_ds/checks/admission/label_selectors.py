"""Validation of label selectors by the API server.

Source: ValidateLabelSelector in staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/validation and
validateMatchLabelKeysAndMismatchLabelKeys in pkg/apis/core/validation/validation.go of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gitops_ds.checks.admission import object_names
from gitops_ds.checks.engine.rule import Spec, Violation, items, section
from gitops_ds.core.objects import Path


def selector(way: Path, chosen: Any) -> Iterator[Violation]:
    """Violations of a label selector. Source:
    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
    """
    for index, one in enumerate(items(section(chosen).get("matchExpressions"))):
        place = (*way, "matchExpressions", index)
        values, operator = one.get("values") or (), one.get("operator")
        if not object_names.qualified(str(one.get("key") or "")):
            yield Violation((*place, "key"), f'"{one.get("key")}" is not a valid label key')
        yield from number_of_values(place, operator, len(values))
        for number, value in enumerate(values):
            if not object_names.label_value(value or ""):
                yield Violation((*place, "values", number), f'"{value}" is not a valid label value')


def number_of_values(place: Path, operator: Any, number: int) -> Iterator[Violation]:
    """Violations of the operators that require values, or allow none."""
    if operator in ("In", "NotIn") and not number:
        yield Violation(place, f"operator {operator} requires values")
    elif operator in ("Exists", "DoesNotExist") and number:
        yield Violation(
            (*place, "values"),
            f"operator {operator} does not allow values: remove them, or use In or NotIn",
        )


def label_keys(place: Path, term: Spec) -> Iterator[Violation]:
    """Violations of matchLabelKeys and mismatchLabelKeys of an affinity term or a constraint. They
    extend its labelSelector.
    """
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        keys = term.get(field) or ()
        if keys and term.get("labelSelector") is None:
            yield Violation((*place, field), f"{field} require a labelSelector")
            continue
        for index, key in enumerate(keys):
            if not object_names.qualified(str(key or "")):
                yield Violation((*place, field, index), f'"{key}" is not a valid label key')
    chosen = section(term.get("labelSelector"))
    selected = {
        *section(chosen.get("matchLabels")),
        *(expression.get("key") for expression in items(chosen.get("matchExpressions"))),
    }
    both = {*(term.get("matchLabelKeys") or ())} & (
        selected | {*(term.get("mismatchLabelKeys") or ())}
    )
    if both:
        yield Violation(
            (*place, "matchLabelKeys"), f"{', '.join(sorted(map(str, both)))} is required twice"
        )
