"""The whole controller on the simulated API server, in virtual time: it makes the fleet right,
regardless of what happens to it.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops_ds.controller.observer import LIST_NODES_AGAIN
from gitops_ds.core.cluster import Propagation
from gitops_ds.core.decision import CreatePod, Powers
from gitops_ds.core.events import base
from gitops_ds.core.health import HealthState
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, NODE, POD, key_of
from gitops_ds.daemonset import pod_changes
from gitops_ds.kube.apimachinery import daemonsets, pods, revisions
from gitops_ds.status import health
from gitops_ds.testing.simulator import faults
from tests import profiles
from tests.daemonset import world
from tests.simulator.setup import KEY, daemonset, each, named, play, set_up


async def test_every_node_gets_a_pod_and_the_status_counts_it() -> None:
    async with set_up(5) as there:
        controller = there.begin()
        await asyncio.sleep(10)
        assert await there.pods() == each(5)
        status = await there.status()
        assert (
            status["desiredNumberScheduled"],
            status["numberAvailable"],
            status["observedGeneration"],
        ) == (5, 5, 1)
        seen = controller.observer.observe(KEY)
        assert health.judge(seen).state is HealthState.HEALTHY
        assert not [
            r
            for r in there.records
            if isinstance(r, base.ActionFailed | base.StatusFailed | base.WatchFailed)
        ]


async def test_a_rollout_and_its_rollback_end_with_the_first_revision() -> None:
    async with set_up(4, latency=0.01) as there:
        there.begin()
        for image, numbers in (("agent:1", [1]), ("agent:2", [1, 2]), ("agent:1", [2, 3])):
            await there.edit(image)
            await asyncio.sleep(60)
            assert await there.pods() == each(4, image)
            held = (await there.people.list(CONTROLLER_REVISION)).items
            assert sorted(body["revision"] for body in held) == numbers


@settings(max_examples=profiles.examples(25), deadline=None)
@given(lives=st.lists(st.floats(0.005, 0.4), min_size=1, max_size=6), surge=st.booleans())
def test_killed_at_any_instant_it_creates_no_pod_twice_and_continues(
    lives: list[float], surge: bool
) -> None:
    async def scene() -> None:
        body = daemonset(updateStrategy=world.rolling(0, 2) if surge else world.rolling(2))
        async with set_up(6, body, latency=0.01) as there:
            for life in lives:
                there.begin()
                await asyncio.sleep(life)
                assert max((await there.pods()).values(), default=1) == 1
                await there.kill()
            await there.edit("agent:2")
            there.begin()
            there.begin()
            await asyncio.sleep(60)
            assert await there.pods() == each(6, "agent:2")

    play(scene)


async def test_two_controllers_at_once_create_each_pod_once() -> None:
    async with set_up(20, latency=0.01) as there:
        there.begin()
        there.begin()
        await asyncio.sleep(30)
        made = [
            r.object
            for r in there.records
            if isinstance(r, base.Performed) and isinstance(r.action, CreatePod)
        ]
        assert len(made) == len(set(made)) == 20


async def test_a_fleet_larger_than_a_burst_is_created_without_watch_events() -> None:
    async with set_up(300) as there:
        there.cluster.faults = lambda request: (
            faults.failure(503) if request.verb == "watch" else None
        )
        there.begin()
        await asyncio.sleep(0.5)
        assert sum((await there.pods()).values()) == pod_changes.BURST
        await asyncio.sleep(320)  # by lists in place of the watch, or when the wait for it ends
        assert await there.pods() == each(300)


@pytest.mark.slow
async def test_creates_wait_for_a_pods_watch_that_lags() -> None:
    async with set_up(600, latency=0.01) as there:
        loop = asyncio.get_running_loop()
        there.cluster.lag = lambda resource: (
            max(0.0, 60.0 - loop.time()) if resource == POD else 0.0
        )
        there.begin()
        await asyncio.sleep(55)
        assert sum((await there.pods()).values()) == pod_changes.BURST
        await asyncio.sleep(10)
        assert await there.pods() == each(600)


def test_the_next_reconciliation_is_scheduled_also_after_a_failed_one() -> None:
    """Upstream sets its timer for minReadySeconds regardless of the result of the sync
    (daemon_controller.go, updateDaemonSetStatus).
    """

    def refused(request: faults.SimulatedRequest) -> faults.RequestFault | None:
        return (
            faults.failure(403, "exceeded quota")
            if denied and request.verb == "create" and request.resource == POD
            else None
        )

    denied = False

    async def scene() -> None:
        nonlocal denied
        async with set_up(3, daemonset(minReadySeconds=120)) as there:
            there.cluster.faults = refused
            there.begin()
            await asyncio.sleep(10)
            denied = True
            there.cluster.add_nodes(named([3]))
            await asyncio.sleep(114)
            assert (await there.status())["numberAvailable"] == 3

    play(scene)


async def test_a_refused_create_holds_up_no_other_node() -> None:
    def refused(request: faults.SimulatedRequest) -> faults.RequestFault | None:
        return (
            faults.failure(403, "no")
            if request.verb == "create" and request.resource == POD and unlucky(request.name)
            else None
        )

    def unlucky(name: str) -> bool:
        return names.setdefault(name, len(names)) == 0

    names: dict[str, int] = {}
    async with set_up(5) as there:
        there.cluster.faults = refused
        there.begin()
        await asyncio.sleep(30)
        assert sum((await there.pods()).values()) == 4


async def test_a_quota_for_some_stops_the_rest_before_they_are_tried() -> None:
    tried = 0

    def refused(request: faults.SimulatedRequest) -> faults.RequestFault | None:
        nonlocal tried
        tried += request.verb == "create" and request.resource == POD
        return faults.failure(403, "exceeded quota") if tried > 10 else None

    async with set_up(100) as there:
        there.cluster.faults = refused
        there.begin()
        await asyncio.sleep(0.004)
        assert 10 < tried <= 1 + 2 + 4 + 8
        await asyncio.sleep(60)
        assert tried <= 60


@pytest.mark.parametrize(("denied", "at_once"), [(False, [1, 16]), (True, [1] * 5)])
async def test_all_deletes_follow_the_first_one_if_it_is_accepted(
    denied: bool, at_once: list[int]
) -> None:
    sent = Counter[float]()  # by the second

    def deletes(request: faults.SimulatedRequest) -> faults.RequestFault | None:
        if request.verb != "delete" or request.resource != POD:
            return None
        sent[asyncio.get_running_loop().time()] += 1
        return faults.failure(403, "denied") if denied else None

    body = daemonset(updateStrategy=world.rolling("100%"))
    async with set_up(17, body, latency=0.1) as there:
        there.begin()
        await asyncio.sleep(30)
        there.cluster.faults = deletes
        await there.edit("agent:2")
        await asyncio.sleep(5)
        assert list(sent.values())[:5] == at_once


@pytest.mark.parametrize("powers", [Powers.OBSERVE, Powers.PACE])
async def test_without_full_powers_nothing_is_written(powers: Powers) -> None:
    async with set_up(3) as there:
        there.begin(powers)
        await asyncio.sleep(1000)
        assert there.cluster.count.writes == 0
        decided = [r for r in there.records if isinstance(r, base.Decided)]
        assert bool(decided) == (powers is Powers.OBSERVE)
        assert not any(r.performed for r in decided)


async def test_a_quiet_hour_costs_nothing_but_new_watches_and_lists_of_nodes() -> None:
    async with set_up(5, watch_for=600.0) as there:
        there.begin()
        await asyncio.sleep(100)
        there.cluster.count.reset()
        await asyncio.sleep(3600)
        assert there.cluster.count.writes == 0
        # Each ten minutes a watch ends, and an empty list shows that the world is still the
        # same; nodes are listed each five.
        assert there.cluster.count.of("watch") == there.cluster.count.of("list") == 3 * 6 + 12


async def test_a_revision_name_that_is_taken_raises_the_collision_count() -> None:
    async with set_up(1) as there:
        live_object = daemonsets.daemonset_of(await there.people.get(DAEMONSET, "default", "agent"))
        body = revisions.new(live_object, 1)
        foreign = {**body["metadata"], "labels": {}, "ownerReferences": []}
        await there.people.create(
            CONTROLLER_REVISION, {**body, "metadata": foreign, "data": {"other": True}}
        )
        there.begin()
        await asyncio.sleep(30)
        assert (await there.status())["collisionCount"] == 1
        assert await there.pods() == each(1)


async def test_a_new_revision_has_a_higher_number_than_one_that_its_watch_has_not_shown() -> None:
    async with set_up(1) as there:
        there.begin()
        await asyncio.sleep(10)
        there.cluster.lag = lambda resource: 60.0 if resource == CONTROLLER_REVISION else 0.0
        live_object = copy.deepcopy(await there.people.get(DAEMONSET, "default", "agent"))
        live_object["spec"]["template"]["spec"]["containers"][0]["image"] = "agent:2"
        (first,) = (await there.people.list(CONTROLLER_REVISION)).items
        taken = revisions.new(daemonsets.daemonset_of(live_object), 2)
        await there.people.create(CONTROLLER_REVISION, {**taken, "data": first["data"]})
        await there.edit("agent:2")
        await asyncio.sleep(30)
        made = (await there.people.list(CONTROLLER_REVISION)).items
        assert sorted(body["revision"] for body in made) == [1, 2, 3]


async def test_a_failed_pod_is_replaced_and_pods_of_removed_nodes_are_deleted() -> None:
    async with set_up(2) as there:
        there.begin()
        await asyncio.sleep(10)
        (first, _) = (await there.people.list(POD)).items
        name = first["metadata"]["name"]
        await there.people.patch(
            POD, "default", name, {"status": {"phase": "Failed"}}, subresource="status"
        )
        await asyncio.sleep(10)
        assert await there.pods() == each(2)
        assert name not in {
            body["metadata"]["name"] for body in (await there.people.list(POD)).items
        }
        there.cluster.remove_node("node-1")
        await asyncio.sleep(200)
        assert await there.pods() == each(1)
        assert (await there.status())["desiredNumberScheduled"] == 1


async def test_stop_ends_the_run_and_begins_nothing_more() -> None:
    async with set_up(2) as there:
        controller = there.begin()
        await asyncio.sleep(10)
        controller.stop()
        await asyncio.wait_for(there.controllers[0], 1)
        await there.edit("agent:2")
        await asyncio.sleep(60)
        assert await there.pods() == each(2)


async def test_the_nodes_are_listed_on_a_schedule_independently_of_the_watch() -> None:
    async with set_up(1, watch_for=100_000.0) as there:
        deaf = there.cluster.client()
        deaf.lag = lambda resource: 1e6 if resource == NODE else 0.0
        there.begin(client=deaf)
        await asyncio.sleep(10)
        there.cluster.add_nodes(named([1]))
        await asyncio.sleep(60)
        assert await there.pods() == each(1)
        await asyncio.sleep(LIST_NODES_AGAIN)
        assert await there.pods() == each(2)


async def test_a_daemonset_in_deletion_adopts_nothing_before_its_watch_shows_the_deletion() -> None:
    async with set_up(1) as there:
        there.begin()
        await asyncio.sleep(10)
        there.cluster.lag = lambda resource: 60.0 if resource == DAEMONSET else 0.0
        kept = {"metadata": {"finalizers": ["example.com/held"]}}
        await there.people.patch(DAEMONSET, "default", "agent", kept)
        await there.people.delete(DAEMONSET, "default", "agent", propagation=Propagation.ORPHAN)
        for seconds in (30, 120):
            await asyncio.sleep(seconds)
            (orphan,) = (await there.people.list(POD)).items
            assert pods.pod_of(orphan).owner is None


async def test_an_internal_error_at_one_daemonset_delays_no_other_and_is_retried() -> None:
    other = {**daemonset(), "metadata": {"name": "other", "namespace": "default"}}
    other["spec"] = json.loads(json.dumps(other["spec"]).replace("agent", "other"))
    async with set_up(3) as there:
        await there.people.create(DAEMONSET, other)
        failing = True

        def fail(event: base.Event) -> None:
            if failing and isinstance(event, base.Decided) and event.seen.daemonset.key == KEY:
                raise KeyError("nodes")

        there.subscribers.append(fail)
        there.expects_errors = True
        controller = there.begin()
        await asyncio.sleep(60)
        seen = controller.observer.observe(key_of(other))
        assert health.judge(seen).state is HealthState.HEALTHY
        restarts = [record for record in there.records if isinstance(record, base.TaskRestarted)]
        assert 1 < len(restarts) < 30
        assert f"{KEY}: KeyError" in restarts[0].text()
        failing = False
        await asyncio.sleep(400)
        assert health.judge(controller.observer.observe(KEY)).state is HealthState.HEALTHY
