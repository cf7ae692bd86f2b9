"""The limits of deletions, and of updates that remove agents from nodes: a plan above them requires
approval by its hash, which covers the same outcome with at most as many nodes that lose an agent.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from gitops_ds.core import names
from gitops_ds.core.change import Change, Operation
from gitops_ds.core.live import Live
from gitops_ds.core.objects import Key
from gitops_ds.core.plain_text import counted, listed
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.deploy.plan import deletions
from gitops_ds.deploy.plan.deletions import Leaving, is_container
from gitops_ds.ownership import object_owner
from gitops_ds.ownership.options import PlanContext, Policy

SHOWN = 5  # names in a message; the plan has all


class Losses(msgspec.Struct, frozen=True):
    """The losses of a plan: objects that left Git, and updates with the nodes that lose an agent.

    `in_use` has, by Namespace or definition, the objects in it that are still in Git. `in_git` are
    the objects in Git. `empty`: neither objects nor agents are in Git.
    """

    leaving: Mapping[Key, Leaving]
    narrowed: Mapping[Key, tuple[str, ...]]
    in_use: Mapping[Key, tuple[Key, ...]]
    in_git: frozenset[Key]
    empty: bool

    @property
    def nodes(self) -> frozenset[str]:
        """Every node that loses an agent."""
        return frozenset().union(
            *(move.lost for move in self.leaving.values()), *self.narrowed.values()
        )


def refusals(losses: Losses, live: Live, context: PlanContext, hash: str) -> tuple[Skipped, ...]:
    """The reasons why objects that left Git are kept and updates are skipped, with these objects.

    A plan that was approved by its hash passes every guard except `prune: disabled`, disabled
    pruning and objects in use; so do objects that were approved before.
    """
    guards, leaving = context.options.guards, losses.leaving
    protected = [key for key, one in leaving.items() if one.policy is Policy.DISABLED]
    skipped = [
        Skipped(
            SkipReason.PRUNE_DISABLED,
            f"{key} left Git; its annotation {names.PRUNE}: disabled keeps it",
            key,
        )
        for key in protected
    ]
    rest = [key for key in leaving if key not in protected]
    advice = f"approve this plan by its hash {hash} (--approve)"
    approved = covers(context.options.approved, hash)
    if not guards.prune:
        skipped += [
            Skipped(
                SkipReason.PRUNE_OFF, f"{key} left Git and is kept: pruning is off (--prune)", key
            )
            for key in rest
        ]
        return (*skipped, *(() if approved else _nodes_lost(losses, [], live, context, advice)))
    skipped += [_in_use(key, losses.in_use[key]) for key in rest if key in losses.in_use]
    rest = [key for key in rest if key not in losses.in_use]
    going = {key for key in rest if not takes_others(leaving[key], rest)}
    new = [
        key
        for key in rest
        if key not in context.state.approved and not deletions.is_ending(live.objects[key])
    ]
    if approved:
        return tuple(skipped)
    skipped += [_of_others(key, leaving[key], rest, advice) for key in new if key not in going]
    new = [key for key in new if key in going]
    skipped += _too_much(losses, new, live, context, advice) if new else ()
    return (*skipped, *_nodes_lost(losses, new, live, context, advice))


def unknown_nodes(changes: Iterable[Change], live: Live) -> tuple[Skipped, ...]:
    """The refusal of a plan that affects pods without permission to list nodes: the number of nodes
    that lose an agent is unknown.
    """
    moving = tuple(
        change.key
        for change in changes
        if change.operation is not Operation.KEEP and _may_move(change)
    )
    if not live.unlisted or not moving:
        return ()
    message = (
        f"the effect on nodes is unknown: {live.unlisted}; `apply` needs that right, to check "
        "maxNodesLost"
    )
    return (Skipped(SkipReason.UNKNOWN_NODES, message, held=moving),)


def _may_move(change: Change) -> bool:
    return change.key.is_daemonset or (
        change.operation is Operation.DELETE and is_container(change.key)
    )


def _too_much(
    losses: Losses, new: Sequence[Key], live: Live, context: PlanContext, advice: str
) -> Iterable[Skipped]:
    """The limits on deletions, regardless of nodes."""
    guards, objects = context.options.guards, tuple(new)
    if losses.empty and guards.empty:
        message = (
            f"Git has no objects: {counted(len(new), 'object')} would be deleted, and none is: "
            f"{shown(new)}. If the path is correct, {advice}"
        )
        yield Skipped(SkipReason.EMPTY_RENDER, message, held=objects)
        return
    gone = {*new, *(other for key in new for other in losses.leaving[key].takes)}
    owner, inventory = context.stamp.owner, context.inventory
    ours = losses.in_git.union(
        key
        for key, body in live.objects.items()
        if object_owner.may_delete(key, body, owner, inventory)
    )
    if len(gone) > guards.deleted.of(len(ours)):
        message = (
            f"{len(gone)} of {len(ours)} objects would be deleted, more than {guards.deleted}: "
            f"{shown(sorted(gone))}; {advice}"
        )
        yield Skipped(SkipReason.TOO_MANY_DELETES, message, held=objects)


def _nodes_lost(
    losses: Losses, new: Sequence[Key], live: Live, context: PlanContext, advice: str
) -> Iterable[Skipped]:
    """The limit on nodes that lose an agent, for deletions and updates together."""
    by = {key: losses.leaving[key].lost for key in new if losses.leaving[key].lost} | dict(
        losses.narrowed
    )
    losing, total = {node for nodes in by.values() for node in nodes}, len(live.nodes or ())
    limit = context.options.guards.lost
    if len(losing) <= limit.of(total):
        return
    message = f"{len(losing)} of {total} nodes would lose an agent, more than {limit}"
    if new and any(key in by for key in new):
        yield Skipped(
            SkipReason.SHARE_OF_NODES, f"{message}: {shown(by)}; {advice}", held=tuple(new)
        )
    for key, nodes in losses.narrowed.items():
        own = "" if len(nodes) == len(losing) else f"{len(nodes)} of them by it: "
        yield Skipped(
            SkipReason.LOSES_NODES,
            f"{key} is not updated: {message}: {own}{shown(nodes)}; {advice}",
            key,
        )


def takes_others(one: Leaving, rest: Collection[Key]) -> bool:
    """Whether a deletion deletes objects besides the `rest` that leaves Git. An approval of it is
    valid for its plan only: further objects may be created inside.
    """
    return bool(one.unlisted or set(one.takes) - set(rest))


def _of_others(key: Key, one: Leaving, rest: Sequence[Key], advice: str) -> Skipped:
    others = [other for other in one.takes if other not in rest]
    holds = [f"it contains {shown(others)}, which would be deleted with it"] if others else []
    holds += (
        [f"it may contain {shown(one.unlisted)}, which the service may not list"]
        if one.unlisted
        else []
    )
    return Skipped(
        SkipReason.NOT_EMPTY,
        f"{key} left Git and is kept: {'; '.join(holds)}. Remove them first, or {advice}",
        key,
    )


def _in_use(key: Key, still: Sequence[Key]) -> Skipped:
    message = (
        f"{key} left Git and is kept: {shown(still)} would be deleted with it and "
        f"{'is' if len(still) == 1 else 'are'} still in Git"
    )
    return Skipped(SkipReason.IN_USE, f"{message}. Restore it in Git, or remove these too", key)


def shown(some: Iterable[object]) -> str:
    """The first of them, and the number of the others."""
    return listed(some, SHOWN)


DIGITS = 16  # of the outcome in a hash; a commit ID has 40 or 64, an abbreviated one rarely 16
_SEPARATOR = "-"
_HASH = re.compile(rf"[0-9a-f]{{{DIGITS}}}({_SEPARATOR}[0-9]{{1,9}})?")


def is_hash(text: str) -> bool:
    """Whether a text has the form of the hash of a plan."""
    return _HASH.fullmatch(text) is not None


def hash_of(outcome: str, lost: int) -> str:
    """The hash of the outcome and, after a dash, the number of nodes that lose an agent, unless
    it is 0.
    """
    return f"{outcome}{_SEPARATOR}{lost}" if lost else outcome


def covers(approved: str, hash: str) -> bool:
    """Whether the approval of one hash covers this plan."""
    (granted, most), (outcome, lost) = _parts(approved), _parts(hash)
    return granted == outcome and lost <= most


def _parts(hash: str) -> tuple[str, int]:
    outcome, _, lost = hash.partition(_SEPARATOR)
    return outcome, int(lost) if lost.isdecimal() and len(lost) < 10 else 0
