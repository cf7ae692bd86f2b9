"""The cells of a table that a command prints, by their column."""

from __future__ import annotations

import re
from collections.abc import Mapping


def cells(text: str) -> Mapping[str, str]:
    """The cells of the only row, by the name of the column."""
    head, row = text.splitlines()
    columns, values = (re.split(r" {2,}", line.rstrip()) for line in (head, row))
    return dict(zip(columns, values, strict=True))
