"""The state machine of a deployer's loop: applies inputs to its state, and carries out the effects
on its timer and wake-up.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import msgspec

from gitops_ds.deploy import loop_inputs, loop_state
from gitops_ds.deploy.loop_inputs import Input, LoopEffect, SetTimer, Wake
from gitops_ds.deploy.loop_state import LoopState, Moment


class LoopTiming(msgspec.Struct, frozen=True):
    """Seconds until a failed reconciliation is retried, the clock (seconds since 1970), and numbers
    in [0, 1) for jitter.
    """

    retry: float
    clock: Callable[[], float]
    chance: Callable[[], float]


class LoopStateMachine(ABC):
    """The state of one loop, which `feed` changes; it decides when a reconciliation begins."""

    def __init__(self, state: LoopState, timing: LoopTiming) -> None:
        """The first wake-up is due at once."""
        self.state, self.clock, self.chance = state, timing.clock, timing.chance
        self._wake = asyncio.Event()
        self._wake.set()
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, input: Input) -> None:
        """Applies one input, and runs its effects."""
        now = Moment(asyncio.get_running_loop().time(), self.clock())
        transition = loop_state.step(self.state, input, now)
        self.state = transition.state
        for effect in transition.effects:
            match effect:
                case Wake():
                    self._wake.set()
                case SetTimer(at=at):
                    self._set_timer(at)
                case _:
                    self._perform(effect)

    @abstractmethod
    def _perform(self, effect: LoopEffect) -> None:
        """Carries out an effect that is neither timer nor wake-up."""

    async def next_phase(self) -> loop_state.LoopPhase:
        """The phase that follows the next wake-up."""
        await self._wake.wait()
        self._wake.clear()
        self.feed(loop_inputs.Woken())
        return self.state.phase

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at < math.inf:
            fired = loop_inputs.TimerFired()
            self._timer = asyncio.get_running_loop().call_at(at, self.feed, fired)
