"""The pages of a list: in their order, and the next one is requested while one is decoded."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from gitops_ds.core import errors
from gitops_ds.core.cluster import BRIEF, EVERYTHING, Selection
from gitops_ds.core.objects import CONFIG_MAP, POD, Body, Resource
from gitops_ds.kube.client.config import ClientConfig
from gitops_ds.kube.client.kubeconfig import KubeconfigEntry
from gitops_ds.kube.client.rest import HttpCluster
from tests.client.test_connections import until
from tests.http_servers import serving

EACH = 120  # objects of a page: several chunks


def items(first: int) -> list[Any]:
    numbers = range(first, first + EACH)
    return [{"metadata": {"namespace": "a", "name": f"n-{number}"}} for number in numbers]


def reduced(body: Body) -> bool:
    """No body arrives whole."""
    return False


@contextlib.asynccontextmanager
async def served(pages: list[list[Any]]) -> AsyncIterator[tuple[HttpCluster, list[str]]]:
    """A server with these pages, and the tokens that were requested."""
    requested = list[str]()

    async def answer(request: web.Request) -> web.Response:
        token = request.query.get("continue", "0")
        requested.append(token)
        following = str(int(token) + 1)
        metadata = {"resourceVersion": "7"}
        if int(following) < len(pages):
            metadata["continue"] = following
        return web.json_response({"metadata": metadata, "items": pages[int(token)]})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with serving(app, shutdown_timeout=1) as url:
        entry = KubeconfigEntry(url, None)
        async with HttpCluster(ClientConfig("a test", None, entry, lambda: entry)) as cluster:
            yield cluster, requested


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize(
    ("resource", "which"),
    [(CONFIG_MAP, EVERYTHING), (CONFIG_MAP, Selection(whole=reduced)), (POD, BRIEF)],
    ids=["whole", "reduced", "brief"],
)
async def test_a_list_has_the_objects_of_all_pages_in_their_order(
    resource: Resource, which: Selection, count: int
) -> None:
    async with served([items(page * EACH) for page in range(count)]) as (cluster, requested):
        listing = await cluster.list(resource, which)
        names = [body["metadata"]["name"] for body in listing.items]
    assert names == [f"n-{number}" for number in range(count * EACH)]
    assert requested == [str(page) for page in range(count)]
    assert listing.version == "7"


async def test_the_next_page_is_requested_while_a_page_is_decoded() -> None:
    malformed = [*items(0), 5]  # the last item, which is decoded last
    async with served([malformed, items(EACH)]) as (cluster, requested):
        with pytest.raises(errors.ClusterError):
            await cluster.list(CONFIG_MAP)
        await until(lambda: requested == ["0", "1"])


async def test_a_malformed_last_page_is_an_error() -> None:
    async with served([items(0), [*items(EACH), 5]]) as (cluster, _):
        with pytest.raises(errors.ClusterError):
            await cluster.list(CONFIG_MAP)
