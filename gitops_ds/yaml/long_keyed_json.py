"""JSON objects with a key of more than 1,024 bytes, which libyaml rejects; their values have no
positions.
"""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

from gitops_ds.yaml.nodes import MAX_DEPTH

_LONGEST_KEY: Final = 1000


def read(data: bytes) -> dict[str, Any] | None:
    """The object; None for any other file, and for JSON that is not portable or has a duplicate
    key.
    """
    if not data.lstrip().startswith(b"{") or max(map(len, data.split(b'"'))) < _LONGEST_KEY:
        return None
    try:
        value: dict[str, Any] = json.loads(data, object_pairs_hook=_without_duplicates)
        # Python also accepts NaN, unpaired surrogates, and numbers out of range for other parsers.
        is_portable = _is_flat_enough(value) and orjson.loads(orjson.dumps(value)) == value
    except (ValueError, TypeError, RecursionError):
        return None
    return value if is_portable else None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("duplicate key")
    return dict(pairs)


def _is_flat_enough(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for parent in level
            if isinstance(parent, (dict, list))
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return True
    return False
