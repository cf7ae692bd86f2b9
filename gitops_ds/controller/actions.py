"""The writes of one action: a pod or a revision created, patched or deleted. The present state of
an object can refine an action, but makes no decisions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from gitops_ds.core import names
from gitops_ds.core.cluster import Cluster, PatchType, Selection
from gitops_ds.core.daemonset import DaemonSet, Owner
from gitops_ds.core.decision import (
    Action,
    Adopt,
    CreatePod,
    CreateRevision,
    DeleteCause,
    DeletePod,
    DeleteRevision,
    LabelRevision,
    NominatePod,
    PodMark,
    PromoteRevision,
    RecordRollout,
    RelabelPod,
    Release,
    RenumberRevision,
)
from gitops_ds.core.errors import AlreadyExists, NotFound, StaleView
from gitops_ds.core.objects import (
    CONTROLLER_REVISION,
    DAEMONSET,
    POD,
    Body,
    Key,
    Resource,
    key_of,
    version_number,
)
from gitops_ds.daemonset import pod_changes
from gitops_ds.kube.apimachinery import daemonsets, label_selector, pods, revisions
from gitops_ds.rollouts.state import attested_records, daemonset_statements, target_revisions

Remember = Callable[[Resource, Body], None]
# Stores that the text of an annotation of a revision, by its UID, is ours, before it is written.
Announce = Callable[[str, str, str], Awaitable[None]]
# Gets the answer to the creation of a pod of a DaemonSet.
Created = Callable[[Key, Body], None]

_Patched = (
    Adopt
    | Release
    | RelabelPod
    | LabelRevision
    | RenumberRevision
    | NominatePod
    | RecordRollout
    | PromoteRevision
)

_NAMES_TO_TRY = 5


async def _unannounced(_uid: str, _annotation: str, _text: str) -> None:
    """Stores nothing: without a ledger every record counts."""


class WriteHooks(msgspec.Struct, frozen=True):
    """The calls beside writes: `remember` gets each reply, `created` that of a created pod, and
    `announce` precedes each write of a record.
    """

    remember: Remember
    announce: Announce = _unannounced
    created: Created = lambda _key, _body: None


class WatchedEpoch(Protocol):
    """The epoch of the objects that a decision read (`gitops_ds.daemonset.epochs`)."""

    @property
    def is_current(self) -> bool:
        """Whether all objects are of it still."""
        ...

    def end(self) -> None:
        """Ends it: the cluster is older than these objects."""
        ...


class ActionWriter:
    """Writes the actions of one decision for a DaemonSet, while its epoch is current.

    `wrote`: the next observation differs. `gone` are the actions whose object no longer existed.
    """

    def __init__(
        self, cluster: Cluster, hooks: WriteHooks, epoch: WatchedEpoch, daemonset: DaemonSet
    ) -> None:
        self._cluster, self._hooks, self._daemonset = cluster, hooks, daemonset
        self._namespace, self._epoch = daemonset.key.namespace, epoch
        self._confirmed = False
        self.wrote = False
        self.gone: list[Action] = []

    async def write(self, action: Action) -> Key | None:
        """Writes one action; returns its object, None if nothing was left to do. Raises StaleView
        after the end of the epoch.
        """
        if not self._epoch.is_current:
            raise StaleView(f"{self._daemonset.key}: pods, nodes and revisions are listed again")
        match action:
            case CreatePod():
                return await self._create_pod(action)
            case DeletePod():
                return await self._delete_pod(action)
            case DeleteRevision(key=key, uid=uid):
                return await self._delete(action, CONTROLLER_REVISION, key, uid)
            case RelabelPod(uid=uid, hash=hash) | LabelRevision(uid=uid, hash=hash):
                return await self._patch(action, _labelled(uid, hash), PatchType.MERGE)
            case RenumberRevision(uid=uid, number=number):
                return await self._patch(
                    action, {"metadata": {"uid": uid}, "revision": number}, PatchType.MERGE
                )
            case NominatePod(uid=uid, node=node):
                status = {"nominatedNodeName": node}
                nomination = {"metadata": {"uid": uid}, "status": status}
                return await self._patch(action, nomination, PatchType.MERGE, "status")
            case RecordRollout(uid=uid, record=record, annotation=annotation):
                await self._hooks.announce(uid, annotation, record)
                annotations = {annotation: record}
                patch = {"metadata": {"uid": uid, "annotations": annotations}}
                return await self._patch(action, patch, PatchType.MERGE)
            case PromoteRevision():
                patch = target_revisions.promotion(
                    self._daemonset, action.uid, action.labels, action.proof
                )
                for annotation, text in attested_records.records_in(patch):
                    await self._hooks.announce(action.uid, annotation, text)
                return await self._patch(action, patch, PatchType.MERGE)
            case Adopt(uid=uid):
                return await self._adopt(action, uid)
            case Release(uid=uid):
                return await self._release(action, uid)
            case CreateRevision():
                return await self._create_revision(action)

    async def _create_pod(self, action: CreatePod) -> Key | None:
        """The pod with an existing name may be our own, after a lost reply or from an earlier
        leader: then nothing is left to do.
        """
        for mark in action.after:
            await self._mark(mark)
        for attempt in range(_NAMES_TO_TRY):
            body, name = action.body, action.body["metadata"]["name"]
            if attempt:
                name = pod_changes.pod_name(action.seed, attempt)
                body = {**body, "metadata": {**body["metadata"], "name": name}}
            try:
                reply = await self._cluster.create(POD, body)
                self._hooks.created(self._daemonset.key, reply)
                return self._keep(POD, reply, action)
            except AlreadyExists:
                if await self._is_ours(name, action.node):
                    return None
        message = (
            f"{_NAMES_TO_TRY} names for a pod of {self._daemonset.key} on {action.node} are taken "
            "by others"
        )
        raise StaleView(message)

    async def _is_ours(self, name: str, node: str) -> bool:
        """Whether the pod is the one to create. If our pod is terminating, the observation is
        stale: StaleView causes a later retry.
        """
        try:
            body = await self._cluster.get(POD, self._namespace, name)
        except NotFound as error:
            raise StaleView(f"the pod {self._namespace}/{name} just vanished") from error
        pod = pods.pod_of(body)
        if pod.owner is None or pod.owner.uid != self._daemonset.uid or pod.node != node:
            return False
        self._keep(POD, body)
        if pod.terminating or pod.ended:
            raise StaleView(
                f"the pod {self._namespace}/{name} is ending, which the watch had not shown"
            )
        return True

    async def _delete_pod(self, action: DeletePod) -> Key | None:
        if self._is_replaced(action):
            await self._confirm(whole=True)
        if action.mark is not None and not await self._mark(action.mark):
            self.gone.append(action)
            return None
        return await self._delete(action, POD, action.key, action.uid)

    async def _mark(self, mark: PodMark) -> bool:
        """Labels a pod that is replaced; returns whether it still exists."""
        metadata = {"uid": mark.uid, "labels": {names.REPLACED: mark.daemonset}}
        patch, key = {"metadata": metadata}, mark.key
        try:
            reply = await self._cluster.patch(
                POD, key.namespace, key.name, patch, type=PatchType.MERGE
            )
        except NotFound:
            return False
        self._keep(POD, reply)
        return True

    async def _delete(self, action: Action, resource: Resource, key: Key, uid: str) -> Key | None:
        try:
            reply = await self._cluster.delete(resource, key.namespace, key.name, uid=uid)
        except NotFound:
            self.gone.append(action)  # a conflict (another object has the name) is an error
            return None
        if reply.get("kind") == resource.kind:
            self._keep(resource, _ending(reply))
        return key  # if it was deleted at once, its event follows, and nothing waits for it

    async def _adopt(self, action: Adopt, uid: str) -> Key | None:
        await self._confirm()
        owner = {"ownerReferences": [revisions.owner_reference(self._daemonset)], "uid": uid}
        return await self._patch(action, {"metadata": owner}, PatchType.STRATEGIC)

    async def _release(self, action: Release, uid: str) -> Key | None:
        references = [{"$patch": "delete", "uid": self._daemonset.uid}]
        return await self._patch(
            action, {"metadata": {"ownerReferences": references, "uid": uid}}, PatchType.STRATEGIC
        )

    async def _patch(
        self, action: _Patched, patch: Body, type: PatchType, subresource: str = ""
    ) -> Key | None:
        """Patches a pod or a revision; the UID in the patch ensures that it is the observed object.

        For a missing object a release or a label is unnecessary; a missing object of an adoption or
        a revision is an error, since decisions depend on it.
        """
        key = action.key
        resource = POD if key.kind == POD.kind else CONTROLLER_REVISION
        try:
            reply = await self._cluster.patch(
                resource, key.namespace, key.name, patch, type=type, subresource=subresource
            )
        except NotFound:
            if isinstance(action, Release | RelabelPod | NominatePod):
                self.gone.append(action)
                return None
            raise
        return self._keep(resource, reply, action)

    def _is_replaced(self, action: DeletePod) -> bool:
        """Whether a pod is deleted for the templates of a rollout. The DaemonSet names them; the
        template of a pod never changes, so its UID suffices.
        """
        is_rolled_out = daemonset_statements.has_proof(self._daemonset.annotations)
        return is_rolled_out and action.cause in (DeleteCause.OUTDATED, DeleteCause.UNWANTED)

    async def _confirm(self, *, whole: bool = False) -> None:
        """Checks before an adoption that the DaemonSet exists and is not being deleted, before
        deletes that it is (`whole`) unchanged as well: one request for all of a decision.

        The read is of the newest version, so an older one than the observed one is of another
        history, without an event of any watch.
        """
        if self._confirmed:
            return
        observed = self._daemonset
        live = await (self._listed() if whole else self._read())
        if live.uid == observed.uid and 0 < version_number(live.version) < version_number(
            observed.version
        ):
            self._epoch.end()
            raise StaleView(f"{observed.key} is older than it was: was the cluster restored?")
        if live.uid != observed.uid or live.deleting:
            raise StaleView(
                f"{observed.key} is being deleted, or was replaced: nothing is written for it"
            )
        if whole and _stated(live) != _stated(observed):
            raise StaleView(f"{observed.key} has changed since it was observed")
        self._confirmed = True

    async def _read(self) -> DaemonSet:
        name = self._daemonset.key.name
        return daemonsets.daemonset_of(await self._cluster.get(DAEMONSET, self._namespace, name))

    async def _listed(self) -> DaemonSet:
        """The DaemonSet by a consistent list, which powers pace permit, unlike a get."""
        name = self._daemonset.key.name
        which = Selection(self._namespace, fields=f"metadata.name={name}")
        items = (await self._cluster.list(DAEMONSET, which)).items
        if not items:
            raise StaleView(f"{self._daemonset.key} was deleted: nothing is written for it")
        return daemonsets.daemonset_of(next(iter(items)))

    async def _create_revision(self, action: CreateRevision) -> Key | None:
        """A revision with an existing name is used if it has the same template. Otherwise it is a
        collision: the next reconciliation hashes with a higher count.

        Its watch may not have shown the existing revision yet, so the answer is remembered: the
        next number is higher than the existing one's.
        """
        try:
            return self._keep(
                CONTROLLER_REVISION,
                await self._cluster.create(CONTROLLER_REVISION, action.body),
                action,
            )
        except AlreadyExists:
            body = await self._cluster.get(CONTROLLER_REVISION, self._namespace, action.key.name)
            self._hooks.remember(CONTROLLER_REVISION, body)
            template = revisions.template_of(body)
            if template is not None and revisions.same_template(template, self._daemonset.template):
                return None
            await self._count_collision(action)
            raise

    async def _count_collision(self, action: CreateRevision) -> None:
        live = await self._read()
        if live.uid == self._daemonset.uid and live.collision_count == action.collision_count:
            await self.patch_status({"collisionCount": (action.collision_count or 0) + 1})

    async def patch_status(self, fields: Body) -> None:
        """Patches fields of the status of exactly this DaemonSet."""
        patch = {"metadata": {"uid": self._daemonset.uid}, "status": fields}
        name = self._daemonset.key.name
        self._keep(
            DAEMONSET,
            await self._cluster.patch(
                DAEMONSET, self._namespace, name, patch, subresource="status"
            ),
        )

    def _keep(self, resource: Resource, reply: Body, action: Action | None = None) -> Key:
        """Passes a reply to `remember`. Raises StaleView if it does not show the effect of the
        action: the next reconciliation would repeat the action.
        """
        self._hooks.remember(resource, reply)
        if action is not None and not _shows(action, reply, self._daemonset):
            message = (
                f"{self._daemonset.key}: the API server accepted a write and did not store it: an "
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


def _stated(daemonset: DaemonSet) -> tuple[int, dict[str, str]]:
    """What a DaemonSet states about its rollouts."""
    annotations = daemonset.annotations.items()
    ours = {name: text for name, text in annotations if name.startswith(f"{names.DOMAIN}/")}
    return daemonset.generation, ours


def _labelled(uid: str, hash: str) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "labels": {names.REVISION_HASH: hash}}}


def _ending(pod: Body) -> Body:
    """An object in the reply to its deletion; if it was deleted at once, the reply may lack the
    time of deletion.
    """
    metadata = pod.get("metadata") or {}
    return {
        **pod,
        "metadata": {"deletionTimestamp": metadata.get("creationTimestamp", ""), **metadata},
    }


def _shows(action: Action, reply: Body, daemonset: DaemonSet) -> bool:
    """Whether the object in the reply shows the effect of the action."""
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
        case NominatePod():
            return pods.pod_of(reply).nominated
        case RecordRollout(record=record, annotation=annotation):
            return bool((metadata.get("annotations") or {}).get(annotation) == record)
        case PromoteRevision():
            return _owns(daemonset, owner)
        case DeletePod() | DeleteRevision():
            return "deletionTimestamp" in metadata


def _owns(daemonset: DaemonSet, owner: Owner | None) -> bool:
    return owner is not None and owner.uid == daemonset.uid
