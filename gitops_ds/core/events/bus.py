"""The way of every event, from its emitter to those that handle it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gitops_ds.core.events.base import Emit, Event, EventOrigin
from gitops_ds.core.values import replace


class EventBus:
    """Delivers every event to its subscribers in their order: the log first, then those of the
    settings, and last those of the deployer of its `origin`.
    """

    def __init__(self, *subscribers: Emit) -> None:
        self.subscribers = [*subscribers]
        self._of_owner: dict[str, list[Emit]] = {}

    def publish(self, event: Event) -> None:
        """Delivers one event."""
        for handle in self.subscribers:
            handle(event)
        for handle in self._of_owner.get(event.origin.owner, ()):
            handle(event)

    def of(self, origin: EventOrigin) -> Emit:
        """Publishes the events of a deployer."""
        return lambda event: self.publish(replace(event, origin=origin))

    @contextlib.contextmanager
    def subscribed(self, owner: str, handle: Emit) -> Iterator[None]:
        """Delivers the events of an owner's deployer to `handle` in the context."""
        handlers = self._of_owner.setdefault(owner, [])
        handlers.append(handle)
        try:
            yield
        finally:
            handlers.remove(handle)
