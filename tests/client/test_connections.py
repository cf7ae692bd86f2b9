"""Connections to an API server: watches hold theirs for minutes, and no other request waits behind
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from gitops_ds.core import errors
from gitops_ds.core.cluster import Identity
from gitops_ds.core.objects import CONFIG_MAP, Body, Key, Resource
from gitops_ds.deploy.watch_cache import WatchCache
from gitops_ds.kube.client.config import ClientConfig
from gitops_ds.kube.client.fence import Fence
from gitops_ds.kube.client.kubeconfig import KubeconfigEntry
from gitops_ds.kube.client.rest import HttpCluster
from gitops_ds.kube.client.supervisor import Supervisor
from tests.http_servers import serving

# seconds; a request that waits for a connection waits for REQUEST_SECONDS, which is 30
PROMPT = 5.0


@dataclass
class Server:
    """Answers lists with nothing and keeps watches open; `watches` counts those.

    The next `refusals` requests get 429 with `retry_after` seconds. `writes` are the methods of the
    requests with a body; they get no response while `silent`.
    """

    watches: int = 0
    writes: list[str] = field(default_factory=list)
    refusals: int = 0
    retry_after: str = "0.05"
    silent: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if await request.read():
            self.writes.append(request.method)
            if self.silent:
                await self.ended.wait()
        if self.refusals:
            self.refusals -= 1
            return web.Response(status=429, headers={"Retry-After": self.retry_after})
        if "watch" in request.query:
            reply = web.StreamResponse()
            await reply.prepare(request)
            self.watches += 1
            await self.ended.wait()
            return reply
        kind = request.path.rsplit("/", 1)[-1]
        if kind == "none":
            return web.json_response(
                {"kind": "Status", "reason": "NotFound", "message": "not found"}, status=404
            )
        if kind == "one":
            return web.json_response(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
            )
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})


@contextlib.asynccontextmanager
async def connected(
    fence: Fence | None = None,
) -> AsyncIterator[tuple[Server, HttpCluster]]:
    server, app = Server(), web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    async with serving(app, shutdown_timeout=1) as url:
        entry = KubeconfigEntry(url, None)
        config = ClientConfig("a test", None, entry, lambda: entry)
        async with HttpCluster(config, fence=fence) as cluster:
            yield server, cluster
            server.ended.set()


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not done():
            await asyncio.sleep(0.01)


async def prompt(request: Awaitable[Body]) -> Body:
    async with asyncio.timeout(PROMPT):
        return await request


def test_a_request_that_is_throttled_waits_as_long_and_as_often_as_client_go_does() -> None:
    async def scene() -> None:
        async with connected() as (server, cluster):
            server.refusals = 10
            assert (await prompt(cluster.get(CONFIG_MAP, "default", "one")))["metadata"][
                "name"
            ] == "one"
            server.refusals = 11
            with pytest.raises(errors.TooManyRequests):
                await prompt(cluster.get(CONFIG_MAP, "default", "one"))
            server.refusals, server.retry_after = 1, "200"
            with pytest.raises(errors.TooManyRequests) as raised:
                await prompt(cluster.get(CONFIG_MAP, "default", "one"))
            assert raised.value.retry_after == 200

    asyncio.run(scene())


ONE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "a", "name": "one"}}
WRITES: dict[str, Callable[[HttpCluster], Awaitable[object]]] = {
    "create": lambda cluster: cluster.create(CONFIG_MAP, ONE),
    "replace": lambda cluster: cluster.replace(CONFIG_MAP, ONE),
    "apply": lambda cluster: cluster.apply(CONFIG_MAP, ONE, manager="test"),
    "patch": lambda cluster: cluster.patch(CONFIG_MAP, "a", "one", {"data": {}}),
    "delete": lambda cluster: cluster.delete(CONFIG_MAP, "a", "one"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_is_sent_only_before_its_fence_closes_and_a_read_in_any_case(
    write: Callable[[HttpCluster], Awaitable[object]],
) -> None:
    checked, closes_at = 0, 0

    class Counted(Fence):
        def check(self) -> None:
            nonlocal checked
            checked += 1
            if checked == closes_at:
                self.close()
            super().check()

    async def scene() -> None:
        nonlocal closes_at
        fence = Counted(lambda: 0.0)
        async with connected(fence) as (server, cluster):
            await prompt(cluster.get(CONFIG_MAP, "a", "one"))
            for client in (cluster, cluster.acting_as(Identity("deployer"))):
                with pytest.raises(errors.NotLeading):
                    await write(client)
                assert server.writes == []
            fence.move(1.0)
            closes_at = checked + 2  # the first is before the request, the second before its bytes
            with pytest.raises(errors.NotLeading):
                await write(cluster)
            assert (server.writes, checked) == ([], closes_at)
            fence.move(1.0)
            await write(cluster)
            assert len(server.writes) == 1
            fence.close()
            await prompt(cluster.get(CONFIG_MAP, "a", "one"))

    asyncio.run(scene())


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_that_is_pending_when_its_fence_closes_is_cancelled(
    write: Callable[[HttpCluster], Awaitable[object]],
) -> None:
    async def scene() -> None:
        fence = Fence(lambda: 0.0)
        fence.move(600.0)
        async with connected(fence) as (server, cluster):
            server.silent = True
            pending = asyncio.ensure_future(write(cluster))
            await until(lambda: bool(server.writes))
            fence.close()
            with pytest.raises(errors.NotLeading, match="its outcome is unknown"):
                async with asyncio.timeout(PROMPT):
                    await pending

    asyncio.run(scene())


@pytest.fixture
def many_sockets() -> None:
    """Both ends of each connection belong to this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (hard if hard == resource.RLIM_INFINITY else min(hard, 8192), hard)
    )


async def watch(cluster: HttpCluster, kind: Resource) -> None:
    async for _ in cluster.watch(kind, "1"):
        pass


@pytest.mark.parametrize("number", [1, 64, 200])
def test_a_request_does_not_wait_behind_watches(number: int) -> None:
    async def scene() -> None:
        async with connected() as (server, cluster):
            watches = [asyncio.create_task(watch(cluster, CONFIG_MAP)) for _ in range(number)]
            await until(lambda: server.watches == number)
            assert (await prompt(cluster.get(CONFIG_MAP, "default", "one")))["metadata"][
                "name"
            ] == "one"
            for task in watches:
                task.cancel()

    asyncio.run(scene())


@pytest.mark.slow
def test_ten_repositories_with_a_hundred_kinds_each_watch_all_of_them(many_sockets: None) -> None:
    kinds = [
        Resource("example.com", "v1", f"Kind{number}", f"kinds{number}", namespaced=True)
        for number in range(100)
    ]

    async def scene() -> None:
        async with connected() as (server, cluster):
            supervisor = Supervisor(lambda _: None, lambda: 0.0)
            repositories = [
                WatchCache(cluster, f"owner-{number}", lambda: None, lambda: 0.5, supervisor)
                for number in range(10)
            ]
            expected = {Key(kind.group, kind.kind, "default", "none"): kind for kind in kinds}
            async with asyncio.timeout(60):
                await asyncio.gather(*(caches.live(expected) for caches in repositories))
            # DaemonSets, their revisions and nodes as well
            await until(lambda: server.watches == 10 * (100 + 3))
            assert (await prompt(cluster.get(CONFIG_MAP, "default", "one")))["metadata"][
                "name"
            ] == "one"
            for caches in repositories:
                await caches.stop()

    asyncio.run(scene())
