"""Which replica of a service writes. Pure."""

from __future__ import annotations

from collections.abc import Callable


class Leadership:
    """Whether this replica leads: only the leader writes. Its parts share it; each one that starts
    or cancels work with a change listens.
    """

    def __init__(self, *, leads: bool = True) -> None:
        """`leads` is the state until the first `change`."""
        self.leads = leads
        self._listeners: list[Callable[[bool], None]] = []

    def listen(self, listener: Callable[[bool], None]) -> None:
        """Calls the listener after each change, with whether this replica leads."""
        self._listeners.append(listener)

    def change(self, leads: bool) -> None:
        """Starts or stops leading."""
        self.leads = leads
        for listener in self._listeners:
            listener(leads)
