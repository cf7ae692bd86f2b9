"""Where the time of a pass goes: named stretches of work, one inside another, for whoever listens. Nobody does unless told to.

The listener goes with the context that a task begins in, so that there is nothing global.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

# Begins a stretch with a name, and what is known of it.
Begin = Callable[[str, Mapping[str, str]], AbstractContextManager[None]]

listener: ContextVar[Begin | None] = ContextVar("listener", default=None)
_NOTHING = nullcontext()


def span(name: str, **known: str) -> AbstractContextManager[None]:
    """The stretch that a `with` encloses."""
    begin = listener.get()
    return _NOTHING if begin is None else begin(name, known)
