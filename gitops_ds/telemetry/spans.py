"""Where the time of a pass goes: named stretches of work, one inside another, for whoever listens.
Nobody does unless told to.

The listener goes with the context that a task begins in, so that there is nothing global.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass

# Begins a stretch with a name, and what is known of it.
Begin = Callable[[str, Mapping[str, str]], AbstractContextManager[None]]

listener: ContextVar[Begin | None] = ContextVar("listener", default=None)


@dataclass(frozen=True, slots=True)
class EndedSpan:
    """A stretch that was measured in another process; times in nanoseconds since 1970."""

    name: str
    began: int
    ended: int


recorder: ContextVar[Callable[[EndedSpan], None] | None] = ContextVar("recorder", default=None)
_NOTHING = nullcontext()


def span(name: str, **known: str) -> AbstractContextManager[None]:
    """The stretch that a `with` encloses."""
    begin = listener.get()
    return _NOTHING if begin is None else begin(name, known)


def record(stretches: Iterable[EndedSpan]) -> None:
    """Passes on stretches that another process measured, inside of the stretch that is under way."""
    if (one := recorder.get()) is not None:
        for stretch in stretches:
            one(stretch)
