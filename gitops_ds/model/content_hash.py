"""The hash of a value's content."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from gitops_ds.model.objects import Digest


def digest(value: Any) -> Digest:
    """sha256 of the value's JSON with sorted keys, in hexadecimal."""
    return Digest(hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest())
