"""Rules of a repository's own (DS901): a JSON Schema that objects have to meet. Nothing is ever fetched for one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from gitops_ds.model.bundle import Custom, Manifest
from gitops_ds.model.finding import Severity
from gitops_ds.model.objects import Body, Path, show_path
from gitops_ds.validate.rule import advice

RULE: Final = advice("DS901", Severity.ERROR, "objects meet the repository's own rules", lambda _: ())
_MOST_COMPLAINTS: Final = 5
_INSIDE: Final = "`$ref` leads to places inside of it only, and not in circles"


@dataclass(frozen=True, slots=True)
class Rules:
    """A repository's rules, each with what judges by it; `faults` are those that nobody can judge by, each with why."""

    ready: tuple[tuple[Custom, Any], ...]
    faults: tuple[tuple[Custom, str], ...]


def read(custom: Iterable[Custom]) -> Rules:
    """The rules, ready to judge."""
    ready, faults = [], []
    for rule in custom:
        fault = _fault(rule)
        if fault:
            faults.append((rule, fault))
        else:
            ready.append((rule, _validator(rule)))
    return Rules(tuple(ready), tuple(faults))


def check(rules: Rules, manifest: Manifest) -> Iterator[tuple[Custom, Path, str]]:
    """What the repository's rules have against an object. A rule with words of its own says them once."""
    for rule, validator in rules.ready:
        if manifest.key.kind not in rule.kinds:
            continue
        for error in islice(_errors(validator, manifest.body), 1 if rule.message else _MOST_COMPLAINTS):
            path, message = error
            where = show_path(path) or "the object"
            yield rule, path, f"{rule.name}: {rule.message or f'{where}: {_short(message)}'}"


def _errors(validator: Any, body: Body) -> Iterator[tuple[Path, str]]:
    import referencing.exceptions

    try:
        for error in validator.iter_errors(body):
            yield tuple(error.absolute_path), error.message
    except (referencing.exceptions.Unresolvable, RecursionError):
        yield (), f"the schema can't be followed: {_INSIDE}"


def _fault(rule: Custom) -> str:
    import jsonschema

    try:
        _validator(rule).check_schema(rule.schema)
    except jsonschema.SchemaError as bad:
        return f"this is no JSON schema: {_short(bad.message)}"
    return ""


def _validator(rule: Custom) -> Any:
    """Imported here: 80 ms that a repository without such rules need not pay."""
    import referencing
    from jsonschema import Draft202012Validator

    return Draft202012Validator(rule.schema, registry=referencing.Registry())


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:197]}..."
