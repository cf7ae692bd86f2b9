"""The latest events as lines of the page. The oldest lines are dropped."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from gitops_ds.model.events.base import Event
from gitops_ds.model.events.drift import DriftEvent
from gitops_ds.model.objects import short
from gitops_ds.telemetry import log_lines
from gitops_ds.web.page.view import PageEvent

KEPT = 500


class EventFeed:
    """The last `kept` lines. `changed` is called after each new one."""

    def __init__(self, changed: Callable[[], None] = lambda: None, kept: int = KEPT) -> None:
        self._events: deque[PageEvent] = deque(maxlen=kept)
        self._changed = changed

    def handle(self, event: Event) -> None:
        """Adds the event, unless it has no text or the page omits its kind."""
        text = log_lines.line(event)
        if text is None or not event.definition.on_page:
            return
        about = None if isinstance(event, DriftEvent) else event.about
        commit = str(getattr(event, "commit", None) or "")
        words = _without_repeats(event, text, commit)
        line = PageEvent(event.at, event.definition.kind, words, event.tone, about, commit)
        self._events.appendleft(line)
        self._changed()

    def events(self) -> Sequence[PageEvent]:
        """The lines, newest first."""
        return tuple(self._events)


def _without_repeats(event: Event, text: str, commit: str) -> str:
    """The text without the content of the other columns: level, reason, and object or commit."""
    about = str(event.about or "")
    text = text.removeprefix("warning: ").removeprefix("not applied: ")
    text = text.removeprefix(f"{about}: ").removeprefix(f"{event.kube_reason} ")
    if event.about is None and commit:
        return text.removeprefix("new ").removeprefix(f"commit {short(commit)} ")
    return text if text.startswith(about) else text.replace(f" {about}", "", 1)
