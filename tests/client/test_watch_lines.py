"""The lines of a watch arrive complete and in order, however the server writes them and the
connection pauses between reads; the advice in the error for a refused request.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Sequence

import orjson
import pytest
import uvloop
from aiohttp import web

from gitops_ds.core.objects import CONFIG_MAP, NODE, POD, Resource
from gitops_ds.kube.client import wire
from gitops_ds.kube.client.config import ClientConfig
from gitops_ds.kube.client.kubeconfig import KubeconfigEntry
from gitops_ds.kube.client.rest import READ_BYTES, HttpCluster
from tests import gitservers
from tests.http_servers import serving

Loop = Callable[[], asyncio.AbstractEventLoop]

# the bytes of each write of the server, of a stream of lines
WRITES = {
    "a byte": 1,
    "less than a line": 700,
    "some lines": 9_000,
    "more than a small read": 3 * READ_BYTES,
    "everything": 10**9,
}
# the bytes of the data of each object
SIZES = (0, 10, 5_000, 20_000)
LARGE = (300_000, 1, 300_000)


def lines(sizes: Sequence[int]) -> bytes:
    """The stream: an event for each size, and an empty line after it."""
    events = (
        {
            "type": "ADDED",
            "object": {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": str(number), "resourceVersion": str(number)},
                "data": {"text": "x" * size},
            },
        }
        for number, size in enumerate(sizes)
    )
    return b"".join(orjson.dumps(event) + b"\n\n" for event in events)


async def received(stream: bytes, write: int, tls: bool, resource: Resource) -> list[int]:
    """The sizes that a watch returns, in the order of their numbers."""

    async def answer(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        await reply.prepare(request)
        for start in range(0, len(stream), write):
            await reply.write(stream[start : start + write])
        return reply

    app = web.Application()
    app.router.add_route("GET", "/{path:.*}", answer)
    context = gitservers.tls_context() if tls else None
    async with serving(app, context, shutdown_timeout=1) as url:
        entry = KubeconfigEntry(url, None)
        config = ClientConfig("a test", _client() if tls else None, entry, lambda: entry)
        async with HttpCluster(config) as cluster:
            bodies = [event.object async for event in cluster.watch(resource, "0")]
    assert [int(body["metadata"]["name"]) for body in bodies] == list(range(len(bodies)))
    return [len(body["data"]["text"]) for body in bodies]


def _client() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(gitservers._certificates()[2]))


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("resource", [CONFIG_MAP, POD, NODE], ids=str)
def test_a_watch_has_every_line_in_order(
    write: int, tls: bool, loop: Loop, resource: Resource
) -> None:
    sizes = (*SIZES, *(LARGE if write > max(SIZES) else ()), *(300 * SIZES if write > 1 else ()))
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(received(lines(sizes), write, tls, resource)) == list(sizes)


ACCOUNT = "system:serviceaccount:t2:deployer"


@pytest.mark.parametrize(
    ("user", "advice"),
    [
        (ACCOUNT, f"grant that permission to {ACCOUNT}"),
        ("service", "grant that permission to the account of KUBECONFIG"),
    ],
)
def test_advice_names_the_account_that_lacks_the_right(user: str, advice: str) -> None:
    message = f'services "s" is forbidden: User "{user}" cannot patch resource "services"'
    body = json.dumps({"kind": "Status", "reason": "Forbidden", "message": message}).encode()
    error = wire.error_for(403, body, None, "KUBECONFIG", ACCOUNT)
    assert advice in str(error)
