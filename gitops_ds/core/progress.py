"""The file in progress, for the message after an interruption. Without a listener nothing is
reported.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

listener: ContextVar[Callable[[str], None] | None] = ContextVar("progress", default=None)


def at(file: str) -> None:
    """Reports the file that is processed next."""
    if (report := listener.get()) is not None:
        report(file)
