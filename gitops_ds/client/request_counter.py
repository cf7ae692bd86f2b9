"""A counter of the requests to an API server."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class RequestCounter:
    """Requests that were sent, and answers by method and status code (empty: no answer)."""

    sent: int = 0
    answered: Counter[tuple[str, str]] = field(default_factory=Counter)
