"""The amount of tests: `ci` runs all, `fast` a share of random cases and of tables with slow rows.

`TEST_PROFILE=fast` selects it, as in `make test`; the default profile is `ci`.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence

from hypothesis import HealthCheck, settings

FAST = {"ci": False, "fast": True}[os.environ.get("TEST_PROFILE", "ci")]
DEFAULT_EXAMPLES = 100  # Hypothesis' own


def examples(number: int) -> int:
    """The number of examples of a property: with `fast` a tenth, and five at least."""
    return max(5, number // 10) if FAST else number


def random_cases(number: int) -> int:
    """The number of random cases: with `fast` one of two hundred."""
    return max(1, number // 200) if FAST else number


def sample(rows: Sequence[str]) -> frozenset[str]:
    """The rows of a table with slow rows that `fast` tests: every tenth, at least one, and
    six at most. The first one depends on the names, so that tables of the same rows differ.
    """
    ordered = sorted(rows)
    step = max(10, -(-len(ordered) // 6))
    first = zlib.crc32(ordered[0].encode()) % min(step, len(ordered))
    return frozenset(ordered[first::step])


def load() -> None:
    """Sets the profile of properties without their own settings. It does not depend on the speed of
    the machine.
    """
    settings.register_profile(
        "chosen",
        max_examples=examples(DEFAULT_EXAMPLES),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("chosen")
