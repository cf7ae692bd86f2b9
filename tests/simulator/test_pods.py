"""Scheduler, kubelets and nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.live import Taint
from gitops_ds.core.objects import NODE, POD
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import Behaviour, NodeSpec, PodFault, Trouble
from tests.simulator import stage

play = stage.play


async def _node(cluster: simulator.SimulatedCluster, name: str) -> str:
    return str((await cluster.get(POD, "default", name))["spec"].get("nodeName", ""))


async def _why(cluster: simulator.SimulatedCluster, name: str) -> str:
    conditions = (await cluster.get(POD, "default", name))["status"]["conditions"]
    (condition,) = (c for c in conditions if c["type"] == "PodScheduled")
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    return str(condition["message"])


@pytest.mark.play(nodes=3, behaviour=Behaviour(pull=5, start=2))
async def test_a_pod_runs_on_the_node_that_it_names_and_becomes_ready_in_time(
    cluster: simulator.SimulatedCluster, /
) -> None:
    made = await cluster.create(POD, stage.pod("p", "node-1"))
    assert (made["status"]["phase"], made["status"]["qosClass"]) == ("Pending", "BestEffort")
    await asyncio.sleep(4.9)
    assert await stage.phase(cluster, "p") == ("Pending", False, "ContainerCreating")
    await asyncio.sleep(0.2)
    assert await _node(cluster, "p") == "node-1"
    assert await stage.phase(cluster, "p") == ("Running", False, "")
    await asyncio.sleep(2)
    assert await stage.phase(cluster, "p") == ("Running", True, "")
    await cluster.create(POD, stage.pod("q", "node-1"))
    await asyncio.sleep(2.1)
    # the image is on the node
    assert await stage.phase(cluster, "q") == ("Running", True, "")


async def test_a_pod_without_a_fitting_node_waits_and_has_the_reason(
    cluster: simulator.SimulatedCluster, /
) -> None:
    cluster.add_nodes(
        [NodeSpec("full", {"pool": "a"}, room={"cpu": "1", "memory": "1Gi", "pods": "9"})]
    )
    cluster.add_nodes([NodeSpec("gpu", {"pool": "b"}, (Taint("gpu", "NoSchedule"),))])
    port = [{"name": "c", "image": "i", "ports": [{"containerPort": 1, "hostPort": 99}]}]
    asks = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "600m"}}}]
    rows: list[tuple[str, dict[str, Any], str]] = [
        ("first", {"containers": port, "nodeSelector": {"pool": "a"}}, ""),
        ("port", {"containers": port, "nodeSelector": {"pool": "a"}}, "free ports"),
        ("half", {"containers": asks, "nodeSelector": {"pool": "a"}}, ""),
        ("cpu", {"containers": asks, "nodeSelector": {"pool": "a"}}, "Insufficient cpu"),
        ("taint", {"nodeSelector": {"pool": "b"}}, "untolerated taint"),
        (
            "tolerant",
            {"nodeSelector": {"pool": "b"}, "tolerations": [{"operator": "Exists"}]},
            "",
        ),
        (
            "nowhere",
            {"nodeSelector": {"pool": "c"}},
            "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity",
        ),
    ]
    for name, spec, _ in rows:
        await cluster.create(POD, stage.pod(name, **spec))
    await asyncio.sleep(10)
    for name, _, why in rows:
        if why:
            assert await _node(cluster, name) == ""
            assert why in await _why(cluster, name), name
        else:
            assert await _node(cluster, name), name
    await cluster.delete(POD, "default", "half")
    await cluster.patch(NODE, "", "gpu", {"spec": {"taints": None}})
    await asyncio.sleep(60)
    assert (await _node(cluster, "cpu"), await _node(cluster, "taint")) == ("full", "gpu")


@pytest.mark.play(nodes=1)
async def test_a_scheduler_of_ones_own_is_waited_for(
    cluster: simulator.SimulatedCluster, /
) -> None:
    await cluster.create(POD, stage.pod("p", "node-0", schedulerName="mine"))
    await asyncio.sleep(60)
    assert await _node(cluster, "p") == ""


def test_images_have_their_troubles() -> None:
    faults = (
        PodFault("*:gone", Trouble.NEVER_PULLED),
        PodFault("*:crash", Trouble.CRASHES),
        PodFault("*:deaf", Trouble.NEVER_READY),
        PodFault("*:odd", Trouble.NEVER_READY, nodes="node-1"),
    )

    async def scene(cluster: simulator.SimulatedCluster) -> None:
        for image in ("gone", "crash", "deaf", "odd"):
            await cluster.create(POD, stage.pod(image, "node-0", f"agent:{image}"))
        await cluster.create(POD, stage.pod("odd-too", "node-1", "agent:odd"))
        await asyncio.sleep(2.5)
        assert await stage.phase(cluster, "gone") == ("Pending", False, "ErrImagePull")
        await asyncio.sleep(30)
        assert await stage.phase(cluster, "gone") == ("Pending", False, "ImagePullBackOff")
        assert await stage.phase(cluster, "crash") == ("Running", False, "CrashLoopBackOff")
        assert await stage.phase(cluster, "deaf") == ("Running", False, "")
        assert await stage.phase(cluster, "odd") == ("Running", True, "")
        assert await stage.phase(cluster, "odd-too") == ("Running", False, "")
        await asyncio.sleep(3600)
        (container,) = (await cluster.get(POD, "default", "crash"))["status"]["containerStatuses"]
        assert 10 <= container["restartCount"] <= 20

    stage.play(scene, nodes=2, behaviour=Behaviour(faults=faults))


@pytest.mark.play(nodes=1, behaviour=Behaviour(stop=20))
async def test_a_pod_ends_gracefully_and_slowly(cluster: simulator.SimulatedCluster, /) -> None:
    await cluster.create(POD, stage.pod("p", "node-0"))
    await cluster.create(POD, stage.pod("short", "node-0", terminationGracePeriodSeconds=5))
    await asyncio.sleep(10)
    reply = await cluster.delete(POD, "default", "p")
    await cluster.delete(POD, "default", "short")
    assert reply["metadata"]["deletionGracePeriodSeconds"] == 30
    assert reply["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:40Z"
    again = await cluster.delete(POD, "default", "p")
    assert again["metadata"]["resourceVersion"] == reply["metadata"]["resourceVersion"]
    await asyncio.sleep(5.1)
    with pytest.raises(errors.NotFound):
        await cluster.get(POD, "default", "short")
    await asyncio.sleep(14.5)
    await cluster.get(POD, "default", "p")
    await asyncio.sleep(1)
    with pytest.raises(errors.NotFound):
        await cluster.get(POD, "default", "p")


@pytest.mark.play(nodes=1)
async def test_a_pod_that_was_never_bound_or_has_ended_is_deleted_at_once(
    cluster: simulator.SimulatedCluster, /
) -> None:
    await cluster.create(POD, stage.pod("lost", "nowhere"))
    await cluster.create(POD, stage.pod("failed", "node-0"))
    await asyncio.sleep(10)
    await cluster.patch(
        POD, "default", "failed", {"status": {"phase": "Failed"}}, subresource="status"
    )
    for name in ("lost", "failed"):
        await cluster.delete(POD, "default", name)
        with pytest.raises(errors.NotFound):
            await cluster.get(POD, "default", name)


@pytest.mark.play(nodes=1)
async def test_a_dead_node_is_noticed_and_its_pods_stay_until_it_returns(
    cluster: simulator.SimulatedCluster, /
) -> None:
    forever = [{"operator": "Exists"}]
    await cluster.create(POD, stage.pod("agent", "node-0", tolerations=forever))
    await cluster.create(POD, stage.pod("guest", "node-0"))
    await asyncio.sleep(10)
    cluster.kill_node("node-0")
    await asyncio.sleep(49)
    assert await stage.phase(cluster, "agent") == ("Running", True, "")
    await asyncio.sleep(2)
    assert await stage.phase(cluster, "agent") == ("Running", False, "")
    node = await cluster.get(NODE, "", "node-0")
    assert {(t["key"], t["effect"]) for t in node["spec"]["taints"]} == {
        ("node.kubernetes.io/unreachable", "NoSchedule"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
    }
    await asyncio.sleep(290)
    assert "deletionTimestamp" not in (await cluster.get(POD, "default", "guest"))["metadata"]
    await asyncio.sleep(3600)
    assert "deletionTimestamp" in (await cluster.get(POD, "default", "guest"))["metadata"]
    cluster.revive_node("node-0")
    await asyncio.sleep(10)
    assert await stage.phase(cluster, "agent") == ("Running", True, "")
    with pytest.raises(errors.NotFound):
        await cluster.get(POD, "default", "guest")
    assert "taints" not in (await cluster.get(NODE, "", "node-0"))["spec"]


@pytest.mark.play(nodes=1)
async def test_a_cordoned_node_gets_its_taint_and_loses_it(
    cluster: simulator.SimulatedCluster, /
) -> None:
    await cluster.patch(NODE, "", "node-0", {"spec": {"unschedulable": True}})
    await cluster.create(POD, stage.pod("p", "node-0"))
    await asyncio.sleep(1)
    taints = (await cluster.get(NODE, "", "node-0"))["spec"]["taints"]
    assert taints == [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    assert await _node(cluster, "p") == ""
    await cluster.patch(NODE, "", "node-0", {"spec": {"unschedulable": None}})
    await asyncio.sleep(1)
    assert await _node(cluster, "p") == "node-0"


@pytest.mark.play(nodes=2)
async def test_the_pods_of_a_node_that_is_no_more_are_collected(
    cluster: simulator.SimulatedCluster, /
) -> None:
    await cluster.create(POD, stage.pod("p", "node-0"))
    await cluster.create(POD, stage.pod("q", "node-1"))
    await asyncio.sleep(10)
    cluster.remove_node("node-0")
    await asyncio.sleep(30)
    await cluster.get(POD, "default", "p")
    await asyncio.sleep(30)
    assert [b["metadata"]["name"] for b in (await cluster.list(POD)).items] == ["q"]


async def test_nodes_carry_the_usual_labels_and_the_given_ones(
    cluster: simulator.SimulatedCluster, /
) -> None:
    cluster.add_nodes([NodeSpec("w", {"pool": "win"}, system="windows", machine="arm64")])
    assert (await cluster.get(NODE, "", "w"))["metadata"]["labels"] == {
        "kubernetes.io/hostname": "w",
        "kubernetes.io/os": "windows",
        "kubernetes.io/arch": "arm64",
        "pool": "win",
    }


@pytest.mark.play(nodes=1)
async def test_a_new_image_starts_the_containers_again(
    cluster: simulator.SimulatedCluster, /
) -> None:
    await cluster.create(POD, stage.pod("p", "node-0"))
    await asyncio.sleep(10)
    patch = [{"op": "replace", "path": "/spec/containers/0/image", "value": "agent:2"}]
    await cluster.patch(POD, "default", "p", patch, type=PatchType.JSON)
    await asyncio.sleep(1)
    assert not (await stage.phase(cluster, "p"))[1]
    await asyncio.sleep(10)
    assert (await stage.phase(cluster, "p"))[1]
    with pytest.raises(errors.Invalid, match="pod updates may not change fields other than"):
        await cluster.patch(POD, "default", "p", {"spec": {"hostNetwork": True}})


async def test_a_pod_that_a_restore_of_etcd_unbinds_is_bound_again(
    cluster: simulator.SimulatedCluster, /
) -> None:
    cluster.add_nodes([NodeSpec("node-1")])
    port = [{"name": "c", "image": "i", "ports": [{"containerPort": 1, "hostPort": 99}]}]
    waiting = await cluster.create(POD, stage.pod("p", containers=port))
    assert "nodeName" not in waiting["spec"]
    await asyncio.sleep(1)
    assert await _node(cluster, "p") == "node-1"
    backup = cluster.server.store.backup()
    backup.objects[POD.group, POD.kind]["default", "p"] = waiting
    cluster.restore(backup)
    await asyncio.sleep(1)
    assert await _node(cluster, "p") == "node-1"
