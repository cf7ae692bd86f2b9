"""The events of a world with staged rollouts: what people and faults do, as a table.

After each event the world can be brought in sync with Git. Not in the table: changes of the
taints of nodes, PodDisruptionBudgets, other errors of the API server, windows and
`after` in policies, and webhooks that change templates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from gitops_ds.core.skip_reasons import DriftPolicy
from tests.worlds import staged_faults as faults
from tests.worlds import staged_oracle
from tests.worlds import staged_people as people
from tests.worlds.staged_git import BAD, GOOD, draw_shape
from tests.worlds.staged_world import StagedWorld


def always(world: StagedWorld) -> bool:
    """For events that are possible at any time."""
    return True


def is_served(world: StagedWorld) -> bool:
    """Whether the service runs, and follows Git."""
    return staged_oracle.SERVICE in world.tasks and world.oracle.blocked_since is None


def has_daemonset(world: StagedWorld) -> bool:
    """Whether the DaemonSet exists, and people may write to it."""
    return world.live() is not None and not world.situation.annotated_drift


def has_policy(world: StagedWorld) -> bool:
    """Whether the DaemonSet has a policy, and the service runs."""
    return is_served(world) and has_daemonset(world) and world.oracle.staged


def corrects_drift(world: StagedWorld) -> bool:
    """Whether the service creates a deleted DaemonSet again."""
    is_suspended = world.situation.suspended is not None
    return has_policy(world) and world.drift is DriftPolicy.CORRECT and not is_suspended


class StagedEvent(msgspec.Struct, frozen=True):
    """One row: its weight among the possible ones, its precondition, and what happens."""

    name: str
    weight: float
    is_possible: Callable[[StagedWorld], bool]
    action: Callable[[StagedWorld], Awaitable[None]]


# --- Git


async def a_good_commit(world: StagedWorld) -> None:
    world.push(world.fresh())


async def a_bad_commit(world: StagedWorld) -> None:
    world.push(world.fresh(BAD))


async def an_earlier_commit_again(world: StagedWorld) -> None:
    world.push(world.chance.choice(sorted({content.tag for content in world.history.contents})))


async def a_halted_commit_again(world: StagedWorld) -> None:
    world.push(world.chance.choice(sorted(world.oracle.halted)))


async def a_forced_push(world: StagedWorld) -> None:
    """Of an earlier commit with the same policy or without one."""
    world.reset(world.chance.randrange(len(world.history.contents)))


async def a_revert(world: StagedWorld) -> None:
    """Of the rollout in progress."""
    await world.until(lambda: bool(world.touched()), 60)
    if world.oracle.in_force.startswith((GOOD, BAD)):
        world.push(world.oracle.in_force)


async def a_late_revert(world: StagedWorld) -> None:
    """Of a rollout that touched most nodes."""
    before, tag = world.oracle.in_force, world.fresh()
    world.push(tag)
    await world.until(lambda: 3 * len(world.touched()) > 2 * len(world.oracle.nodes), 500)
    if world.history.wanted.tag == tag:
        world.push(before)


async def a_bad_commit_and_its_revert(world: StagedWorld) -> None:
    tag, before = world.fresh(BAD), world.oracle.in_force
    world.push(tag)
    await world.until(lambda: tag in world.oracle.halted, 240)
    await asyncio.sleep(world.chance.uniform(0, 60))
    world.push(before)


async def the_policy_leaves_git(world: StagedWorld) -> None:
    world.push(world.history.wanted.tag, policy=False)
    await asyncio.sleep(world.chance.uniform(30, 200))
    world.push(world.history.wanted.tag, policy=True)


async def the_policy_changes(world: StagedWorld) -> None:
    world.shape = draw_shape(world.chance, gates=False, base=world.shape)
    world.push(world.history.wanted.tag, policy=True)


TABLE = (
    StagedEvent("good commit", 2, always, a_good_commit),
    StagedEvent("bad commit", 2, always, a_bad_commit),
    StagedEvent("earlier commit", 2, always, an_earlier_commit_again),
    StagedEvent("halted commit again", 2, lambda w: bool(w.oracle.halted), a_halted_commit_again),
    StagedEvent("forced push", 1, always, a_forced_push),
    StagedEvent("revert", 3, lambda w: bool(w.touched()), a_revert),
    StagedEvent("late revert", 3, has_policy, a_late_revert),
    StagedEvent("bad commit and its revert", 2, has_policy, a_bad_commit_and_its_revert),
    StagedEvent("policy removed and added", 2, has_policy, the_policy_leaves_git),
    StagedEvent("policy changed", 1, has_policy, the_policy_changes),
    StagedEvent("unreadable policy", 2, corrects_drift, people.has_a_policy_of_a_later_version),
    StagedEvent("edit of the image", 3, has_daemonset, people.edits_the_image),
    StagedEvent("edit to the target", 2, people.is_rolled_out, people.edits_to_the_target),
    StagedEvent("edit, then the same by Git", 2, has_policy, people.edits_and_commits_the_same),
    StagedEvent("kubectl rollout restart", 2, has_daemonset, people.restarts),
    StagedEvent("restart, then a revert", 2, people.is_rolled_out, people.restarts_and_reverts),
    StagedEvent("kubectl rollout undo", 2, has_daemonset, people.undoes),
    StagedEvent("a pod deleted", 2, has_daemonset, people.deletes_a_pod),
    StagedEvent("all pods deleted", 1, has_daemonset, people.deletes_all_pods),
    StagedEvent("DaemonSet deleted", 2, corrects_drift, people.deletes_the_daemonset),
    StagedEvent("DaemonSet deleted without its pods", 2, corrects_drift, people.orphans_the_pods),
    StagedEvent(
        "DaemonSet deleted in a halt", 2, corrects_drift, people.deletes_the_halted_daemonset
    ),
    StagedEvent("revisions deleted", 2, has_daemonset, people.deletes_revisions),
    StagedEvent("target deleted", 2, people.is_rolled_out, people.deletes_the_target_revision),
    StagedEvent("release", 2, lambda w: bool(w.oracle.halted), people.releases),
    StagedEvent("agent suspended", 2, has_policy, people.suspends_the_agent),
    StagedEvent("repository suspended", 2, has_policy, people.suspends_the_repository),
    StagedEvent("commit held", 1, has_policy, people.holds_the_commit),
    StagedEvent("edit with drift: hold", 2, has_policy, people.edits_under_drift_hold),
    StagedEvent("node joins", 2, always, faults.a_node_joins),
    StagedEvent("node leaves", 2, faults.has_spare_nodes, faults.a_node_leaves),
    StagedEvent("node again", 1, faults.has_spare_nodes, faults.a_node_leaves_and_joins_again),
    StagedEvent("cordon", 2, faults.has_spare_nodes, faults.a_node_is_cordoned),
    StagedEvent("cordon, fix", 2, faults.has_spare_nodes, faults.a_node_is_cordoned_over_a_fix),
    StagedEvent(
        "cordon, a stage", 6, faults.has_pool_stage, faults.the_nodes_of_a_stage_are_cordoned
    ),
    StagedEvent("drain", 1, faults.has_spare_nodes, faults.a_node_is_drained_and_rebooted),
    StagedEvent("reboot", 2, faults.has_spare_nodes, faults.a_node_reboots),
    StagedEvent("reboots", 2, faults.has_spare_nodes, faults.several_nodes_reboot),
    StagedEvent("kubelet stops", 2, faults.has_spare_nodes, faults.the_kubelet_stops_for_a_while),
    StagedEvent("node dies", 2, faults.has_spare_nodes, faults.a_node_dies),
    StagedEvent("pool of a node", 1, faults.has_spare_nodes, faults.a_node_changes_its_pool),
    StagedEvent("zone of a node", 1, faults.has_spare_nodes, faults.a_node_changes_its_zone),
    StagedEvent("etcd restored", 2, has_policy, faults.etcd_is_restored_from_a_backup),
    StagedEvent("service", 2, is_served, faults.the_service_is_killed_and_starts_again),
    StagedEvent("built-in", 1, faults.is_paced, faults.the_built_in_controller_restarts),
    StagedEvent("other powers", 2, is_served, faults.the_powers_change),
    StagedEvent("second service", 2, has_policy, faults.a_second_service_starts),
)
