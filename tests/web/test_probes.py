"""The probes of the kubelet: a loop without progress requires a restart, one that only works long
does not.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gitops_ds.core.sources.source_status import EFFECTS, Condition, SourceStatus
from gitops_ds.service.http import STUCK, Probes
from gitops_ds.service.runnable import DeployerPart
from gitops_ds.service.settings.listen import Readiness
from gitops_ds.service.web import connections, server
from tests.web import attacks


@dataclass
class Part:
    """A part of the service, as a probe sees it."""

    seconds_without_progress: float = 0.0
    unready: str = ""

    async def run(self) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""


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
def test_a_part_without_progress_is_live_until_the_limit(seconds: float, status: int) -> None:
    found = answers(Part(), Part(seconds))
    assert {path: code for path, (code, _) in found.items()} == {
        "/livez": status,
        "/healthz": status,
        "/readyz": 200,
    }
    assert ("made no progress" in found["/livez"][1]) == (status == 503)


def test_a_part_that_is_not_ready_is_named_and_causes_no_restart() -> None:
    found = answers(
        Part(unready="the first pass continues"), Part(), Part(unready="watches are not in step")
    )
    assert found["/readyz"] == (503, "the first pass continues; watches are not in step")
    assert found["/livez"] == (200, "ok")


class Followed(DeployerPart):
    """A deployer whose repository has that condition."""

    unready = ""

    def __init__(self, condition: Condition) -> None:
        self.condition = condition

    @property
    def status(self) -> SourceStatus:
        return SourceStatus("fleet", "example.com/fleet", condition=self.condition, message="why")

    async def run(self) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""


@pytest.mark.parametrize("condition", Condition)
def test_readiness_follows_the_condition_where_the_settings_say_so(condition: Condition) -> None:
    part = Followed(condition)
    assert Probes([part], None).unready() == ""
    unready = Probes([part], None, Readiness.SYNCED).unready()
    assert unready == ("" if EFFECTS[condition].ready else "example.com/fleet: why")


def test_connections_to_the_common_port_and_to_their_own_block_no_probe() -> None:
    async def main() -> None:
        routes = server.probes(lambda: "", lambda: "")
        common = await server.serve("127.0.0.1:0", routes)
        alone = await server.serve("127.0.0.1:0", routes, door=server.probe_door())
        ports, start = [port_of(common), port_of(alone)], attacks.half_request()
        try:
            async with (
                attacks.held(ports[0], ["127.0.0.1"], connections.CONNECTIONS + 120, start),
                attacks.held(ports[1], ["127.0.0.1", "127.0.0.3"], 150, start),
            ):
                for port in ports * 3:
                    for address in ("127.0.0.1", "127.0.0.2"):
                        probe = attacks.head({}, "/healthz", "GET")
                        assert await attacks.send(port, probe, address=address) == 200
        finally:
            await common.cleanup()
            await alone.cleanup()

    asyncio.run(main())


def port_of(runner: web.AppRunner) -> int:
    return int(runner.addresses[0][1])
