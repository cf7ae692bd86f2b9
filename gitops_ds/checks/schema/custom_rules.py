"""Custom rules of a repository (DS901): a JSON Schema for objects. Remote references are not
downloaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from gitops_ds.checks.engine.rule import Violation
from gitops_ds.core.finding import Severity, advice
from gitops_ds.core.objects import show_path
from gitops_ds.core.sources.bundle import Custom, Manifest
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import json_schema

RULE: Final = advice("DS901", Severity.ERROR, "object violates a custom rule")
_MOST_COMPLAINTS: Final = 5


class Rules(msgspec.Struct, frozen=True):
    """The custom rules of a repository, each with its validator; `faults` are unusable rules, each
    with the reason.
    """

    ready: tuple[tuple[Custom, Any], ...]
    faults: tuple[tuple[Custom, str], ...]

    def without(self, rule: Custom) -> Rules:
        """The same rules without one of them."""
        return replace(self, ready=tuple(pair for pair in self.ready if pair[0] is not rule))


class GaveNoVerdict(Exception):
    """A rule whose schema failed on an object; the message states the reason."""

    def __init__(self, rule: Custom, message: str) -> None:
        super().__init__(message)
        self.rule = rule


def read(custom: Iterable[Custom]) -> Rules:
    """The compiled rules of a repository."""
    ready, faults = [], []
    for rule in custom:
        fault = _fault(rule)
        if fault:
            faults.append((rule, fault))
        else:
            ready.append((rule, json_schema.validator(rule.schema)))
    return Rules(tuple(ready), tuple(faults))


def check(rules: Rules, manifest: Manifest) -> Iterator[tuple[Custom, Violation]]:
    """The violations of the custom rules by an object. A rule with its own message reports it once.

    Raises GaveNoVerdict for a rule whose schema fails on the object; `Rules.without` removes the
    rule.
    """
    for rule, judge in rules.ready:
        if manifest.key.kind not in rule.kinds:
            continue
        try:
            errors = json_schema.errors(
                judge, manifest.body, 1 if rule.message else _MOST_COMPLAINTS
            )
        except json_schema.UnusableSchema as unusable:
            raise GaveNoVerdict(rule, str(unusable)) from None
        for error in errors:
            path = tuple(error.absolute_path)
            where = show_path(path) or "the object"
            text = rule.message or f"{where}: {json_schema.shortened(error.message)}"
            yield rule, Violation(path, f"{rule.name}: {text}")


def _fault(rule: Custom) -> str:
    try:
        json_schema.check_schema(rule.schema)
    except json_schema.UnusableSchema as unusable:
        return str(unusable)
    return ""
