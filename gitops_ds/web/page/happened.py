"""The records as lines for people: what the page shows under Events. A fold; the oldest lines go."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from gitops_ds.model import record
from gitops_ds.model.objects import Key
from gitops_ds.model.record import Record
from gitops_ds.redaction import texts
from gitops_ds.report import words
from gitops_ds.web.page.view import Event

KEPT = 500


class Happened:
    """Remembers the last lines. `told` is called after each."""

    def __init__(self, told: Callable[[], None] = lambda: None, kept: int = KEPT) -> None:
        self._events: deque[Event] = deque(maxlen=kept)
        self._told = told

    def hear(self, told: Record) -> None:
        """One more record; what has no words for people is left out."""
        text = words.line(told)
        # A rollout over 5,000 nodes performs 10,000 actions; what comes of them is on the map.
        if text is None or isinstance(told, record.Performed):
            return
        key: Key | None = getattr(told, "daemonset", None) or getattr(getattr(told, "change", None), "key", None)
        commit = str(getattr(told, "commit", None) or "")
        self._events.appendleft(Event(told.at, type(told).__name__, texts.words(text), words.tone(told), key, commit))
        self._told()

    def events(self) -> Sequence[Event]:
        """The lines, newest first."""
        return tuple(self._events)
