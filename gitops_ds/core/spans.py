"""Spans of a reconciliation: named and nested. Without a listener they cost nothing.

The listener is a context variable, which tasks inherit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

import msgspec

# Starts a span with a name and attributes.
Begin = Callable[[str, Mapping[str, str]], AbstractContextManager[None]]

listener: ContextVar[Begin | None] = ContextVar("listener", default=None)


class EndedSpan(msgspec.Struct, frozen=True):
    """A span that another process measured; times are in nanoseconds since 1970."""

    name: str
    began: int
    ended: int


recorder: ContextVar[Callable[[EndedSpan], None] | None] = ContextVar("recorder", default=None)
_NOTHING = nullcontext()


def span(name: str, **attributes: str) -> AbstractContextManager[None]:
    """The span of a `with` block."""
    begin = listener.get()
    return _NOTHING if begin is None else begin(name, attributes)


def record(spans: Iterable[EndedSpan]) -> None:
    """Adds spans that another process measured to the current span."""
    if (one := recorder.get()) is not None:
        for span in spans:
            one(span)
