"""What the kubelet is told: a loop that stands still asks for a new start, one that only works long does not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gitops_ds.app.facing import STUCK, Probes
from gitops_ds.web import server


@dataclass
class Part:
    """A part of the service, as a probe sees it."""

    standing_for: float = 0.0
    unready: str = ""

    async def run(self) -> None:
        """Nothing."""

    act = rest = stop = lambda self: None


def answers(*parts: Part) -> dict[str, tuple[int, str]]:
    async def ask() -> dict[str, tuple[int, str]]:
        probes, app = Probes(parts, None), web.Application()
        app.add_routes(server.probes(probes.stuck, probes.unready))
        async with TestClient(TestServer(app)) as client:
            found = {}
            for path in ("/livez", "/healthz", "/readyz"):
                async with client.get(path) as reply:
                    found[path] = reply.status, (await reply.text()).strip()
            return found

    return asyncio.run(ask())


@pytest.mark.parametrize(("seconds", "status"), [(0.0, 200), (STUCK, 200), (STUCK + 0.1, 503)])
def test_a_part_may_stand_still_for_so_long(seconds: float, status: int) -> None:
    found = answers(Part(), Part(seconds))
    assert {path: code for path, (code, _) in found.items()} == {"/livez": status, "/healthz": status, "/readyz": 200}
    assert ("stands still" in found["/livez"][1]) == (status == 503)


def test_what_is_not_ready_yet_is_named_and_is_no_reason_to_start_anew() -> None:
    found = answers(Part(unready="the first pass goes on"), Part(), Part(unready="watches are not in step"))
    assert found["/readyz"] == (503, "the first pass goes on; watches are not in step")
    assert found["/livez"] == (200, "ok")
