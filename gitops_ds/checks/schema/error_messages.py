"""Messages and fixes for the violations that jsonschema reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from gitops_ds.checks.engine import phrases
from gitops_ds.checks.engine.rule import at
from gitops_ds.checks.schema import fastcheck
from gitops_ds.core.finding import Fix, Mend, RuleDefinition, Severity, refused
from gitops_ds.core.objects import Path, show_path
from gitops_ds.core.values import replace
from gitops_ds.source.rules import INVALID_VALUE, MISSING_FIELD, UNKNOWN_FIELD, WRONG_TYPE

DUPLICATE: Final = refused("DS414", "duplicate name, port or mount path")

_REFERENCE = "#/definitions/"


class SchemaViolation(msgspec.Struct, frozen=True):
    """A violation of a schema: the rule, the path of the value (of its key, if `on_key`), a message
    and a fix. `refused`: blocking.
    """

    rule: RuleDefinition
    path: Path
    message: str
    on_key: bool = False
    fix: Fix | None = None
    severity: Severity = Severity.ERROR
    refused: bool = True


def violations(
    definitions: Mapping[str, Any], name: str, body: Any, checks: fastcheck.Checks
) -> Iterator[SchemaViolation]:
    """All violations of a definition by a body, in the order of the body; empty if jsonschema
    accepts it.
    """
    for error in validator(definitions, name).iter_errors(body):
        path: Path = tuple(error.absolute_path)
        match error.validator:
            case "unknown":
                unknown = _Unknown(path, error.instance, error.validator_value, body)
                yield unknown.problem(_belongs(definitions, name, unknown, checks), checks)
            case "missing" if path[:1] == ("status",):
                pass  # the API server replaces the status of a manifest and requires nothing of it
            case "missing":
                field = str(error.message)
                yield SchemaViolation(
                    MISSING_FIELD, path, f'"{field}" is missing{_where(path)}: it is required'
                )
            case "enum":
                yield _not_among(path, error.instance, error.validator_value)
            case "type":
                yield _wrong_type(path, error.instance, error.validator_value)
            case "twin":
                yield SchemaViolation(
                    DUPLICATE, path, f"{show_path(path)}: {error.message}; keep one of them"
                )
            case _:
                yield SchemaViolation(WRONG_TYPE, path, f"{_name(path)} {error.message}")


def validator(definitions: Mapping[str, Any], name: str) -> Any:
    """The jsonschema validator of a definition, with the API server's handling of null, formats and
    duplicates.
    """
    return _validator()({"$ref": _REFERENCE + name, "definitions": definitions})


def _where(path: Path) -> str:
    return f" in {show_path(path)}" if path else ""


def _name(path: Path) -> str:
    return show_path(path) or "the document"


def _not_among(path: Path, value: Any, allowed: list[Any]) -> SchemaViolation:
    if not isinstance(value, str):
        return replace(_wrong_type(path, value, "string"), fix=None)
    hint = phrases.did_you_mean(value, [choice for choice in allowed if choice])
    same = [choice for choice in allowed if choice and choice.lower() == value.lower()]
    fix = Fix(f"write {same[0]}", (Mend(path, same[0]),), safe=True) if len(same) == 1 else None
    return SchemaViolation(
        INVALID_VALUE,
        path,
        f'{_name(path)} is "{value}", not {phrases.one_of(allowed)}{hint}',
        fix=fix,
    )


def _wrong_type(path: Path, value: Any, kind: Any) -> SchemaViolation:
    hint, fix = "", None
    kinds = kind if isinstance(kind, list) else [kind]
    if "string" in kinds and isinstance(value, bool | int | float):
        written = as_text(value)
        hint = _with_quotes(written)
        # A float has lost digits of the source (1.10), so the fix is not safe without the source.
        fix = quoted(path, written, safe=not isinstance(value, float))
    elif isinstance(value, str) and _reads_as(value) & set(kinds):
        hint = f": write {value}, without quotes"
        plain = value == "true" if value in ("true", "false") else int(value)
        fix = (
            Fix("remove the quotes", (Mend(path, plain),), safe=True)
            if as_text(plain) == value
            else None
        )
    return SchemaViolation(
        WRONG_TYPE,
        path,
        f"{_name(path)} must be {phrases.wanted(kind)}, not {phrases.shown(value)}{hint}",
        fix=fix,
    )


def as_text(value: bool | int | float) -> str:
    """The string of a value that is not a string."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_quotes(text: str) -> str:
    return f': write "{text}", with quotes'


def as_written(violation: SchemaViolation, text: str) -> SchemaViolation:
    """The violation of a value that requires quotes, with message and fix of the source text: `yes`
    and `0644`, not true and 420.
    """
    assert violation.fix is not None
    head = violation.message.removesuffix(_with_quotes(violation.fix.mends[0].value))
    return replace(
        violation,
        message=head + _with_quotes(text),
        fix=quoted(violation.path, text, safe=True),
    )


def quoted(path: Path, text: str, *, safe: bool) -> Fix:
    """The fix that quotes a string which YAML reads as another type. Its words do not contain the
    value, which can be a secret.
    """
    return Fix("quote it", (Mend(path, text),), safe)


def _reads_as(text: str) -> set[str]:
    if text in ("true", "false"):
        return {"boolean"}
    return {"integer", "number"} if text.removeprefix("-").isdecimal() else set()


# A place of a field: the path of the object that has it, with `[]` after lists.
_Home = tuple[str, ...]


class _Unknown(msgspec.Struct, frozen=True):
    """An unknown field, its value, the known fields of its object, and the whole body."""

    path: Path
    value: Any
    fields: Mapping[str, Any]
    body: Any

    def problem(self, home: _Home | None, checks: fastcheck.Checks) -> SchemaViolation:
        field = str(self.path[-1])
        near = phrases.nearest(field, self.fields)
        hint, fix = "", None
        if "matchLabels" in self.fields and isinstance(self.value, str):
            hint = ": it belongs under matchLabels, so indent it"  # a label's key is any name
        elif near:
            hint, fix = f': did you mean "{near}"?', self._renamed(near, checks)
        elif home is not None:
            named = ".".join(step.removesuffix("[]") for step in home) or "the top level"
            hint, fix = f": it belongs under {named}", self._moved(home)
        message = f'unknown field "{field}"{_where(self.path[:-1])}{hint}'
        return SchemaViolation(UNKNOWN_FIELD, self.path, message, on_key=True, fix=fix)

    def _renamed(self, near: str, checks: fastcheck.Checks) -> Fix | None:
        """The fix that renames the field; safe if exactly one known field is similar."""
        if near in at(self.body, self.path[:-1]) or not checks.passes(
            self.fields[near], self.value
        ):
            return None
        close = [
            field for field in self.fields if phrases.distance(str(self.path[-1]), field) <= _SLIP
        ]
        return Fix(f"write {near}", (Mend(self.path, key=near),), safe=close == [near])

    def _moved(self, home: _Home) -> Fix | None:
        """The fix that moves the field to the only object that has it, if the field is absent
        there.
        """
        way = self.way(home)
        if way is None or self.value is None or at(self.body, (*way, self.path[-1])) is not None:
            return None
        place = (*way, self.path[-1])
        return Fix(f"write it as {show_path(place)}", (Mend(place, self.value), Mend(self.path)))

    def way(self, home: _Home) -> Path | None:
        """The path of the object that owns the field in this body; in a list, that of the entry
        with the unknown field. None if absent.
        """
        way: Path = ()
        for step in home:
            way = (*way, step.removesuffix("[]"))
            if step.endswith("[]"):
                inside = self.path[: len(way) + 1]
                if inside[:-1] != way or not isinstance(inside[-1], int):
                    return None
                way = inside
        return way if isinstance(at(self.body, way), Mapping) else None


# The maximum edit distance of a typo.
_SLIP = 2


def _belongs(
    definitions: Mapping[str, Any], root: str, unknown: _Unknown, checks: fastcheck.Checks
) -> _Home | None:
    """The object of the kind that has a field of this name and type: preferably an existing one,
    then the one with the longest common path, then the shortest path.
    """
    if phrases.nearest(str(unknown.path[-1]), unknown.fields):
        return None
    field, parent = (
        unknown.path[-1],
        tuple(step for step in unknown.path[:-1] if isinstance(step, str)),
    )
    best: tuple[bool, int, int, _Home] | None = None
    for home, name in _homes(definitions, root):
        schema = definitions[name].get("properties", {}).get(field)
        steps = tuple(step.removesuffix("[]") for step in home)
        if schema is None or steps == parent or not checks.passes(schema, unknown.value):
            continue
        shared = sum(1 for _ in _common(steps, parent))
        rank = (unknown.way(home) is None, -shared, len(home), home)
        best = min(best, rank) if best else rank
    return best[-1] if best else None


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> Iterator[str]:
    for mine, yours in zip(one, other, strict=False):
        if mine != yours:
            return
        yield mine


def _homes(definitions: Mapping[str, Any], root: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The objects of a kind up to a depth of six as (path, definition), breadth first, each
    definition once.
    """
    todo: list[tuple[tuple[str, ...], str]] = [((), root)]
    seen = {root}
    while todo:
        home, name = todo.pop(0)
        yield home, name
        for field, schema in definitions[name].get("properties", {}).items():
            items = schema.get("items", {})
            inner = schema.get("$ref") or items.get("$ref")
            target = inner.removeprefix(_REFERENCE) if inner else ""
            if target and field != "status" and target not in seen and len(home) < 6:
                seen.add(target)
                todo.append(((*home, field + "[]" * bool(items)), target))


@cache
def _validator() -> Any:
    """A validator that treats null as an absent field, as the API server does. The import takes 80
    ms, so it is deferred.
    """
    from jsonschema import Draft202012Validator, validators

    extend: Any = validators.extend
    return extend(
        Draft202012Validator,
        {
            "properties": _properties,
            "additionalProperties": _additional,
            "required": _required,
            "type": _type,
            "format": _format,
            fastcheck.LIST_KEYS: _twins,
        },
    )


def _error(message: str, **attributes: Any) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message, **attributes)


def _properties(validator: Any, properties: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "object"):
        for name, schema in properties.items():
            if instance.get(name) is not None:
                yield from validator.descend(instance[name], schema, path=name, schema_path=name)


def _additional(validator: Any, rest: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    properties = schema.get("properties", {})
    for name, value in instance.items():
        if name in properties:
            continue
        if rest is False:
            yield _error(
                "", validator="unknown", validator_value=properties, instance=value, path=(name,)
            )
        elif value is not None:
            yield from validator.descend(value, rest, path=name)


def _required(validator: Any, names: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "object"):
        for name in names:
            if instance.get(name) is None:
                yield _error(name, validator="missing")


def _type(validator: Any, kinds: Any, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import Draft202012Validator

    yield from Draft202012Validator.VALIDATORS["type"](validator, kinds, instance, schema)
    if kinds == ["integer", "string"] and not isinstance(instance, str):  # an IntOrString
        yield from _format(validator, "int32", instance, schema)


def _format(_validator: Any, name: str, instance: Any, _schema: Any) -> Iterator[Any]:
    if isinstance(instance, str):
        if name == "date-time" and not fastcheck.is_time(instance):
            yield _error(
                f"is not a valid date-time: {phrases.shown(instance)}; write 2026-01-31T12:00:00Z"
            )
        if name == "byte" and not fastcheck.is_base64(instance):
            yield _error("is not valid base64: encode it, or use stringData")
    elif (
        # An integer of more than 64 bits is a float, as in JSON.
        isinstance(instance, (int, float))
        and name in ("int32", "int64")
        and not fastcheck.in_range(name, instance)
    ):
        message = f"is too large: {instance} does not fit in {name[3:]} bits"
        yield _error(message, validator="format")


def _twins(validator: Any, keys: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "array"):
        for first, again in fastcheck.twins(instance, tuple(keys)):
            entry = instance[again]
            named = (
                " and ".join(f"{key} {entry[key]}" for key in keys if key in entry)
                if keys
                else str(entry)
            )
            yield _error(
                f"{named} is duplicated, as in entry {first}",
                validator="twin",
                path=(again,),
            )
