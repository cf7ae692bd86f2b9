"""The requests that went out to an API server, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class RequestCounter:
    """How many were sent, and by method and code (empty: no answer) what came back."""

    sent: int = 0
    answered: Counter[tuple[str, str]] = field(default_factory=Counter)
