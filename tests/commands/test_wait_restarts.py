"""`gitops-ds wait` agrees with the health of an agent that restarts."""

from __future__ import annotations

import asyncio

import pytest

from gitops_ds import errors
from gitops_ds.apimachinery import timestamps
from gitops_ds.commands import wait
from gitops_ds.commands.wait import WaitOptions
from gitops_ds.model.objects import POD
from gitops_ds.simulator import virtual_time
from tests.apimachinery.kubelet_pods import container
from tests.simulator.setup import Setup, set_up


async def restarted(there: Setup, restarts: int) -> None:
    """The only agent ran for 20 seconds before a failed liveness probe, and is ready again."""
    now = virtual_time.clock()()
    end = {
        "exitCode": 137,
        "reason": "Error",
        "startedAt": timestamps.text(now - 21),
        "finishedAt": timestamps.text(now - 1),
    }
    running = {"running": {"startedAt": timestamps.text(now)}}
    status = container(running, {"terminated": end}, ready=True, restarts=restarts)
    [pod] = (await there.people.list(POD)).items
    name, patch = pod["metadata"]["name"], {"status": {"containerStatuses": [status]}}
    await there.people.patch(POD, "default", name, patch, subresource="status")


@pytest.mark.parametrize("restarts", [1, 5])
async def test_a_wait_ends_when_a_restarted_agent_has_settled(restarts: int) -> None:
    async with set_up(1) as there:
        there.begin()
        await asyncio.sleep(30)
        await restarted(there, restarts)
        clock, messages = asyncio.get_running_loop().time, list[str]()
        began, options = clock(), WaitOptions("ds/agent", clock=virtual_time.clock())
        waiting = wait.wait_for_rollout(there.people, "gitops-ds", options, messages.append)
        if restarts > 1:
            with pytest.raises(errors.FailedRollout, match="CrashLoopBackOff"):
                await waiting
            await asyncio.sleep(70)
            await wait.wait_for_rollout(there.people, "gitops-ds", options, messages.append)
        else:
            await waiting
            assert 59 <= clock() - began <= 65
            assert messages[0].startswith("Progressing")
        assert messages[-1] == "Healthy: 1 of 1 nodes available"
