"""The values of an agent's parameters, from layers of which the last takes precedence, and their
check with its params.schema.json, whose `"$ref": "k8s:NAME"` are Kubernetes' own definitions.

Precedence: schema default < environment < cluster < the agent's own (environment, then cluster) <
variant. A value replaces the whole parameter, mappings too: a parameter is set in one place and
checked as a whole; a merge would keep hidden keys of lower layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from gitops_ds.core import progress
from gitops_ds.core.finding import Finding
from gitops_ds.core.objects import Path, show_path
from gitops_ds.core.sources.bundle import ClusterFacts, Pointer
from gitops_ds.kube.apimachinery import json_schema, kubernetes_types, kubernetes_versions
from gitops_ds.source import rules
from gitops_ds.source.render import field_path, layout, traced_values
from gitops_ds.source.render.layout import File, Layout
from gitops_ds.source.render.traced_values import TracedTree


class ValuesLayer(msgspec.Struct, frozen=True):
    """Values at a place. `own`: for this agent only, so that an unknown name is a finding."""

    values: Mapping[str, Any]
    at: Pointer
    own: bool = True

    def pointer(self, *path: str | int) -> Pointer:
        """The pointer to a value of this layer."""
        return Pointer(self.at.file, self.at.document, (*self.at.path, *path))


class Parameters(msgspec.Struct, frozen=True):
    """An agent's parameters: names, the schema (empty: none), its defaults by name."""

    names: frozenset[str]
    schema: File

    @property
    def defaults(self) -> dict[str, Any]:
        """The default of each parameter that has one."""
        properties = self.schema.section("properties")
        return {
            name: p["default"]
            for name, p in properties.items()
            if isinstance(p, Mapping) and "default" in p
        }


def read(schema: File, bound: Mapping[str, Any]) -> Parameters:
    """The parameters that a schema and the `bind:` of a source declare."""
    return Parameters(frozenset({*schema.section("properties"), *bound}), schema)


def layers(
    agent: str, cluster: File, environment: File, own: Mapping[str, File], facts: ClusterFacts
) -> list[ValuesLayer]:
    """The layers below a variant's, the weakest first, without the schema's defaults. `own` is
    values/NAME.yaml by NAME.
    """

    def of_agent(file: File) -> ValuesLayer:
        return ValuesLayer(
            file.section("agents", agent, "values"), file.at("agents", agent, "values")
        )

    def beside(name: str) -> ValuesLayer:
        file = own.get(name, File(""))
        return ValuesLayer(file.value, file.at())

    files = [
        ValuesLayer(environment.section("values"), environment.at("values"), own=False),
        ValuesLayer(cluster.section("values"), cluster.at("values"), own=False),
        of_agent(environment),
        beside(facts.environment),
        of_agent(cluster),
    ]
    if facts.name != facts.environment:
        files.append(beside(facts.name))
    return [layer for layer in files if layer.values]


def resolve(declared: Parameters, stack: Sequence[ValuesLayer]) -> dict[str, TracedTree]:
    """Each parameter with a value, as a tree whose scalars have their source and the overridden
    ones.
    """
    lowest = [
        ValuesLayer(
            {name: value}, Pointer(declared.schema.name, 0, ("properties", name, "default"))
        )
        for name, value in declared.defaults.items()
    ]
    resolved: dict[str, TracedTree] = {}
    for name in sorted(declared.names):
        setters: list[tuple[Any, Pointer]] = [
            (layer.values[name], layer.at) for layer in lowest if name in layer.values
        ]
        setters += [
            (layer.values[name], layer.pointer(name)) for layer in stack if name in layer.values
        ]
        if setters:
            resolved[name] = _layered(setters[::-1])
    return resolved


def unknown(
    declared: Parameters, stack: Sequence[ValuesLayer], agent: str, repo_layout: Layout
) -> Iterator[Finding]:
    """Findings of values for this agent under an unknown name."""
    for layer in stack:
        for name in layer.values:
            if layer.own and name not in declared.names:
                hint = (
                    layout.did_you_mean(name, declared.names)
                    or "; declare it in params.schema.json"
                )
                yield rules.UNDEFINED_NAME.refusal(
                    f"agent {agent} has no parameter {name}{hint}",
                    repo_layout.place(layer.pointer(name), key=True),
                )


def own_files(paths: Sequence[PurePosixPath], folder: str, repo_layout: Layout) -> dict[str, File]:
    """values/NAME.yaml of an agent, parsed, by NAME."""
    return {
        p.stem: repo_layout.read(p)
        for p in paths
        if len(p.parts) == 4 and p.parts[2] == folder and p.suffix == ".yaml"
    }


def _layered(setters: list[tuple[Any, Pointer]]) -> TracedTree:
    """The value of the first layer; each scalar also has the sources in later layers."""
    winner, at = setters[0]

    def set_by(path: Path) -> tuple[Pointer, ...]:
        losers = (
            Pointer(p.file, p.document, (*p.path, *path)) for v, p in setters[1:] if _has(v, path)
        )
        return (Pointer(at.file, at.document, (*at.path, *path)), *losers)

    return traced_values.tree(winner, set_by)


def _has(value: Any, path: Path) -> bool:
    return field_path.resolve(value, path) is not None


def place_of(
    name: str, path: Path, resolved: Mapping[str, TracedTree], declared: Parameters
) -> Pointer:
    """The pointer for a finding at a path of a parameter's value: the source of the scalar there,
    below, or above.
    """
    value: TracedTree = resolved.get(name)
    for step in path:
        if field_path.resolve(value, (step,)) is None:
            break
        value = value[step]
    for below, scalar in traced_values.scalars(value):
        winner = scalar.set_by[0]
        return Pointer(winner.file, winner.document, winner.path[: len(winner.path) - len(below)])
    return declared.schema.at("properties", name)


# A Kubernetes definition by name (`io.k8s.api.core.v1.ResourceRequirements`) as a self-contained
# schema; None: not found.
Definition = Callable[[str], Mapping[str, Any] | None]

_MOST_COMPLAINTS: Final = 100

# Findings with the rule of another check have its number.
_RULES = {
    "type": rules.WRONG_TYPE,
    "enum": rules.INVALID_VALUE,
    "const": rules.INVALID_VALUE,
    "required": rules.MISSING_FIELD,
    "additionalProperties": rules.UNKNOWN_FIELD,
}


def violations(
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
        yield rules.NOT_RENDERED.refusal(
            str(unusable), repo_layout.place(declared.schema.at(*unusable.path))
        )
        return
    errors.sort(key=lambda error: [str(step) for step in error.absolute_path])
    for error in errors:
        path = tuple(error.absolute_path)
        rule = _RULES.get(str(error.validator), rules.INVALID_VALUE)
        if not path and error.validator == "required":
            for name in sorted(set(error.validator_value) - instance.keys()):
                message = (
                    f"agent {agent} has no value for {name}; set it under values/, or a default "
                    "here"
                )
                yield rules.MISSING_FIELD.refusal(
                    message, repo_layout.place(declared.schema.at("properties", name), key=True)
                )
        elif path:
            pointer = place_of(str(path[0]), path[1:], resolved, declared)
            yield rule.refusal(
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
