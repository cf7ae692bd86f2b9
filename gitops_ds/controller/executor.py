"""Does what a decision says. It may refine an action by a live look, but decides nothing.

Steps go one after the other; the first error of a step stops the later ones. The status is written
all the same, unless what it stands on is missing: `observedGeneration` promises that the template
has its revision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any, TypeVar

from gitops_ds.apimachinery import daemonsets, label_selector, pods, revisions
from gitops_ds.daemonset import pod_factory
from gitops_ds.errors import (
    AlreadyExists,
    ClusterError,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    StaleView,
)
from gitops_ds.model import names
from gitops_ds.model.cluster import Cluster, PatchType
from gitops_ds.model.daemonset import DaemonSet, Owner
from gitops_ds.model.decision import (
    Action,
    Adopt,
    CreatePod,
    CreateRevision,
    Decision,
    DeletePod,
    DeleteRevision,
    LabelRevision,
    RelabelPod,
    Release,
    RenumberRevision,
    StatusUpdate,
)
from gitops_ds.model.events.base import (
    ActionFailed,
    Emit,
    Performed,
    StatusFailed,
    StatusWritten,
)
from gitops_ds.model.objects import CONTROLLER_REVISION, DAEMONSET, POD, Body, Key, Resource, key_of

Remember = Callable[[Resource, Body], None]

_Patched = Adopt | Release | RelabelPod | LabelRevision | RenumberRevision

_NAMES_TO_TRY = 5


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """Where decisions are performed: the cluster, the clock (seconds since 1970), who keeps own
    writes, who is told.

    `requests` bounds how many are on their way at once, over all DaemonSets.
    """

    cluster: Cluster
    clock: Callable[[], float]
    remember: Remember
    emit: Emit
    requests: asyncio.Semaphore


@dataclass(frozen=True, slots=True)
class ExecutionOutcome:
    """What became of a decision.

    `errors` ended it, and it has to be taken again. `refused` are the actions that the API server
    did not carry out, also those that are left at that; each further try comes later. `wrote`: the
    next observation is another one.
    """

    errors: tuple[ClusterError, ...]
    wrote: bool
    refused: tuple[Action, ...] = ()


async def perform(
    stage: ExecutionContext,
    daemonset: DaemonSet,
    decision: Decision,
    refused: Collection[Action] = (),
) -> ExecutionOutcome:
    """Performs it; of pods to create or delete those that were refused the last time come last, so
    that they hold up no other.
    """
    turn = _Execution(stage, daemonset, frozenset(map(target, refused)))
    errors: list[ClusterError] = []
    grounded = True
    for actions in decision.steps:
        errors = await turn.step(actions)
        if errors:
            grounded = isinstance(actions[0], CreatePod | DeletePod | DeleteRevision)
            break
    wrote = turn.wrote
    if decision.status is not None and grounded:
        errors += await turn.write_status(decision.status)
    return ExecutionOutcome(tuple(errors), wrote, tuple(turn.refused))


class _Execution:
    def __init__(self, stage: ExecutionContext, daemonset: DaemonSet, last: Set[str]) -> None:
        self.stage, self.daemonset, self.last = stage, daemonset, last
        self.refused: list[Action] = []
        self.namespace = daemonset.key.namespace
        self.wrote = False
        self._confirmed = False

    async def step(self, actions: Sequence[Action]) -> list[ClusterError]:
        """Creates of pods and then deletes by slow start; everything else in order, up to the first
        error.
        """
        creates = [action for action in actions if isinstance(action, CreatePod)]
        deletes = [action for action in actions if isinstance(action, DeletePod)]
        errors = await self._slowly(creates) + await self._slowly(deletes)
        for action in actions:
            if errors:
                break
            if not isinstance(action, CreatePod | DeletePod):
                errors = await self._together([action])
        return errors

    async def write_status(self, status: StatusUpdate) -> list[ClusterError]:
        """One merge patch of the counters, so that nobody's conditions are lost."""
        counters = {
            **daemonsets.counters(status.counts),
            "observedGeneration": status.observed_generation,
        }
        try:
            await self._patch_status(counters)
        except NotFound:
            return []
        except NotLeading as error:
            return [error]
        except ClusterError as error:
            self.stage.emit(StatusFailed(self.stage.clock(), self.daemonset.key, error))
            return [error]
        self.stage.emit(StatusWritten(self.stage.clock(), self.daemonset.key, status))
        return []

    async def _slowly(self, actions: Sequence[CreatePod | DeletePod]) -> list[ClusterError]:
        """Batches of 1, 2, 4 and so on: when every create is refused (a quota, a webhook), few are
        tried.
        """
        done, batch = 0, 1
        ordered = (
            sorted(actions, key=lambda action: target(action) in self.last)
            if self.last
            else actions
        )
        while done < len(ordered):
            errors = await self._together(ordered[done : done + batch])
            if errors:
                return errors
            done, batch = done + batch, batch * 2
        return []

    async def _together(self, actions: Iterable[Action]) -> list[ClusterError]:
        return [
            error
            for error in await _gather(self._one(action) for action in actions)
            if error is not None
        ]

    async def _one(self, action: Action) -> ClusterError | None:
        stage, key = self.stage, self.daemonset.key
        try:
            async with stage.requests:
                named = await self._do(action)
        except NotLeading as error:
            return error
        except ClusterError as error:
            if _terminating_namespace(error):
                return None
            stage.emit(ActionFailed(stage.clock(), key, action, error))
            self.refused.append(action)
            return None if _is_final(action, error) else error
        if named is not None:
            stage.emit(Performed(stage.clock(), key, action, named))
        return None

    async def _do(self, action: Action) -> Key | None:
        """Performs one action; returns what it was done to, None when there was nothing left to do."""
        match action:
            case CreatePod():
                return await self._create_pod(action)
            case DeletePod(key=key, uid=uid):
                return await self._delete(action, POD, key, uid)
            case DeleteRevision(key=key, uid=uid):
                return await self._delete(action, CONTROLLER_REVISION, key, uid)
            case RelabelPod(uid=uid, hash=hash) | LabelRevision(uid=uid, hash=hash):
                return await self._patch(action, _labelled(uid, hash), PatchType.MERGE)
            case RenumberRevision(uid=uid, number=number):
                return await self._patch(
                    action, {"metadata": {"uid": uid}, "revision": number}, PatchType.MERGE
                )
            case Adopt(uid=uid):
                return await self._adopt(action, uid)
            case Release(uid=uid):
                return await self._release(action, uid)
            case CreateRevision():
                return await self._create_revision(action)

    async def _create_pod(self, action: CreatePod) -> Key | None:
        """A taken name may be our own pod, by a reply that was lost or a leader before us: then it
        is done.
        """
        for attempt in range(_NAMES_TO_TRY):
            name = pod_factory.name(action.seed, attempt)
            body = {**action.body, "metadata": {**action.body["metadata"], "name": name}}
            try:
                return self._keep(POD, await self.stage.cluster.create(POD, body), action)
            except AlreadyExists:
                if await self._is_ours(name, action.node):
                    return None
        message = (
            f"{_NAMES_TO_TRY} names for a pod of {self.daemonset.key} on {action.node} are taken "
            "by others"
        )
        raise StaleView(message)

    async def _is_ours(self, name: str, node: str) -> bool:
        """Whether the pod is the one to be made. One of ours that is ending means that our view is
        old: look again later.
        """
        try:
            body = await self.stage.cluster.get(POD, self.namespace, name)
        except NotFound as error:
            raise StaleView(f"the pod {self.namespace}/{name} just vanished") from error
        pod = pods.pod_of(body)
        if pod.owner is None or pod.owner.uid != self.daemonset.uid or pod.node != node:
            return False
        self._keep(POD, body)
        if pod.terminating or pod.ended:
            raise StaleView(f"the pod {self.namespace}/{name} is ending, which was not known yet")
        return True

    async def _delete(self, action: Action, resource: Resource, key: Key, uid: str) -> Key | None:
        try:
            reply = await self.stage.cluster.delete(resource, key.namespace, key.name, uid=uid)
        except NotFound:
            self._gone(action)  # a conflict (another object bears the name) is an error
            return None
        if reply.get("kind") == resource.kind:
            self._keep(resource, _ending(reply))
        return key  # a revision that went at once comes with its event, and nothing waits for that

    def _gone(self, action: Action) -> None:
        """Nothing is left to do, but our view is old: while it stays so, each look comes later."""
        self.refused.append(action)

    async def _adopt(self, action: Adopt, uid: str) -> Key | None:
        await self._confirm()
        owner = {"ownerReferences": [revisions.owner_reference(self.daemonset)], "uid": uid}
        return await self._patch(action, {"metadata": owner}, PatchType.STRATEGIC)

    async def _release(self, action: Release, uid: str) -> Key | None:
        references = [{"$patch": "delete", "uid": self.daemonset.uid}]
        return await self._patch(
            action, {"metadata": {"ownerReferences": references, "uid": uid}}, PatchType.STRATEGIC
        )

    async def _patch(self, action: _Patched, patch: Body, type: PatchType) -> Key | None:
        """Patches a pod or a revision; the UID in the patch makes sure that it is the one that was
        seen.

        One that is gone needs no release and no other label; what was to be decided upon (an
        adoption, a revision) is an error.
        """
        key = action.key
        resource = POD if key.kind == POD.kind else CONTROLLER_REVISION
        try:
            reply = await self.stage.cluster.patch(
                resource, key.namespace, key.name, patch, type=type
            )
        except NotFound:
            if isinstance(action, Release | RelabelPod):
                self._gone(action)
                return None
            raise
        return self._keep(resource, reply, action)

    async def _confirm(self) -> None:
        """Before anything is adopted: is the DaemonSet still itself, and stays? One look for the
        whole turn.
        """
        if self._confirmed:
            return
        live = daemonsets.daemonset_of(
            await self.stage.cluster.get(DAEMONSET, self.namespace, self.daemonset.key.name)
        )
        if live.uid != self.daemonset.uid or live.deleting:
            raise StaleView(
                f"{self.daemonset.key} is being deleted, or is another one now: it adopts nothing"
            )
        self._confirmed = True

    async def _create_revision(self, action: CreateRevision) -> Key | None:
        """A taken name is the same template (then it serves), or a collision: the next turn hashes
        with a higher count.
        """
        try:
            return self._keep(
                CONTROLLER_REVISION,
                await self.stage.cluster.create(CONTROLLER_REVISION, action.body),
                action,
            )
        except AlreadyExists:
            body = await self.stage.cluster.get(
                CONTROLLER_REVISION, self.namespace, action.key.name
            )
            template = revisions.template_of(body)
            if template is not None and revisions.same_template(template, self.daemonset.template):
                self.stage.remember(CONTROLLER_REVISION, body)
                return None
            await self._count_collision(action)
            raise

    async def _count_collision(self, action: CreateRevision) -> None:
        live = daemonsets.daemonset_of(
            await self.stage.cluster.get(DAEMONSET, self.namespace, self.daemonset.key.name)
        )
        if live.uid == self.daemonset.uid and live.collision_count == action.collision_count:
            await self._patch_status({"collisionCount": (action.collision_count or 0) + 1})

    async def _patch_status(self, fields: Body) -> None:
        """Writes fields of the status, of exactly this DaemonSet."""
        patch = {"metadata": {"uid": self.daemonset.uid}, "status": fields}
        name = self.daemonset.key.name
        self._keep(
            DAEMONSET,
            await self.stage.cluster.patch(
                DAEMONSET, self.namespace, name, patch, subresource="status"
            ),
        )

    def _keep(self, resource: Resource, reply: Body, action: Action | None = None) -> Key:
        """Remembers a reply. Raises Conflict where it does not show what the action was for: the
        next turn would do the same.
        """
        self.stage.remember(resource, reply)
        if action is not None and not _shows(action, reply, self.daemonset):
            message = (
                f"{self.daemonset.key}: the API server took a write and did not keep it: an "
                "admission webhook may undo it"
            )
            raise StaleView(message)
        self.wrote = True
        return key_of(
            {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": reply.get("metadata") or {},
            }
        )


def _labelled(uid: str, hash: str) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "labels": {names.REVISION_HASH: hash}}}


def _ending(pod: Body) -> Body:
    """An object in the reply to its deletion; where it went at once the reply may lack the time of
    deletion.
    """
    metadata = pod.get("metadata") or {}
    return {
        **pod,
        "metadata": {"deletionTimestamp": metadata.get("creationTimestamp", ""), **metadata},
    }


def _is_final(action: Action, error: ClusterError) -> bool:
    """Whether the object is left alone and the decision goes on, which then may not build upon the
    action.

    A patch gets 422 for another UID, and for a revision whose data somebody wrote in other bytes
    than ours: it can't be changed. Upstream leaves only a release at that
    (controller_ref_manager.go, ReleasePod).
    """
    return isinstance(error, Invalid) and isinstance(
        action, Release | LabelRevision | RenumberRevision
    )


def _shows(action: Action, reply: Body, daemonset: DaemonSet) -> bool:
    """Whether the object in the reply is as the action wants it."""
    metadata = reply.get("metadata") or {}
    labels, owner = metadata.get("labels") or {}, pods.controller_of(metadata)
    match action:
        case CreatePod():
            return _owns(daemonset, owner) and label_selector.all_match(
                daemonset.selector or (), labels
            )
        case Adopt() | CreateRevision():
            return _owns(daemonset, owner)
        case Release():
            return not _owns(daemonset, owner)
        case RelabelPod(hash=hash) | LabelRevision(hash=hash):
            return bool(labels.get(names.REVISION_HASH) == hash)
        case RenumberRevision(number=number):
            return bool(reply.get("revision") == number)
        case DeletePod() | DeleteRevision():
            return "deletionTimestamp" in metadata


def _owns(daemonset: DaemonSet, owner: Owner | None) -> bool:
    return owner is not None and owner.uid == daemonset.uid


def target(action: Action) -> str:
    """What an action is about: a node, or an object."""
    return action.node if isinstance(action, CreatePod) else str(action.key)


def _terminating_namespace(error: ClusterError) -> bool:
    """The namespace is being deleted: nothing can be made in it, and nothing needs to be."""
    return isinstance(error, Forbidden) and any(
        cause.get("reason") == "NamespaceTerminating" for cause in error.causes
    )


T = TypeVar("T")


async def _gather(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results, in order. If one raises what is no ClusterError, the others are cancelled."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(coroutine) for coroutine in coroutines]
    return [task.result() for task in tasks]
