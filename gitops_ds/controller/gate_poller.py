"""Measures the gates of the rollouts in progress periodically, outside of the decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gitops_ds.model.objects import Key
from gitops_ds.model.rollouts.rollout_gates import GateRequest, Probe, Reading
from gitops_ds.model.values import replace


class GateMeter(Protocol):
    """The protocol of a meter. `interval` is the seconds from the end of a measurement to the next
    one.
    """

    @property
    def interval(self) -> float:
        """In seconds."""
        ...

    async def measure(self, request: GateRequest) -> Reading:
        """One measurement in bounded time; never raises."""
        ...

    def forget(self, key: Key) -> None:
        """Drops the state of a DaemonSet without measured gates."""
        ...


@dataclass(slots=True)
class _Measured:
    """One probe: its next measurement, and the last reading."""

    request: GateRequest
    reading: Reading | None = None
    polled: bool = False


class GatePoller:
    """The readings of the gates of each DaemonSet. No part of them must survive a restart.

    `changed` is called after each reading.
    """

    def __init__(self, meter: GateMeter, changed: Callable[[Key], None]) -> None:
        self.meter, self._changed = meter, changed
        self._measured: dict[Key, dict[Probe, _Measured]] = {}
        self._revisions: dict[Key, str] = {}
        self._wake = asyncio.Event()

    def follow(self, key: Key, revision: str, requests: Sequence[GateRequest]) -> None:
        """Sets the measurements for a DaemonSet. Readings of another target or stage are
        dropped.
        """
        before = self._measured.pop(key, {}) if self._revisions.get(key) == revision else {}
        if not requests:
            self.forget(key)
            return
        self._revisions[key] = revision
        self._measured[key] = measured = {}
        for request in requests:
            probe = request.subject.probe
            earlier = before.get(probe)
            measured[probe] = earlier or _Measured(request)
            measured[probe].request = request
            if earlier is None:
                self._wake.set()

    def readings(self, key: Key) -> Mapping[Probe, Reading]:
        """The last reading of each probe of a DaemonSet."""
        measured = self._measured.get(key, {})
        return {probe: one.reading for probe, one in measured.items() if one.reading is not None}

    def forget(self, key: Key) -> None:
        """Ends the measurements of a DaemonSet."""
        self._measured.pop(key, None)
        self._revisions.pop(key, None)
        self.meter.forget(key)

    def clear(self) -> None:
        """Ends all measurements."""
        for key in tuple(self._measured):
            self.forget(key)

    async def run(self) -> None:
        """Measures until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                for key, probes in self._measured.items():
                    for probe, one in probes.items():
                        if not one.polled:
                            one.polled = True
                            group.create_task(self._poll(key, probe, one))
                await self._wake.wait()

    async def _poll(self, key: Key, probe: Probe, one: _Measured) -> None:
        """Measures one probe until it is no longer followed."""
        while self._measured.get(key, {}).get(probe) is one:
            reading = await self.meter.measure(one.request)
            first = one.reading.first if one.reading is not None else reading.at
            one.reading = replace(reading, first=first)
            self._changed(key)
            await asyncio.sleep(self.meter.interval)
