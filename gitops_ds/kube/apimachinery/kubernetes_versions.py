"""The supported versions of Kubernetes: the one list for checks, simulator, scripts, tests and
pages.

docs/development.md, "A new Kubernetes version", names the files that follow this list.
`scripts/modules.py` runs this file alone: it imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# By minor version, oldest first: the release whose schemas and Go types are bundled.
RELEASES: Final[Mapping[str, str]] = MappingProxyType(
    {"1.34": "1.34.4", "1.35": "1.35.4", "1.36": "1.36.3", "1.37": "1.37.1"}
)
VERSIONS: Final = tuple(RELEASES)
OLDEST: Final = VERSIONS[0]
NEWEST: Final = VERSIONS[-1]
RANGE: Final = f"{OLDEST} to {NEWEST}"
