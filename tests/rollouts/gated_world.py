"""A rollout whose gates are measured by a function of the test, in virtual time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from gitops_ds.core.rollouts.rollout_gates import (
    GateRequest,
    GateSample,
    Probe,
    PrometheusRequest,
    Reading,
)
from gitops_ds.core.rollouts.staged_rollout import Halt, StageInputs
from gitops_ds.core.values import replace
from gitops_ds.rollouts.decisions import measured_gates
from gitops_ds.rollouts.decisions.pinned_pods import StagedDecision
from tests.rollouts.rollout_world import RolloutWorld

INTERVAL = 15.0
Measure = Callable[[GateRequest, float], Reading]


def values(*numbers: float, before: float | None = None) -> Measure:
    """A query that always has these values."""

    def measure(request: GateRequest, now: float) -> Reading:
        samples = tuple(
            GateSample(number, f'{{node="{index}"}}', before=before)
            for index, number in enumerate(numbers)
        )
        return Reading(now, frozenset(request.subject.nodes), samples)

    return measure


def no_data(request: GateRequest, now: float) -> Reading:
    """An unreachable server."""
    return Reading(now, frozenset(request.subject.nodes), reason="Prometheus: no response in time")


class GatedWorld(RolloutWorld):
    """A RolloutWorld with measurements each INTERVAL seconds of virtual time."""

    def __init__(
        self, policy: dict[str, Any], nodes: list[dict[str, Any]] | int, measure: Measure
    ) -> None:
        self.measure: Measure = measure
        self.readings: dict[Probe, Reading] = {}
        self.asked: list[GateRequest] = []
        super().__init__(policy, nodes)

    def inputs(self) -> StageInputs | None:
        collected = super().inputs()
        return replace(collected, readings=dict(self.readings)) if collected is not None else None

    def staged_turn(self, at_most: int | None = None) -> StagedDecision | None:
        before = self.inputs()
        staged = super().staged_turn(at_most)
        if staged is None or before is None:
            return staged
        requests = measured_gates.requests(staged.layout, before, staged.stages)
        probes = {request.subject.probe for request in requests}
        self.readings = {one: items for one, items in self.readings.items() if one in probes}
        for request in requests:
            self._poll(request)
        return staged

    def _poll(self, request: GateRequest) -> None:
        probe = request.subject.probe
        last = self.readings.get(probe)
        if last is not None and self.now - last.at < INTERVAL:
            return
        self.asked.append(request)
        reading = self.measure(request, self.now)
        first = last.first if last is not None else self.now
        self.readings[probe] = replace(reading, first=first)

    def restart(self) -> None:
        """A new process of the service: it has no readings."""
        self.readings = {}

    def finish(self, image: str) -> None:
        """Rounds until every node has the image; `run` ends where only a measurement follows."""
        self.until(lambda: len(self.on(image)) == len(self.nodes))

    def quiet(self, seconds: float, image: str) -> None:
        """Asserts that no further node gets the image in that many seconds."""
        before, ends = self.on(image), self.now + seconds
        while self.now < ends:
            self.pass_time()
            assert self.on(image) == before

    @property
    def ends(self) -> float | None:
        """When the hold ends."""
        hold = self.last.stages.hold if self.last is not None else None
        return hold.until if hold is not None else None

    @property
    def halt(self) -> Halt | None:
        """Why it is halted."""
        return self.last.stages.halt if self.last is not None else None

    @property
    def queries(self) -> list[PrometheusRequest]:
        """The measured queries."""
        return [one for one in self.asked if isinstance(one, PrometheusRequest)]


def policy(gate: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """A canary of two nodes with one gate, and the rest without one."""
    stages = [
        {
            "name": "canary",
            "nodes": {"count": 2},
            "soak": "60s",
            "gates": ["pods", "nodes", "flow"],
            "pace": {"start": 1, "factor": 1},
        },
        {"name": "rest", "soak": "10s", "pace": {"start": 2, "factor": 2, "max": "50%"}},
    ]
    limits = {"atRisk": {"cluster": "40%"}}
    return {"stages": stages, "limits": limits, "gates": {"flow": gate}, **keys}


def every(readings: list[Reading]) -> Measure:
    """The readings in turn, the last one indefinitely."""
    turns = itertools.chain(readings, itertools.repeat(readings[-1]))

    def measure(request: GateRequest, now: float) -> Reading:
        return replace(next(turns), at=now, nodes=frozenset(request.subject.nodes))

    return measure
