"""The options of commands that list objects, with the names of kubectl: `-A`, `-l`, `-w`,
`--sort-by`, `--no-headers`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from gitops_ds.cli.parameters import options

if TYPE_CHECKING:  # --help imports none of these
    from gitops_ds.core.sources.bundle import Requirement
    from gitops_ds.kube.apimachinery import jsonpath

T = TypeVar("T")


class SelectorType(click.ParamType["tuple[Requirement, ...]"]):
    """A label selector."""

    name = "selector"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Requirement, ...]:
        """The conditions. Fails for an invalid selector."""
        from gitops_ds.kube.apimachinery import label_selector

        if isinstance(value, tuple):
            return value
        try:
            return label_selector.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class FieldCondition(msgspec.Struct, frozen=True):
    """A term of a field selector: a field equals, or does not equal, a value."""

    field: str
    value: str
    equal: bool


class FieldSelectorType(click.ParamType[tuple[FieldCondition, ...]]):
    """A field selector: `type=Warning,reason!=Pulled`."""

    name = "field selector"

    def __init__(self, fields: Sequence[str]) -> None:
        """`fields` are the allowed fields."""
        self._fields = fields

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[FieldCondition, ...]:
        """The terms. Fails for an invalid one and for an unknown field."""
        if isinstance(value, tuple):
            return value
        paths = []
        for term in filter(None, str(value).split(",")):
            parts = re.fullmatch(r"\s*([^=!\s]+)\s*(==|=|!=)\s*([^=!]*?)\s*", term)
            if parts is None:
                self.fail(f"{term!r} is not a term: write FIELD=VALUE or FIELD!=VALUE", param, ctx)
            if parts[1] not in self._fields:
                fields = ", ".join(self._fields)
                self.fail(f"unknown field {parts[1]!r}: use {fields}", param, ctx)
            paths.append(FieldCondition(parts[1], parts[3], parts[2] != "!="))
        return tuple(paths)


class PathType(click.ParamType["jsonpath.Path"]):
    """A JSONPath without a template."""

    name = "path"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> jsonpath.Path:
        """The path. Fails for an invalid one."""
        from gitops_ds.kube.apimachinery import jsonpath

        if isinstance(value, jsonpath.Path):
            return value
        try:
            return jsonpath.path(str(value))
        except jsonpath.InvalidPath as error:
            self.fail(str(error), param, ctx)


scope = options.together(
    options.in_namespace,
    options.option(
        "-A",
        "--all-namespaces",
        is_flag=True,
        help="All namespaces: the default, unless GITOPS_DS_NAMESPACE is set.",
    ),
)
no_headers = options.option("--no-headers", is_flag=True, help="Omit the heads of the columns.")
sort_by = options.option(
    "--sort-by",
    type=PathType(),
    metavar="JSONPATH",
    help="Sort by this field of the JSON items, such as .name.",
)
selector = options.option(
    "-l",
    "--selector",
    type=SelectorType(),
    default="",
    metavar="LABELS",
    help="Only DaemonSets with these labels, such as app=agent,tier!=test.",
)


@dataclass(frozen=True, kw_only=True)
class ScopeArgs:
    """The namespace of the listed objects."""

    namespace: str
    all_namespaces: bool

    @property
    def chosen_namespace(self) -> str:
        """The namespace; empty for all."""
        return "" if self.all_namespaces else self.namespace


def in_order(
    objects: Sequence[T], path: jsonpath.Path | None, as_json: Callable[[T], Any]
) -> list[T]:
    """The objects sorted by a field of their JSON: missing values first, numbers before text.
    Raises UsageError if no object has the field.
    """
    if path is None:
        return list(objects)
    values = [path.find(document, document) for document in map(as_json, objects)]
    if objects and not any(values):
        fields = ", ".join(sorted(as_json(objects[0])))
        raise click.UsageError(f"--sort-by: no item has this field; the fields are {fields}")
    order = sorted(range(len(objects)), key=lambda at: _rank(values[at]))
    return [objects[at] for at in order]


def _rank(values: Sequence[Any]) -> tuple[int, float, str]:
    match values:
        case [bool(flag), *_]:
            return 1, float(flag), ""
        case [int(number) | float(number), *_]:
            return 1, float(number), ""
        case [str(text), *_]:
            return 2, 0.0, text
        case [None, *_] | []:
            return 0, 0.0, ""
        case _:
            return 3, 0.0, json.dumps(values[0], sort_keys=True)
