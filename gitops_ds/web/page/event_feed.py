"""The records as lines for people: what the page shows under Events. A fold; the oldest lines go."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from gitops_ds.model.events import base
from gitops_ds.model.events.base import Record
from gitops_ds.model.objects import Key
from gitops_ds.redaction import texts
from gitops_ds.telemetry import log_lines
from gitops_ds.web.page.view import Event

KEPT = 500


class Happened:
    """Remembers the last lines. `told` is called after each."""

    def __init__(self, told: Callable[[], None] = lambda: None, kept: int = KEPT) -> None:
        self._events: deque[Event] = deque(maxlen=kept)
        self._told = told

    def hear(self, told: Record) -> None:
        """One more record; what has no words for people is left out."""
        text = log_lines.line(told)
        # A rollout over 5,000 nodes performs 10,000 actions; what comes of them is on the map.
        if text is None or isinstance(told, base.Performed):
            return
        key: Key | None = getattr(told, "daemonset", None) or getattr(
            getattr(told, "change", None), "key", None
        )
        commit = str(getattr(told, "commit", None) or "")
        self._events.appendleft(
            Event(
                told.at, type(told).__name__, texts.words(text), log_lines.tone(told), key, commit
            )
        )
        self._told()

    def events(self) -> Sequence[Event]:
        """The lines, newest first."""
        return tuple(self._events)
