"""Plain scalars with a ":" or "?" inside a flow collection, such as `{image: foo:1}`, which kubectl
accepts.

The libyaml of ruamel.yaml.clib ends such a scalar at the character and raises an error. Then those
of these characters that can't be indicators are replaced by characters of private use, one by one,
so that all positions are unchanged.
"""

from __future__ import annotations

import re
from typing import Final

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

_VEILS: Final = {b":": "\ue000".encode(), b"?": "\ue001".encode()}
_NO_INDICATOR: Final = re.compile(rb"(?<=[^\s'\"\[\]{},])[:?](?=[^\s,\[\]{}])")
_UNVEILED: Final = str.maketrans("\ue000\ue001", ":?")


def veiled(data: bytes) -> bytes:
    """The file with the characters replaced; unchanged if the file contains characters of private
    use.
    """
    if any(veil in data for veil in _VEILS.values()):
        return data
    return _NO_INDICATOR.sub(lambda match: _VEILS[match[0]], data)


def unveil(root: Node) -> None:
    """Restores the replaced characters in every scalar below; a node that aliases share is visited
    once.
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
