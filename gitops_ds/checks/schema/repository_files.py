"""Validation of a repository's gitops-ds files by the closed schemas in schemas/."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path as Folder
from pathlib import PurePosixPath
from typing import Any

import orjson

from gitops_ds.checks.engine import phrases
from gitops_ds.checks.schema.error_messages import SchemaViolation
from gitops_ds.core.finding import Finding
from gitops_ds.core.objects import Path, show_path
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.kube.apimachinery import json_schema
from gitops_ds.source.rules import INVALID_VALUE, MISSING_FIELD, UNKNOWN_FIELD, WRONG_TYPE
from gitops_ds.yaml import parser
from gitops_ds.yaml.documents import Document

_SCHEMAS = Folder(__file__).parents[2] / "schemas"
_BY_NAME = {
    "variants.yaml": "variants",
    "rollout.yaml": "rollout",
    "source.yaml": "source",
    "agent.yaml": "agent",
}


def schema_for(path: PurePosixPath) -> str | None:
    """The name of the schema of a file, by its path; None for other files."""
    parts = path.parts
    if path.suffix not in (".yaml", ".yml"):
        return None
    match parts:
        case ("gitops-ds.yaml",):
            return "gitops-ds"
        case ("clusters", _):
            return "cluster"
        case ("environments", _):
            return "environment"
        case ("agents", _, name) if name in _BY_NAME:
            return _BY_NAME[name]
        case ("agents", _, "values", _):
            return "values"
        case ("agents", _, "patches", _):
            return "patches"
        case _:
            return None


@cache
def schema(name: str) -> Mapping[str, Any]:
    """The schema of a gitops-ds file by name: `cluster`, `rollout`, `settings`."""
    document: Mapping[str, Any] = orjson.loads((_SCHEMAS / f"{name}.schema.json").read_bytes())
    return document


def _referenced(uri: str) -> Mapping[str, Any]:
    """The schema of another file: `rollout` of a cluster has the keys of rollout.yaml."""
    return schema(PurePosixPath(uri).name.removesuffix(".schema.json"))


def check_repository(snapshot: SourceTree) -> Iterator[Finding]:
    """The findings of the gitops-ds files of a repository, which has a gitops-ds.yaml, clusters/ or
    environments/ of gitops-ds.

    Without gitops-ds.yaml a folder `agents/x` counts only if the names of its files include another
    gitops-ds file.
    """
    ours = PurePosixPath("gitops-ds.yaml") in snapshot.files
    for path, data in sorted(snapshot.files.items()):
        name = schema_for(path)
        if name is None or (not ours and not _is_likely(path, data)):
            continue
        for document in parser.read(str(path), data).documents:
            yield from check_own(name, document, str(path), data)


def check_own(kind_of_file: str, parsed: Document, file: str, data: bytes) -> Iterator[Finding]:
    """The violations of the schema `kind_of_file` by a document, each with line and column."""
    for problem in problems(kind_of_file, parsed.value):
        start, end = parser.span(file, data, parsed.index, problem.path, key=problem.on_key)
        yield problem.rule.refusal(problem.message, start, path=problem.path, end=end)


def problems(kind_of_file: str, value: Any) -> Iterator[SchemaViolation]:
    """The violations as in `check_own`, but without places: for documents outside of the
    repository, such as the settings in a ConfigMap or the state.
    """
    judge = json_schema.validator(schema(kind_of_file), _referenced)
    for error in sorted(
        judge.iter_errors(value),
        key=lambda error: list(map(str, error.absolute_path)),
    ):
        yield from _violations_of(error)


def _is_likely(path: PurePosixPath, data: bytes) -> bool:
    """Whether a file in a repository without gitops-ds.yaml is a gitops-ds file, not a manifest in
    a folder of the same name.
    """
    return b"apiVersion" not in data or path.name in _BY_NAME


def _unknown_keys(error: Any, path: Path) -> Iterator[SchemaViolation]:
    properties = error.schema.get("properties", {})
    inside = f" in {show_path(path)}" if path else ""
    for key in error.instance:
        if key not in properties:
            hint = (
                phrases.did_you_mean(str(key), properties)
                or f": known are {phrases.one_of(properties)}"
            )
            yield SchemaViolation(
                UNKNOWN_FIELD, (*path, key), f'unknown key "{key}"{inside}{hint}', on_key=True
            )


def _missing_keys(error: Any, path: Path) -> Iterator[SchemaViolation]:
    inside = f" in {show_path(path)}" if path else ""
    for key in error.validator_value:
        if key not in error.instance:
            yield SchemaViolation(
                MISSING_FIELD, path, f'"{key}" is missing{inside}: it is required'
            )


def _violations_of(error: Any) -> Iterator[SchemaViolation]:
    path: Path = tuple(error.absolute_path)
    name, value = show_path(path) or "the file", phrases.shown(error.instance)
    rule = INVALID_VALUE
    match error.validator:
        case "additionalProperties":
            yield from _unknown_keys(error, path)
            return
        case "required":
            yield from _missing_keys(error, path)
            return
        case "anyOf" | "oneOf" if error.context:
            yield from _violations_of(_nearest(error))
            return
        case "type":
            rule = WRONG_TYPE
            message = f"{name} must be {phrases.wanted(error.validator_value)}, not {value}"
        case "enum" | "const":
            allowed = (
                error.validator_value if error.validator == "enum" else [error.validator_value]
            )
            hint = phrases.did_you_mean(str(error.instance), map(str, allowed))
            message = f"{name} is {value}, not {phrases.one_of(allowed)}{hint}"
        case "pattern" | "format":
            meant = error.schema.get(
                "description", f"a string that matches {error.schema.get('pattern')}"
            )
            message = f"{name} is {value}: write {_first_sentence(meant)}"
        case _:
            message = f"{name}: {_first_sentence(error.schema.get('description', error.message))}"
    yield SchemaViolation(rule, path, message)


def _nearest(error: Any) -> Any:
    """The alternative that the value matches best: the same type first, then the deepest
    violation.
    """
    return max(
        error.context,
        key=lambda cause: (
            cause.validator != "type" or len(cause.absolute_path) > len(error.absolute_path),
            len(cause.path),
        ),
    )


def _first_sentence(text: str) -> str:
    sentence = text.split(". ", 1)[0].rstrip(".")
    return sentence[:1].lower() + sentence[1:]
