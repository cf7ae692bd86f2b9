"""Powers `full` beside another DaemonSet controller: refused at the start, and ended when one turns
up later.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from gitops_ds.controller import conflict_probe
from gitops_ds.core.decision import Powers
from gitops_ds.core.errors import NotFound, Refused
from gitops_ds.core.objects import DAEMONSET, NAMESPACE, POD
from gitops_ds.daemonset import competing_controller
from gitops_ds.daemonset.competing_controller import CompetingControllers
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import virtual_time
from tests.simulator import setup

COUNTED = {
    "desiredNumberScheduled": 0,
    "currentNumberScheduled": 0,
    "numberMisscheduled": 0,
    "numberReady": 0,
    "observedGeneration": 1,
}


async def count(rival: simulator.Client, namespace: str, name: str, **status: Any) -> None:
    """Writes a status as another controller does."""
    body = dict(await rival.get(DAEMONSET, namespace, name))
    await rival.patch(
        DAEMONSET,
        namespace,
        name,
        {"status": {**(body.get("status") or {}), **status}},
        subresource="status",
    )


def refused(group: BaseExceptionGroup[Exception]) -> bool:
    return group.subgroup(Refused) is not None


async def test_alone_it_starts_and_leaves_no_probe_behind() -> None:
    async with setup.set_up(1) as there:
        await conflict_probe.only_one(there.cluster, "gitops-ds", virtual_time.clock())
        assert competing_controller.is_probe(
            await there.people.get(DAEMONSET, "gitops-ds", competing_controller.PROBE)
        )
        there.begin()
        await asyncio.sleep(20)
        assert (
            "observedGeneration"
            not in (await there.people.get(DAEMONSET, "gitops-ds", competing_controller.PROBE))[
                "status"
            ]
        )
        await conflict_probe.remove(there.cluster, "gitops-ds")
        with pytest.raises(NotFound):
            await there.people.get(DAEMONSET, "gitops-ds", competing_controller.PROBE)


async def test_a_probe_that_another_controller_adopts_prevents_the_start() -> None:
    async with setup.set_up(1) as there:
        rival = there.cluster.client("kube-controller-manager")

        async def taking_it_up() -> None:
            while True:
                with contextlib.suppress(NotFound):
                    await count(rival, "gitops-ds", competing_controller.PROBE, **COUNTED)
                await asyncio.sleep(0.5)

        other = asyncio.create_task(taking_it_up())
        for _ in range(2):  # also when the taken probe of the first start is still there
            with pytest.raises(Refused, match="kube-controller-manager writes the status"):
                await conflict_probe.only_one(there.cluster, "gitops-ds", virtual_time.clock())
        other.cancel()


async def test_after_a_crash_the_old_probe_answers_at_once() -> None:
    async with setup.set_up(1) as there:
        await there.people.create(
            NAMESPACE,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gitops-ds"}},
        )
        await there.people.create(DAEMONSET, competing_controller.probe("gitops-ds"))
        await asyncio.sleep(60)
        loop = asyncio.get_running_loop()
        before = loop.time()
        await conflict_probe.only_one(there.cluster, "gitops-ds", virtual_time.clock())
        assert loop.time() - before < 1


async def test_a_competing_controller_that_starts_later_stops_ours() -> None:
    async with setup.set_up(2) as there:
        rival = there.cluster.client("kube-controller-manager")
        await count(rival, "default", "agent", **COUNTED)  # it counted before our start
        there.begin()
        await asyncio.sleep(20)
        assert (await there.status())["numberReady"] == 2
        condition = {"type": "Paged", "status": "True"}
        await there.people.patch(
            DAEMONSET,
            "default",
            "agent",
            {"status": {"conditions": [condition]}},
            subresource="status",
        )
        await asyncio.sleep(20)
        (ours,) = there.controllers
        assert not ours.done()
        for number in (7, 8, 9):
            assert not ours.done()
            await count(rival, "default", "agent", numberMisscheduled=number, observedGeneration=1)
            await asyncio.sleep(5)
        with pytest.raises(BaseExceptionGroup, check=refused):
            ours.result()
        there.controllers.clear()
        pods = len((await there.people.list(POD)).items)
        assert pods == 2


async def test_without_the_power_to_write_no_controller_competes() -> None:
    async with setup.set_up(1) as there:
        there.begin(Powers.OBSERVE)
        await asyncio.sleep(5)
        await count(there.cluster.client("kube-controller-manager"), "default", "agent", **COUNTED)
        await asyncio.sleep(5)
        assert not there.controllers[0].done()


def body(uid: str, *entries: tuple[str, str, str]) -> dict[str, Any]:
    fields = [
        {
            "manager": manager,
            "time": time,
            "subresource": "status",
            "fieldsV1": {"f:status": {field: {}}},
        }
        for manager, time, field in entries
    ]
    return {"metadata": {"uid": uid, "managedFields": fields}}


NUMBERS, CONDITIONS = "f:currentNumberScheduled", "f:conditions"


@pytest.mark.parametrize(
    ("news", "rival"),
    [
        (body("one", ("kcm", "t1", NUMBERS)), ""),
        (body("one", ("kcm", "t2", NUMBERS)), "kcm"),
        (body("one", ("kcm", "t1", NUMBERS), ("gitops-ds", "t2", NUMBERS)), ""),
        (body("one", ("kcm", "t1", NUMBERS), ("e2e.test", "t2", CONDITIONS)), ""),
        (body("new", ("kcm", "t2", NUMBERS)), "kcm"),
        (body("new"), ""),
        ({"metadata": {"uid": "one"}}, ""),
    ],
)
def test_a_controller_that_counts_after_our_start_competes(
    news: dict[str, Any], rival: str
) -> None:
    rivals = CompetingControllers(patience=1)
    scene = body("one", ("kcm", "t1", NUMBERS))
    assert rivals.listed([scene]) == ""
    assert rivals.changed(news) == rival
    again = CompetingControllers(patience=1)
    again.listed([scene])
    assert again.listed([news]) == rival  # seen by a list, after the watch was lost
