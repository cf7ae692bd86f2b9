"""What happens to the nodes and the processes of a world with staged rollouts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gitops_ds.core.decision import Powers
from gitops_ds.core.objects import NODE
from gitops_ds.daemonset.cache import WATCHED
from gitops_ds.testing.simulator.faults import RequestFault, SimulatedRequest, failure
from tests.worlds import staged_oracle
from tests.worlds.staged_oracle import ZONE
from tests.worlds.staged_world import StagedWorld, node_spec


def some_node(world: StagedWorld) -> str:
    """A node that is well; in half of the cases one that a rollout touched."""
    touched = [one for one in world.touched() if world.oracle.is_well(one)]
    every = [one.name for one in world.oracle.well_nodes()]
    chosen = touched if touched and world.chance.random() < 0.5 else every
    node = world.chance.choice(chosen)
    world.record(f"  {node}")
    return node


def has_spare_nodes(world: StagedWorld) -> bool:
    """Whether a node may break: three well ones stay."""
    return len(list(world.oracle.well_nodes())) > 3


def has_pool_stage(world: StagedWorld) -> bool:
    """Whether the policy has a stage for the nodes of pool `a`."""
    return has_spare_nodes(world) and world.oracle.staged and world.shape.pool


async def a_node_joins(world: StagedWorld) -> None:
    world.cluster.add_nodes([node_spec(world.chance.randint(20, 99_999))])


async def a_node_leaves(world: StagedWorld) -> None:
    world.cluster.remove_node(some_node(world))


async def a_node_leaves_and_joins_again(world: StagedWorld) -> None:
    node = some_node(world)
    world.cluster.remove_node(node)
    await asyncio.sleep(world.chance.uniform(1, 90))
    world.cluster.add_nodes([node_spec(int(node.removeprefix("node-")))])
    world.cluster.revive_node(node)


async def a_node_is_cordoned(world: StagedWorld) -> None:
    await _cordoned(world, some_node(world), asyncio.sleep)


async def a_node_is_cordoned_over_a_fix(world: StagedWorld) -> None:
    """A touched node keeps its pod while another commit is rolled out."""
    node = some_node(world)

    async def fix(seconds: float) -> None:
        await asyncio.sleep(5)
        world.push(world.fresh())
        await world.until(lambda: not world.touched(), 500 + seconds)

    await _cordoned(world, node, fix)


async def a_node_is_drained_and_rebooted(world: StagedWorld) -> None:
    node = some_node(world)

    async def reboot(seconds: float) -> None:
        await asyncio.sleep(seconds / 4)
        await _rebooted(world, node)

    await _cordoned(world, node, reboot)


async def _cordoned(
    world: StagedWorld, node: str, meanwhile: Callable[[float], Awaitable[None]]
) -> None:
    await world.people.patch(NODE, "", node, {"spec": {"unschedulable": True}})
    await meanwhile(world.chance.uniform(20, 300))
    if world.cluster.server.store.get(NODE, "", node) is not None:
        await world.people.patch(NODE, "", node, {"spec": {"unschedulable": None}})


async def the_nodes_of_a_stage_are_cordoned(world: StagedWorld) -> None:
    """All nodes of pool `a`, for which the policy has a stage, in a rollout."""
    names = [node.name for node in world.oracle.well_nodes() if node.pool == "a"]
    if not world.touched():
        world.push(world.fresh())
        await world.until(lambda: bool(world.touched()), 60)
    for node in names:
        await world.people.patch(NODE, "", node, {"spec": {"unschedulable": True}})
    await asyncio.sleep(world.chance.uniform(100, 300))
    for node in names:
        if world.cluster.server.store.get(NODE, "", node) is not None:
            await world.people.patch(NODE, "", node, {"spec": {"unschedulable": None}})


async def a_node_reboots(world: StagedWorld) -> None:
    await _rebooted(world, some_node(world))


async def several_nodes_reboot(world: StagedWorld) -> None:
    """One after the other, as for a new kernel: first those that a rollout touched."""
    touched = [one for one in world.touched() if world.oracle.is_well(one)]
    others = [node.name for node in world.oracle.well_nodes() if node.name not in touched]
    for node in (touched + others)[:3]:
        if has_spare_nodes(world):
            world.record(f"  {node}")
            await _rebooted(world, node)
            await asyncio.sleep(20)


async def _rebooted(world: StagedWorld, node: str) -> None:
    world.break_node(node)
    await asyncio.sleep(world.chance.uniform(5, 90))
    world.boot_node(node)


async def the_kubelet_stops_for_a_while(world: StagedWorld) -> None:
    node = some_node(world)
    world.break_node(node)
    await asyncio.sleep(world.chance.uniform(50, 300))
    world.boot_node(node, rebooted=False)


async def a_node_dies(world: StagedWorld) -> None:
    """For good: it is not repaired before the end."""
    world.break_node(some_node(world))


async def a_node_changes_its_pool(world: StagedWorld) -> None:
    await _labelled(world, "pool", world.chance.choice(("a", "b")))


async def a_node_changes_its_zone(world: StagedWorld) -> None:
    await _labelled(world, ZONE, f"zone-{world.chance.randrange(4)}")


async def _labelled(world: StagedWorld, label: str, value: str) -> None:
    await world.people.patch(NODE, "", some_node(world), {"metadata": {"labels": {label: value}}})


async def etcd_is_restored_from_a_backup(world: StagedWorld) -> None:
    """While the service runs: each of its watches ends, and continues when it notices."""
    cluster, chance = world.cluster, world.chance
    backup, known, began = cluster.server.store.backup(), world.oracle.copied(), world.now
    cluster.server.store.version += 100_000  # as many writes of others
    await asyncio.sleep(chance.uniform(10, 200))
    late = frozenset(one for one in WATCHED if chance.random() < 0.5)
    until = world.now + chance.uniform(1, 40)

    def unlisted(request: SimulatedRequest) -> RequestFault | None:
        is_late = request.resource in late and request.verb in ("list", "watch")
        return failure(503) if is_late and world.now < until else None

    world.fault = unlisted
    cluster.restore(backup)
    world.oracle.restored(known, began, world.now)
    world.edited()
    world.situation.running = until + 30  # at most this long until a failed list is tried again
    await asyncio.sleep(1)  # every kubelet has the pods of the backup
    for node in list(world.oracle.nodes):
        (cluster.kill_node if node in world.oracle.dead else cluster.revive_node)(node)


# --- processes


async def the_service_is_killed_and_starts_again(world: StagedWorld) -> None:
    await world.kill()
    world.oracle.blocked["killed"] = world.now
    await asyncio.sleep(world.chance.uniform(0, 90))
    world.oracle.unblock("killed", world.now)
    world.start()


async def the_built_in_controller_restarts(world: StagedWorld) -> None:
    await world.kill(staged_oracle.BUILT_IN)
    await asyncio.sleep(world.chance.uniform(0, 40))
    world.start_built_in()


def is_paced(world: StagedWorld) -> bool:
    """Whether the built-in controller runs."""
    return world.powers is Powers.PACE and staged_oracle.BUILT_IN in world.tasks


async def the_powers_change(world: StagedWorld) -> None:
    """Between pace and full; the built-in controller ends, or starts."""
    await world.kill()
    await world.kill(staged_oracle.BUILT_IN)
    world.powers = Powers.FULL if world.powers is Powers.PACE else Powers.PACE
    world.record(f"  to {world.powers}")
    world.start()


async def a_second_service_starts(world: StagedWorld) -> None:
    world.start_second()
