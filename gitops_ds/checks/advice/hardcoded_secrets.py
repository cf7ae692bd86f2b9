"""Secrets in plain text. No message contains a value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gitops_ds.checks.engine.rule import Violation, containers, items
from gitops_ds.model.objects import Body, Path
from gitops_ds.redaction import patterns

_OPTION: Final = re.compile(r"--?([A-Za-z][A-Za-z0-9_.-]*)=(.+)\Z", re.DOTALL)


def no_secrets(body: Body) -> Iterator[Violation]:
    """DS514: a secret in a variable, an argument or a ConfigMap."""
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
