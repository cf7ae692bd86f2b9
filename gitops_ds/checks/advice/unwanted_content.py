"""Content that does not belong in a manifest: placeholders of a template, fields that the API
server writes, secrets in plain text. No message contains a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from gitops_ds.checks.engine.rule import Violation, containers, items, rule, section
from gitops_ds.core import names
from gitops_ds.core.finding import Fix, Mend, Severity, advice
from gitops_ds.core.objects import Body, Path, group_of
from gitops_ds.core.redaction import patterns
from gitops_ds.source.rules import PLAIN_SECRET

# The output of Go templates for a missing value, and reminders.
_NEVER_MEANT: Final = re.compile(r"<no value>|\bCHANGE_?ME\b")
# Without a second opening inside: otherwise the search in a text of braces alone is quadratic.
_TEMPLATE: Final = re.compile(r"\$\{[A-Za-z_](?:(?!\$\{)[^}])*\}|\{\{(?:(?!\{\{).)*?\}\}")
_TWO_BRACES: Final = re.compile(rb"\{\{")  # as a pattern a third of the time of `in`
# Fields whose content has another syntax with braces: scripts, configuration, expressions.
_OWN_LANGUAGE: Final = frozenset(("annotations", "command", "args", "env"))
_DATA: Final = frozenset(("data", "stringData", "binaryData"))


@rule(advice("DS012", Severity.ERROR, "placeholder was not rendered"))
def filled_in(body: Body) -> Iterator[Violation]:
    """A placeholder was not rendered. A search through the bytes skips most objects."""
    if not _is_kubernetes(body):
        return
    if _may_have_placeholder(orjson.dumps(body)):
        for path, value, free in _texts(body, (), False):
            match = _NEVER_MEANT.search(value) or (None if free else _TEMPLATE.search(value))
            if match:
                yield Violation(path, f'"{match[0]}" is an unrendered placeholder: set a value')


def _may_have_placeholder(text: bytes) -> bool:
    return (
        (b"$" in text and b"${" in text)  # a search for one byte is twenty times as fast
        or b"<no value>" in text
        or b"CHANGE" in text
        or _TWO_BRACES.search(text) is not None
    )


def _texts(value: Any, path: Path, free: bool) -> Iterator[tuple[Path, str, bool]]:
    """Every string, its path, and whether it has another syntax."""
    if isinstance(value, str):
        yield path, value, free
    elif isinstance(value, dict):
        for key, inner in value.items():
            if path or key not in _DATA:
                yield from _texts(inner, (*path, key), free or key in _OWN_LANGUAGE)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, (*path, index), free)


_SERVERS: Final = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "selfLink",
)
_SERVERS_ANNOTATIONS: Final = (
    "kubectl.kubernetes.io/last-applied-configuration",
    names.TEMPLATE_GENERATION,
)


@rule(advice("DS013", Severity.WARNING, "manifest has fields that the cluster writes"))
def only_what_is_wanted(body: Body) -> Iterator[Violation]:
    """Fields that the API server writes. Empty ones, as generators leave them, are ignored."""
    metadata = section(body.get("metadata"))
    for field in _SERVERS:
        if metadata.get(field):
            yield _of_the_server(("metadata", field))
    if (annotations := metadata.get("annotations")) and isinstance(annotations, dict):
        for key in _SERVERS_ANNOTATIONS:
            if key in annotations:
                yield _of_the_server(("metadata", "annotations", key))
    if body.get("status") and _is_kubernetes(body):
        yield _of_the_server(("status",))


def _of_the_server(path: Path) -> Violation:
    message = f"{path[-1]} is written by the cluster: in a repository it is a permanent difference"
    return Violation(path, message, Fix(f"remove {path[-1]}", (Mend(path),), safe=True))


def _is_kubernetes(body: Body) -> bool:
    """Whether Kubernetes defines the fields of the object, unlike those of custom resources and
    their definitions.
    """
    group = group_of(body)
    return ("." not in group or group.endswith(".k8s.io")) and body.get(
        "kind"
    ) != "CustomResourceDefinition"


_OPTION: Final = re.compile(r"--?([A-Za-z][A-Za-z0-9_.-]*)=(.+)\Z", re.DOTALL)


@rule(PLAIN_SECRET)
def no_secrets(body: Body) -> Iterator[Violation]:
    """A secret in a variable, an argument or a ConfigMap."""
    if body.get("kind") == "ConfigMap":
        data = body.get("data")
        for name, value in data.items() if isinstance(data, Mapping) else ():
            if isinstance(value, str) and patterns.certain(str(name), value):
                yield Violation(
                    ("data", str(name)),
                    f"{name} looks like a secret, and stays in the history of the repository: "
                    f"{_INSTEAD}",
                )
        return
    for way, container in containers(body):
        for index, variable in enumerate(items(container.get("env"))):
            value = variable.get("value")
            if isinstance(value, str) and patterns.certain(str(variable.get("name")), value):
                message = (
                    f"the variable {variable.get('name')} looks like a secret, and stays in the "
                    f"history of the repository: {_INSTEAD}"
                )
                yield Violation((*way, "env", index, "value"), message)
        for field in ("command", "args"):
            yield from _arguments((*way, field), container.get(field))


_INSTEAD: Final = "use a Secret, and rotate the value"


def _arguments(way: Path, arguments: Any) -> Iterator[Violation]:
    for index, argument in enumerate(arguments or ()):
        option = _OPTION.match(argument) if isinstance(argument, str) else None
        name, value = option.groups() if option else ("", argument)
        if isinstance(value, str) and patterns.certain(name, value):
            what = f"the option {name}" if name else "the argument"
            yield Violation(
                (*way, index),
                f"{what} looks like a secret, and stays in the history of the repository: "
                f"{_INSTEAD}",
            )
