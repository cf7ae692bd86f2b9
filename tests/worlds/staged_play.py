"""Plays a world with staged rollouts: all that happens in it is drawn from its seed.

A world begins with one of several clusters: with a policy from the first commit, with one that is
added later, with agents that a first commit or a single node broke, with broken nodes. Then
commits and events happen; then people and faults stop, and every rollout has to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence

from gitops_ds.core import errors
from gitops_ds.core.decision import Powers
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import Behaviour, PodFault, Trouble, virtual_time
from tests.worlds import staged_invariants, staged_people
from tests.worlds.staged_events import StagedEvent
from tests.worlds.staged_git import BAD, GOOD, LATE, MUTE, Shape, draw_shape
from tests.worlds.staged_second import SecondRepository
from tests.worlds.staged_tenant import Tenant
from tests.worlds.staged_world import StagedWorld, node_spec
from tests.worlds.world import Outcome

SHOWN = 45.0  # seconds in which status and `wait` have to agree
EVENTS_END = 450.0  # seconds in which events begin
ENDED_AFTER = 2400.0  # seconds in which every rollout ends
FAULTY = (f"{GOOD}-1", "node-2")  # an image that fails on one node in some worlds


def play(seed: int, table: Sequence[StagedEvent]) -> Outcome:
    """The world of that seed, with events from the table."""
    return virtual_time.run(_play(seed, table))


async def _play(seed: int, table: Sequence[StagedEvent]) -> Outcome:
    chance = random.Random(seed)
    behaviour = _behaviour(chance)
    habits = simulator.Habits(latency=chance.choice((0.0, 0.01, 0.2)))
    async with simulator.SimulatedCluster(behaviour, seed=seed, habits=habits) as cluster:
        powers = chance.choice((Powers.PACE, Powers.PACE, Powers.FULL))
        drift = DriftPolicy(chance.choice(("correct",) * 7 + ("report", "hold")))
        world = StagedWorld(chance, cluster, powers, draw_shape(chance, gates=True), drift)
        tenant = _tenant(world, seed)
        if len(behaviour.faults) > 2:
            world.oracle.faulty.add(FAULTY)
        _add_nodes(world)
        faults = ", ".join(
            f"{fault.image} {fault.trouble} on {fault.nodes}" for fault in behaviour.faults
        )
        world.record(f"{powers} {habits.latency:g} s {drift} {faults} {_text(world.shape)}")
        tasks = [
            asyncio.create_task(_whole(world, table, tenant)),
            asyncio.create_task(world.failed.wait()),
            asyncio.create_task(world.watch()),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for who in list(world.tasks):
            await world.kill(who)
        return Outcome(seed, tuple(world.story), tuple(dict.fromkeys(world.wrong)))


def _tenant(world: StagedWorld, seed: int) -> Tenant | None:
    """In every fourth world, with a second repository beside."""
    if seed % 4 != 3:
        return None
    world.second = SecondRepository()
    world.second.commit(0.0)
    return Tenant(world, random.Random(f"tenant {seed}"))


async def _second_commits(world: StagedWorld, chance: random.Random) -> None:
    while world.second is not None:
        await asyncio.sleep(chance.uniform(100, 500))
        world.second.commit(world.now)


def _text(shape: Shape) -> str:
    default = Shape()
    return " ".join(
        f"{name}={getattr(shape, name)}"
        for name in shape.__struct_fields__
        if getattr(shape, name) != getattr(default, name)
    )


def _behaviour(chance: random.Random) -> Behaviour:
    bad = chance.choice((Trouble.NEVER_PULLED, Trouble.CRASHES, Trouble.NEVER_READY))
    faults = [PodFault(f"*:{BAD}-*", bad), PodFault(f"*:{LATE}-*", Trouble.CRASHES_LATE)]
    if chance.random() < 0.25:
        faults.append(PodFault(f"*:{FAULTY[0]}", bad, FAULTY[1]))
    stop, start = chance.choice((1.0, 5.0, 20.0)), chance.choice((1.0, 5.0))
    return Behaviour(stop=stop, start=start, faults=tuple(faults))


def _add_nodes(world: StagedWorld) -> None:
    number = world.chance.randint(5, 9)
    world.cluster.add_nodes(node_spec(one) for one in range(number))
    if world.chance.random() < 0.25:
        node = f"node-{world.chance.randrange(number)}"
        world.cluster.kill_node(node)
        world.oracle.dead |= world.cluster.kubelets.dead
        world.record(f"  {node} is broken from the start")


async def _whole(world: StagedWorld, table: Sequence[StagedEvent], tenant: Tenant | None) -> None:
    """All that happens in a world, if nothing is wrong before its end."""
    chance = world.chance
    first, has_policy = (BAD if chance.random() < 0.15 else GOOD), chance.random() < 0.6
    world.push(world.fresh(first), policy=has_policy)
    world.start()
    await asyncio.sleep(90)
    if not has_policy:
        await _adopt_policy(world)
    used = set[str]()
    others = [asyncio.create_task(_approver(world))]
    if tenant is not None:
        others += map(asyncio.create_task, (tenant.run(), _second_commits(world, tenant.chance)))
    async with asyncio.TaskGroup() as events:
        for number in range(chance.randint(1, 2)):
            events.create_task(_commit(world, table, number * 180 + chance.uniform(0, 180)))
        for _ in range(chance.randint(2, 5)):
            events.create_task(_happens(world, chance.uniform(0, EVENTS_END), table, used))
    world.record("all is over")
    if tenant is not None:
        others[1].cancel()
        await tenant.leave()
        await staged_people.corrects_drift(world)
    await _end(world)
    for other in others:
        other.cancel()


async def _adopt_policy(world: StagedWorld) -> None:
    """The policy is added with a new image, or alone; sometimes after a bad commit."""
    if world.chance.random() < 0.3:
        before = world.history.wanted.tag
        world.push(world.fresh(BAD))
        await asyncio.sleep(90)
        world.push(before)
        await asyncio.sleep(120)
    is_alone = world.chance.random() < 0.5
    tag = world.history.wanted.tag if is_alone else world.fresh()
    world.push(tag, policy=True)
    await asyncio.sleep(60)


async def _approver(world: StagedWorld) -> None:
    """A person approves the stage `rest` of each rollout, sooner or later."""
    while world.shape.approval:
        await asyncio.sleep(world.chance.uniform(10, 150))
        await world.approve()


async def _commit(world: StagedWorld, table: Sequence[StagedEvent], seconds: float) -> None:
    await asyncio.sleep(seconds)
    kinds = [GOOD, GOOD, GOOD, BAD, LATE]
    if world.shape.gate and not world.shape.finish_first:
        kinds += [MUTE] * 5
    earlier = sorted({content.tag for content in world.history.contents})
    is_earlier = world.chance.random() < 0.2
    tag = world.chance.choice(earlier) if is_earlier else world.fresh(world.chance.choice(kinds))
    world.push(tag)


async def _happens(
    world: StagedWorld, seconds: float, table: Sequence[StagedEvent], used: set[str]
) -> None:
    """One of the events that are possible after some seconds, half of them while a rollout touches
    nodes.
    """
    await asyncio.sleep(seconds)
    if world.chance.random() < 0.5:
        await world.until(lambda: bool(world.touched()), 200)
        await asyncio.sleep(world.chance.uniform(0, 30))
    rows = [row for row in table if row.name not in used and row.is_possible(world)]
    if not rows:
        return
    (row,) = world.chance.choices(rows, [row.weight for row in rows])
    used.add(row.name)
    world.record(row.name)
    with contextlib.suppress(errors.NotFound, errors.Conflict, errors.AlreadyExists):
        await row.action(world)


async def _end(world: StagedWorld) -> None:
    """Git has a good template, and every rollout ends."""
    oracle, chance = world.oracle, world.chance
    if chance.random() < 0.2:
        await _bad_end(world)
    broken = [node for node in oracle.nodes.values() if node.well is None]
    most = min(20, world.shape.parked) * len(oracle.nodes) // 100
    unproven = {name: nodes for name, nodes in oracle.touched.items() if name not in oracle.proven}
    # A node that lost its agent after its proof is at risk until it is well.
    is_held = world.shape.finish_first and any(
        one.name in nodes for one in broken for nodes in unproven.values()
    )
    if len(broken) > most or world.shape.pool or is_held:
        await world.repair()
    await staged_people.takes_back_restarts(world)
    is_touched = oracle.in_force.startswith(GOOD) and world.touched()
    returns = is_touched and chance.random() < 0.5
    if oracle.in_force == FAULTY[0] and world.shape.finish_first:
        # The rollout before may have ended after a later commit, so that this would be a new one,
        # which does not end: the limit of nodes at risk holds it.
        returns = False
    world.push(oracle.in_force if returns else world.fresh(), policy=True)
    if not await world.until(lambda: not staged_invariants.undone(oracle), ENDED_AFTER, 10.0):
        world.judge.fail_end(staged_invariants.undone(oracle))
        return
    await asyncio.sleep(SHOWN)


async def _bad_end(world: StagedWorld) -> None:
    """A bad template is halted, with few nodes touched."""
    await world.repair()
    tag = world.fresh(BAD)
    world.push(tag, policy=True)
    if not await world.until(lambda: tag in world.oracle.halted, ENDED_AFTER, 10.0):
        world.judge.fail_end(f"{tag} is not halted")
