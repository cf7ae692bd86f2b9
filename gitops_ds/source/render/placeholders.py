"""Typed references: a scalar that is only `${name}` is replaced by the parameter's value with its
type; in a longer string, by its text.

`$${name}` is a literal `${name}`. The kubelet's `$(VAR)` and a shell's `${VAR:-x}` are not
references and unchanged. Keys are never resolved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson

from gitops_ds.core.sources.bundle import Pointer
from gitops_ds.source.render import traced_values
from gitops_ds.source.render.traced_values import TracedScalar, TracedTree

_REFERENCE = re.compile(r"(\$?)\$\{([A-Za-z_][A-Za-z0-9_.-]*)\}")


class Undefined(msgspec.Struct, frozen=True):
    """A reference to a name without a value, and its place."""

    name: str
    at: Pointer


@dataclass(slots=True)
class PlaceholderScope:
    """Values by name, each as a traced tree. The resolution of references adds to `used` and
    `undefined`.

    `silent` names have no value, but already a finding.
    """

    values: Mapping[str, TracedTree]
    silent: frozenset[str] = frozenset()
    used: set[str] = field(default_factory=set)
    undefined: list[Undefined] = field(default_factory=list)

    def resolve(self, tree: TracedTree) -> TracedTree:
        """The tree with every reference replaced; undefined ones are unchanged."""
        if isinstance(tree, dict):
            return {key: self.resolve(item) for key, item in tree.items()}
        if isinstance(tree, list):
            return [self.resolve(item) for item in tree]
        if isinstance(tree, TracedScalar) and isinstance(tree.value, str) and "${" in tree.value:
            return self._scalar(tree, tree.value)
        return tree

    def _scalar(self, scalar: TracedScalar, text: str) -> TracedTree:
        whole = _REFERENCE.fullmatch(text)
        if whole and not whole[1]:
            return _placed(self._value(whole[2], scalar), scalar.set_by)
        pointers: list[Pointer] = []

        def replacement(match: re.Match[str]) -> str:
            if match[1]:
                return "${" + match[2] + "}"
            value = self._value(match[2], scalar)
            if value is scalar:
                return match[0]
            pointers.extend(
                pointer for _, part in traced_values.scalars(value) for pointer in part.set_by
            )
            return _as_text(traced_values.plain(value))

        return TracedScalar(
            _REFERENCE.sub(replacement, text), (*dict.fromkeys(pointers), *scalar.set_by)
        )

    def _value(self, name: str, scalar: TracedScalar) -> TracedTree:
        if name in self.values:
            self.used.add(name)
            return self.values[name]
        self.used.add(name)
        if name not in self.silent:
            self.undefined.append(Undefined(name, scalar.set_by[0]))
        return scalar


def _placed(value: TracedTree, template: tuple[Pointer, ...]) -> TracedTree:
    """The value with the place in the template after its own sources."""
    if isinstance(value, dict):
        return {key: _placed(item, template) for key, item in value.items()}
    if isinstance(value, list):
        return [_placed(item, template) for item in value]
    if isinstance(value, TracedScalar):
        return (
            value
            if value.set_by == template
            else TracedScalar(value.value, (*value.set_by, *template))
        )
    return value


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
