"""Checks an agent's values with its params.schema.json, whose `"$ref": "k8s:NAME"` are Kubernetes'
own definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from gitops_ds.apimachinery import json_schema, kubernetes_types, kubernetes_versions
from gitops_ds.model import progress
from gitops_ds.model.finding import Finding, refusal
from gitops_ds.model.objects import show_path
from gitops_ds.render import traced_values, values
from gitops_ds.render.layout import Layout
from gitops_ds.render.traced_values import TracedTree
from gitops_ds.render.values import Parameters

# A Kubernetes definition by name (`io.k8s.api.core.v1.ResourceRequirements`) as a self-contained
# schema; None: not found.
Definition = Callable[[str], Mapping[str, Any] | None]

_MOST_COMPLAINTS: Final = 100

# Findings with the rule of another check have its number.
_RULES = {
    "type": "DS004",
    "enum": "DS006",
    "const": "DS006",
    "required": "DS005",
    "additionalProperties": "DS003",
}


def check(
    declared: Parameters,
    resolved: Mapping[str, TracedTree],
    agent: str,
    repo_layout: Layout,
    definition: Definition,
) -> Iterator[Finding]:
    """The violations of the schema, each at the line of the layer that set the value."""
    if not declared.schema.value:
        return
    instance = {
        name: traced_values.plain(tree)
        for name, tree in resolved.items()
        if name in declared.schema.section("properties")
    }
    progress.at(declared.schema.name)
    try:
        json_schema.check_schema(declared.schema.value)
        judge = json_schema.validator(
            declared.schema.value, lambda uri: _definition(uri, definition)
        )
        errors = json_schema.errors(judge, instance, _MOST_COMPLAINTS)
    except json_schema.UnusableSchema as unusable:
        yield refusal("DS801", str(unusable), repo_layout.place(declared.schema.at(*unusable.path)))
        return
    errors.sort(key=lambda error: [str(step) for step in error.absolute_path])
    for error in errors:
        path = tuple(error.absolute_path)
        rule = _RULES.get(str(error.validator), "DS006")
        if not path and error.validator == "required":
            for name in sorted(set(error.validator_value) - instance.keys()):
                message = (
                    f"agent {agent} has no value for {name}; set it under values/, or a default "
                    "here"
                )
                yield refusal(
                    "DS005",
                    message,
                    repo_layout.place(declared.schema.at("properties", name), key=True),
                )
        elif path:
            pointer = values.place_of(str(path[0]), path[1:], resolved, declared)
            yield refusal(
                rule,
                f"parameter {show_path(path)} of agent {agent}: "
                f"{json_schema.shortened(error.message)}",
                repo_layout.place(pointer),
            )


def missing(declared: Parameters, resolved: Mapping[str, TracedTree]) -> frozenset[str]:
    """Required parameters without a value; `check` returns findings for them."""
    required = declared.schema.value.get("required")
    return frozenset(
        name
        for name in (required if isinstance(required, list) else ())
        if isinstance(name, str) and name not in resolved
    )


def _definition(uri: str, definition: Definition) -> Mapping[str, Any] | None:
    """Resolves `k8s:NAME`, without the network."""
    return definition(uri.removeprefix("k8s:")) if uri.startswith("k8s:") else None


def kubernetes_definitions(versions: Sequence[str]) -> Definition:
    """The definitions of the oldest supported one of these versions, so that a value is valid in
    all of them; else of the newest.
    """

    def definition(name: str) -> Mapping[str, Any] | None:
        supported = [version for version in kubernetes_versions.VERSIONS if version in versions]
        definitions = kubernetes_types.definitions(
            supported[0] if supported else kubernetes_versions.NEWEST
        )
        if name not in definitions:
            return None
        return {"$ref": f"#/definitions/{name}", "definitions": definitions}

    return definition
