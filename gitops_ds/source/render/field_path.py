"""A path in a manifest as users write it:
`spec.template.spec.containers[agent].env[LOG_LEVEL].value`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gitops_ds.core.objects import Path

_STEP = re.compile(
    r"""\.?(?:(?P<key>[^.\[\]]+)
    |\[(?P<index>[0-9]+)\]
    |\["(?P<quoted>[^"]*)"\]
    |\[(?P<named>[^\]"]+)\])""",
    re.VERBOSE,
)
# The fields that identify a list item, in the order in which they are tried.
_NAMES = ("name", "key", "mountPath", "containerPort", "port", "ip")


def parse(text: str) -> Path | None:
    """The steps of the text: a key, a list index (a number in brackets), or the name of a list
    item; None if it is not a path.
    """
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            return None
        index = match["index"]
        steps.append(
            int(index) if index else match["key"] or match["named"] or match["quoted"] or ""
        )
        at = match.end()
    return tuple(steps)


def resolve(value: Any, steps: Path, *, missing_key: bool = False) -> Path | None:
    """The steps with the index in place of the name of each list item; None if one does not exist.

    `missing_key`: the last step may be a key that its mapping does not have yet.
    """
    steps_taken: list[str | int] = []
    for count, step in enumerate(steps, 1):
        match value:
            case list():
                index = step if isinstance(step, int) else _named(value, step)
                if index is None or index >= len(value):
                    return None
                steps_taken.append(index)
                value = value[index]
            case Mapping():
                key = str(step)
                if key not in value and not (missing_key and count == len(steps)):
                    return None
                steps_taken.append(key)
                value = value.get(key)
            case _:
                return None
    return tuple(steps_taken)


def get(value: Any, path: Path) -> Any:
    """The value at an existing path."""
    for step in path:
        value = value[step]
    return value


def _named(entries: list[Any], name: str) -> int | None:
    for field in _NAMES:
        for index, entry in enumerate(entries):
            if isinstance(entry, Mapping) and field in entry and entry[field] == name:
                return index
    return None
