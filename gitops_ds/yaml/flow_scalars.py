"""Plain scalars with a ":" or "?" inside a flow collection, such as `{image: foo:1}`, which kubectl
reads.

The libyaml inside ruamel.yaml.clib ends such a scalar at the character and complains. Where it
does, those characters that can't be indicators are hidden behind characters of private use, one for
one, so that every position stays.
"""

from __future__ import annotations

import re
from typing import Final

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

_VEILS: Final = {b":": "\ue000".encode(), b"?": "\ue001".encode()}
_NO_INDICATOR: Final = re.compile(rb"(?<=[^\s'\"\[\]{},])[:?](?=[^\s,\[\]{}])")
_UNVEILED: Final = str.maketrans("\ue000\ue001", ":?")


def veiled(data: bytes) -> bytes:
    """The file with them hidden; as it is where the file has such characters of its own."""
    if any(veil in data for veil in _VEILS.values()):
        return data
    return _NO_INDICATOR.sub(lambda match: _VEILS[match[0]], data)


def unveil(root: Node) -> None:
    """Puts the hidden characters back into every scalar below; a node that several aliases share is
    met once.
    """
    waiting, met = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in met:
            continue
        met.add(id(node))
        if isinstance(node, ScalarNode):
            node.value = node.value.translate(_UNVEILED)
        elif isinstance(node, MappingNode):
            waiting += [part for pair in node.value for part in pair]
        else:
            waiting += node.value
