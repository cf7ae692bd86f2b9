"""What the parts of a service have in common: they run, may stand by while another replica leads,
and say when they are stuck.
"""

from __future__ import annotations

from typing import Protocol

from gitops_ds.deployer import loop as deployer_loop
from gitops_ds.model.source_status import SourceStatus


class Runnable(Protocol):
    """What runs as long as the service does: the controller, and each deployer."""

    @property
    def unready(self) -> str:
        """Why it is of no use yet; nothing when it is."""
        ...

    @property
    def standing_for(self) -> float:
        """For how many seconds what it does has not moved."""
        ...

    async def run(self) -> None:
        """Runs until `stop`; it acts unless it was told to rest before."""
        ...

    def act(self) -> None:
        """From now on it acts."""
        ...

    def rest(self) -> None:
        """From now on it only keeps everything at hand."""
        ...

    def stop(self) -> None:
        """Ends it soon, at a place where that costs nothing."""
        ...


class DeployerPart:
    """A part around one deployer loop, which may begin later."""

    _loop: deployer_loop.Loop | None = None
    _acting = True

    @property
    def loop(self) -> deployer_loop.Loop | None:
        """The loop, when it has begun."""
        return self._loop

    @loop.setter
    def loop(self, loop: deployer_loop.Loop) -> None:
        self._loop = loop
        if not self._acting:
            loop.stop_leading()

    @property
    def status(self) -> SourceStatus | None:
        """The status of its repository; None while another replica leads."""
        return self._loop.status if self._loop else None

    @property
    def standing_for(self) -> float:
        """For how many seconds its pass has told nothing."""
        return self._loop.seconds_without_progress if self._loop else 0.0

    def act(self) -> None:
        """Takes passes from now on."""
        self._acting = True
        if self._loop is not None:
            self._loop.start_leading()

    def rest(self) -> None:
        """Takes no passes from now on."""
        self._acting = False
        if self._loop is not None:
            self._loop.stop_leading()
