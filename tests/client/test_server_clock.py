"""A service whose clock is wrong, or jumps, decides by the time of the API server: no soak is over
early, and none is endless.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core.objects import NODE
from gitops_ds.kube.client import config, rest
from gitops_ds.kube.client.server_clock import TOLERANCE, ServerClock
from gitops_ds.kube.client.transport import RequestCounter
from tests import controlplane

HOUR, YEAR = 3600.0, 365 * 86400.0
START = 1_790_000_000.25
skews = st.floats(-10 * YEAR, 10 * YEAR)


@dataclass
class Machine:
    """A machine whose clock is ahead of that of the API server by `skew` seconds."""

    skew: float
    passed: float = 0.0
    clock: ServerClock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = ServerClock(lambda: self.server + self.skew, lambda: self.passed)

    @property
    def server(self) -> float:
        """The time of the API server."""
        return START + self.passed

    def request(self, there: float, back: float) -> None:
        """A request that takes so long to the API server and back."""
        sent = self.clock.sent()
        self.passed += there
        date = formatdate(self.server, usegmt=True)
        self.passed += back
        self.clock.answered(sent, date)

    @property
    def error(self) -> float:
        return self.clock.now() - self.server


@given(skews, st.floats(0, 5), st.floats(0, 5))
def test_the_time_is_that_of_the_api_server_with_any_clock(
    skew: float, there: float, back: float
) -> None:
    machine = Machine(skew)
    machine.request(there, back)
    assert abs(machine.error) <= TOLERANCE + 1 + there + back


@given(skews, skews)
def test_a_jump_changes_nothing_before_and_after_a_response(before: float, after: float) -> None:
    machine = Machine(before)
    machine.request(0.1, 0.1)
    error = machine.error
    machine.skew = after
    machine.passed += HOUR
    assert machine.error == pytest.approx(error, abs=0.01)
    machine.request(0.1, 0.1)
    assert abs(machine.error) <= TOLERANCE + 2


@given(st.floats(-TOLERANCE, TOLERANCE))
def test_a_clock_that_is_nearly_right_is_used_as_it_is(skew: float) -> None:
    machine = Machine(skew)
    machine.request(0.1, 0.1)
    assert machine.error == pytest.approx(skew, abs=0.01)


@pytest.mark.parametrize("date", ["", "now", "Mon, 99 Nov 2026 00:00:00 GMT"])
def test_a_response_without_a_date_changes_nothing(date: str) -> None:
    machine = Machine(HOUR)
    machine.request(0.0, 0.0)
    machine.clock.answered(machine.clock.sent(), date)
    assert abs(machine.error) <= 1


@pytest.mark.controlplane
def test_a_real_api_server_states_its_time(api_server: controlplane.ControlPlane) -> None:
    async def main() -> None:
        clock = ServerClock(lambda: time.time() + HOUR, time.monotonic)
        access = config.access(str(api_server.kubeconfig), None)
        async with rest.HttpCluster(access, counter=RequestCounter(clock=clock)) as cluster:
            await cluster.list(NODE)
        assert abs(clock.now() - time.time()) < TOLERANCE

    asyncio.run(main())
