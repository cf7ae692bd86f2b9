"""A service keeps only its own objects whole, and lists an object again that becomes its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from gitops_ds.controller.observer import Observer
from gitops_ds.core import names
from gitops_ds.core.cluster import Selection
from gitops_ds.core.objects import CONFIG_MAP, CONTROLLER_REVISION, DAEMONSET, Body, key_of
from gitops_ds.deploy.watch_cache import WatchCache
from gitops_ds.kube.apimachinery import foreign_bodies, revisions
from gitops_ds.kube.client.owned_bodies import OwnedBodies
from gitops_ds.kube.client.supervisor import Supervisor
from gitops_ds.testing import simulator
from tests.plan.world import daemonset

OWN, OTHER = daemonset("own", "agent:1"), daemonset("other", "agent:1")
LABELLED = {names.OWNER_LABEL: "repository"}


def revision_of(body: Body) -> dict[str, Any]:
    name, uid = body["metadata"]["name"], body["metadata"]["uid"]
    reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": uid}
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "namespace": body["metadata"]["namespace"],
            "name": f"{name}-1",
            "ownerReferences": [{**reference, "controller": True}],
        },
        "revision": 1,
        "data": revisions.data(body["spec"]["template"]),
    }


def copied(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body with the label of an owner."""
    return {**body, "metadata": {**body["metadata"], "labels": LABELLED}}


async def create(cluster: simulator.SimulatedCluster, *bodies: Body) -> None:
    """Creates DaemonSets, each with a revision."""
    for body in bodies:
        created = await cluster.create(DAEMONSET, body)
        await cluster.create(CONTROLLER_REVISION, revision_of(created))


async def test_only_own_daemonsets_and_their_revisions_arrive_whole() -> None:
    bodies = OwnedBodies([key_of(OWN)])
    async with simulator.SimulatedCluster() as cluster:
        await create(cluster, OWN, copied(OTHER))
        for resource in OwnedBodies.REDUCED:
            listing = await cluster.client().list(resource, Selection(whole=bodies.whole))
            assert {
                body["metadata"]["name"][:3]: foreign_bodies.is_reduced(body)
                for body in listing.items
            } == {"own": False, "oth": True}


async def test_a_deployer_reads_a_daemonset_whole_that_it_takes_over() -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}
    metadata = {"namespace": OTHER["metadata"]["namespace"], "name": "c", "labels": LABELLED}
    async with simulator.SimulatedCluster() as cluster:
        await create(cluster, OWN, copied(OTHER))
        await cluster.create(CONFIG_MAP, {**config, "metadata": metadata})
        supervisor = Supervisor(lambda _: None, lambda: 0.0)
        cache = WatchCache(cluster.client(), "repository", lambda: None, lambda: 0.5, supervisor)
        key = key_of({**config, "metadata": metadata})
        wanted = {key_of(OWN): DAEMONSET, key_of(OTHER): DAEMONSET}
        for resources, is_reduced in (
            ({key_of(OWN): DAEMONSET}, True),
            (wanted, False),
            ({**wanted, key: CONFIG_MAP}, False),
        ):
            live = await cache.live(resources)
            assert foreign_bodies.is_reduced(live.objects[key_of(OTHER)]) is is_reduced
            assert not foreign_bodies.is_reduced(live.objects[key_of(OWN)])
        assert live.objects[key]["data"] == {"a": "b"}
        await cache.stop()


async def test_an_observer_lists_again_when_a_daemonset_becomes_owned() -> None:
    bodies = OwnedBodies([key_of(OWN)])
    async with simulator.SimulatedCluster() as cluster:
        await create(cluster, OWN, OTHER)
        observer = Observer(cluster.client(), lambda _: None, clock=lambda: 0.0, chance=lambda: 0.5)
        observer.keep_whole(bodies)
        task = asyncio.create_task(observer.run())
        await observer.synced.wait()
        seen = {key: observer.observe(key) for key in observer.keys}
        assert [foreign_bodies.is_reduced(one.daemonset.raw) for one in seen.values() if one] == [
            True,
            False,
        ]
        bodies.add([key_of(OTHER)])
        await asyncio.sleep(1)
        after = observer.observe(key_of(OTHER))
        assert after is not None
        assert not foreign_bodies.is_reduced(after.daemonset.raw)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
