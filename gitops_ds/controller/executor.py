"""The execution of a decision, without additional decisions.

Steps are executed one after the other; the first error of a step stops the later ones. The status
is written nevertheless, unless its base is missing: `observedGeneration` promises that the template
has its revision.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence, Set
from typing import Any, TypeVar

import msgspec

from gitops_ds.controller.actions import ActionWriter, WatchedEpoch, WriteHooks
from gitops_ds.core.cluster import Cluster
from gitops_ds.core.decision import (
    Action,
    CreatePod,
    Decision,
    DeletePod,
    DeleteRevision,
    ExecutionOutcome,
    LabelRevision,
    NominatePod,
    Observation,
    Release,
    RenumberRevision,
    StatusUpdate,
)
from gitops_ds.core.errors import ClusterError, Forbidden, Invalid, NotFound, NotLeading
from gitops_ds.core.events.base import ActionFailed, Emit, Performed, StatusFailed, StatusWritten
from gitops_ds.daemonset import pod_changes
from gitops_ds.kube.apimachinery import daemonsets

T = TypeVar("T")

# How the batches of creates, deletes and replacements grow: upstream's deletes have no slow start
# (daemon_controller.go, syncNodes); here all follow the first one.
_GROWTHS = (2, pod_changes.BURST, 2)


class ExecutionContext(msgspec.Struct, frozen=True):
    """The cluster, the clock (seconds since 1970), the calls beside writes, and the receiver of
    events.

    `requests` limits the number of concurrent requests of all DaemonSets; `epoch` is that of the
    observation with this number. Once `stopping`, no further node is begun: between the delete and
    the create of one, another controller would make its pod.
    """

    cluster: Cluster
    clock: Callable[[], float]
    hooks: WriteHooks
    emit: Emit
    requests: asyncio.Semaphore
    epoch: Callable[[int], WatchedEpoch]
    stopping: Callable[[], bool] = lambda: False


async def perform(
    context: ExecutionContext,
    seen: Observation,
    decision: Decision,
    refused: Collection[Action] = (),
) -> ExecutionOutcome:
    """Executes a decision; actions on pods that were refused the last time come last, so that they
    delay no other ones.
    """
    turn = _Execution(context, seen, frozenset(map(target, refused)))
    errors: list[ClusterError] = []
    grounded = True
    for actions in decision.steps:
        errors = await turn.step(actions)
        if errors:
            grounded = isinstance(actions[0], CreatePod | DeletePod | DeleteRevision)
            break
    wrote = turn.writer.wrote
    if decision.status is not None and grounded:
        errors += await turn.write_status(decision.status)
    return ExecutionOutcome(
        tuple(errors), wrote, (*turn.refused, *turn.writer.gone), turn.may_nominate, turn.refusal
    )


class _Execution:
    def __init__(self, context: ExecutionContext, seen: Observation, last: Set[str]) -> None:
        self.context, self.daemonset, self.last = context, seen.daemonset, last
        epoch = context.epoch(seen.epoch)
        self.writer = ActionWriter(context.cluster, context.hooks, epoch, seen.daemonset)
        self.refused: list[Action] = []
        self.may_nominate = True
        self.refusal: tuple[Action, ClusterError] | None = None

    async def step(self, actions: Sequence[Action]) -> list[ClusterError]:
        """Executes a step up to its first error: nominations; creates, deletes and
        replacements with slow start; other actions in order.
        """
        creates = [action for action in actions if isinstance(action, CreatePod)]
        deletes = [action for action in actions if isinstance(action, DeletePod)]
        nominations = [action for action in actions if isinstance(action, NominatePod)]
        await self._nominate(nominations)
        errors: list[ClusterError] = []
        for units, growth in zip(_by_node(creates, deletes), _GROWTHS, strict=True):
            errors += await self._slowly(units, growth)
        for action in actions:
            if errors:
                break
            if not isinstance(action, CreatePod | DeletePod | NominatePod):
                errors = await self._together([(action,)])
        return errors

    async def _nominate(self, actions: Sequence[NominatePod]) -> None:
        """A first one, then the others: without the right only one is refused and reported."""
        for batch in (actions[:1], actions[1:]):
            if self.may_nominate:
                await self._together([(action,) for action in batch])

    async def write_status(self, status: StatusUpdate) -> list[ClusterError]:
        """One merge patch of the counters, which preserves the conditions of other writers."""
        counters = {
            **daemonsets.counters(status.counts),
            "observedGeneration": status.observed_generation,
        }
        try:
            await self.writer.patch_status(counters)
        except NotFound:
            return []
        except NotLeading as error:
            return [error]
        except ClusterError as error:
            self.context.emit(StatusFailed(self.context.clock(), self.daemonset.key, error))
            return [error]
        self.context.emit(StatusWritten(self.context.clock(), self.daemonset.key))
        return []

    async def _slowly(self, units: Sequence[tuple[Action, ...]], growth: int) -> list[ClusterError]:
        """A first one, then batches that grow by the factor: when every create is refused (a quota,
        a webhook), few are tried. The actions of a unit follow each other at once.
        """
        done, batch = 0, 1
        ordered = (
            sorted(units, key=lambda unit: target(unit[-1]) in self.last) if self.last else units
        )
        while done < len(ordered):
            errors = await self._together(ordered[done : done + batch])
            if errors:
                return errors
            done, batch = done + batch, batch * growth
        return []

    async def _together(self, units: Iterable[tuple[Action, ...]]) -> list[ClusterError]:
        return [
            error
            for error in await _gather(self._unit(unit) for unit in units)
            if error is not None
        ]

    async def _unit(self, unit: tuple[Action, ...]) -> ClusterError | None:
        # One permit for the whole unit: no request of another one delays a create after its delete.
        async with self.context.requests:
            for action in () if self.context.stopping() else unit:
                if (error := await self._one(action)) is not None:
                    return error
        return None

    async def _one(self, action: Action) -> ClusterError | None:
        context, key = self.context, self.daemonset.key
        try:
            named = await self.writer.write(action)
        except NotLeading as error:
            return error
        except ClusterError as error:
            if _terminating_namespace(error):
                return None
            context.emit(ActionFailed(context.clock(), key, action, error))
            self.refused.append(action)
            if not isinstance(action, NominatePod):
                self.refusal = self.refusal or (action, error)
            elif isinstance(error, Forbidden):
                self.may_nominate = False
            return None if _is_final(action, error) else error
        if named is not None:
            context.emit(Performed(context.clock(), key, action, named))
        return None


def _is_final(action: Action, error: ClusterError) -> bool:
    """Whether the error is permanent and the decision continues: the remaining actions must not
    depend on this one.

    A patch gets 422 for another UID, and for a revision whose data was written with other bytes
    than ours: it is immutable. Upstream ignores the error of a release only
    (controller_ref_manager.go, ReleasePod). A rollout works without nominations.
    """
    is_unchangeable = isinstance(error, Invalid) and isinstance(
        action, Release | LabelRevision | RenumberRevision
    )
    return is_unchangeable or isinstance(action, NominatePod)


Units = list[tuple[Action, ...]]


def _by_node(
    creates: Sequence[CreatePod], deletes: Sequence[DeletePod]
) -> tuple[Units, Units, Units]:
    """The units of creates, deletes and replacements. In a replacement the create follows the
    deletes of its node at once, before the built-in controller finds the node without a pod.
    """
    created, earlier = {create.node for create in creates}, defaultdict[str, list[Action]](list)
    for action in deletes:
        earlier[action.node].append(action)
    return (
        [(action,) for action in creates if action.node not in earlier],
        [(action,) for action in deletes if action.node not in created],
        [(*earlier[action.node], action) for action in creates if action.node in earlier],
    )


def target(action: Action) -> str:
    """The target of an action: a node, or an object."""
    return action.node if isinstance(action, CreatePod) else str(action.key)


def _terminating_namespace(error: ClusterError) -> bool:
    """Whether the namespace is being deleted: nothing can be created in it, and nothing needs to
    be.
    """
    return isinstance(error, Forbidden) and any(
        cause.get("reason") == "NamespaceTerminating" for cause in error.causes
    )


async def _gather(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results, in order. An exception other than a ClusterError cancels the others."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(coroutine) for coroutine in coroutines]
    return [task.result() for task in tasks]
