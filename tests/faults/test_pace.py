"""How requests go out after an API server was away, in virtual time."""

from __future__ import annotations

import asyncio

from gitops_ds.kube.client import transport


async def sent(paced: transport.ReconnectThrottle, count: int) -> list[float]:
    """When each of so many requests went out that want to at once, in seconds from now."""
    loop = asyncio.get_running_loop()
    began, found = loop.time(), []

    async def one() -> None:
        await paced.wait()
        found.append(loop.time() - began)
        paced.answered()

    await asyncio.gather(*(one() for _ in range(count)))
    return found


async def test_no_request_waits_while_the_server_is_healthy_nor_after_a_short_failure() -> None:
    paced = transport.ReconnectThrottle(asyncio.get_running_loop().time)
    assert max(await sent(paced, 500)) == 0
    paced.failed()
    await asyncio.sleep(transport.AWAY / 2)
    assert max(await sent(paced, 500)) == 0


async def test_after_an_outage_requests_go_out_one_after_the_other_for_half_a_minute() -> None:
    paced = transport.ReconnectThrottle(asyncio.get_running_loop().time)
    for _ in range(30):
        paced.failed()
        await asyncio.sleep(10)
    times = await sent(paced, 200)
    assert (
        max(sum(at <= other < at + 1 for other in times) for at in times) <= transport.A_SECOND + 1
    )
    assert times[-1] < 200 / transport.A_SECOND + 0.1
    await asyncio.sleep(transport.SLOWLY)
    assert max(await sent(paced, 500)) == 0
