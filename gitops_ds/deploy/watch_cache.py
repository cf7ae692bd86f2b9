"""The objects that a plan reads, kept current by watches: an unchanged cluster receives no
requests.

DaemonSets, their revisions and nodes are watched whole; every other kind only by our owner label.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
from collections.abc import Callable, Mapping, Set
from typing import Any

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import BRIEF, ClusterReader, EventType, Listing, Selection, WatchEvent
from gitops_ds.core.live import Live, Node
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, NODE, Body, Key, Resource, key_of
from gitops_ds.deploy import live_state
from gitops_ds.kube.apimachinery import foreign_bodies, revisions
from gitops_ds.kube.apimachinery.builtin_resources import RESOURCES
from gitops_ds.kube.apimachinery.nodes import node_of
from gitops_ds.kube.client import informer
from gitops_ds.kube.client.informer import Failing
from gitops_ds.kube.client.informer_store import InformerStore
from gitops_ds.kube.client.owned_bodies import OwnedBodies
from gitops_ds.kube.client.received_bodies import EqualValues
from gitops_ds.kube.client.supervisor import Supervisor, ended
from gitops_ds.ownership import object_owner
from gitops_ds.rollouts.state import proofs, rollout_annotations, target_revisions

_WHOLE = (DAEMONSET, CONTROLLER_REVISION, NODE)
_NODES: EqualValues[Node] = EqualValues()  # each deployer of a service keeps all nodes
LAG = 10.0  # seconds that a reader waits for the watches
# Seconds. A working watch receives an event or a bookmark about each minute; a list follows a watch
# that was silent for its whole duration of at most 605 s (client/informer).
OLDEST_PICTURE = 660.0


class WatchCache:
    """The informer stores of one deployer. `on_change` is called for a change that may affect a
    plan. `bodies` are the objects that are kept whole, of all deployers of a service.
    """

    def __init__(
        self,
        cluster: ClusterReader,
        owner: str,
        on_change: Callable[[], None],
        chance: Callable[[], float],
        supervisor: Supervisor,
    ) -> None:
        self._cluster, self._owner, self._on_change, self._chance = (
            cluster,
            owner,
            on_change,
            chance,
        )
        self._supervisor = supervisor
        self.bodies = OwnedBodies()
        self._listed_again: set[Key] = set()
        self._stores: dict[Resource, InformerStore[Any]] = {}  # of nodes `Node`, else `Body`
        self._tasks: dict[Resource, asyncio.Task[None]] = {}
        # when a store was last known to be up to date, in the event loop's time
        self._current_at: dict[Resource, float] = {}
        self._wanted: frozenset[Resource] = frozenset()
        self._marks: dict[Key, object] = {}
        self._approval_marks: dict[Key, object] = {}
        self._ours: set[Key] = set()
        self._retry_now = asyncio.Event()

    def _follow(self, kinds: Set[Resource]) -> None:
        """Watches these kinds too, and stops watches that were never listed and are no longer
        wanted.
        """
        for resource in [
            kind
            for kind, store in self._stores.items()
            if kind not in kinds and not store.synced.is_set()
        ]:
            self._tasks.pop(resource).cancel()
            del self._stores[resource]
        for resource in sorted(kinds):
            if resource not in self._stores:
                parse = _planned_node if resource == NODE else _without_status
                store = self._stores[resource] = InformerStore(parse, self._handle_changes)
                which = self._selection(resource)
                sink = self._sink(resource, store)
                follow = functools.partial(informer.run, self._cluster, resource, which, sink)
                run = functools.partial(follow, sleep=self._pause, random=self._chance)
                self._tasks[resource] = self._supervisor.start(f"watch {resource.plural}", run)

    def _selection(self, resource: Resource) -> Selection:
        if resource == NODE:
            return BRIEF
        labels = "" if resource in _WHOLE else f"{names.OWNER_LABEL}={self._owner}"
        return Selection(labels=labels, whole=self.bodies.whole)

    async def _list_reduced_again(self, wanted: Set[Key]) -> None:
        """Ends the watches of kinds with reduced bodies of wanted objects, those of others until
        now: `_follow` starts them with a list.
        """
        kinds = {
            resource
            for resource, store in self._stores.items()
            for key in wanted & store.objects.keys() - self._listed_again
            if resource != NODE
            if foreign_bodies.is_reduced(store.objects[key])
        }
        if not kinds:
            return
        self._listed_again |= wanted
        kinds |= {CONTROLLER_REVISION} if DAEMONSET in kinds else set()
        for resource in kinds & self._stores.keys():
            del self._stores[resource]
            await ended(self._tasks.pop(resource))

    async def stop(self) -> None:
        """Ends all watches."""
        await ended(*self._tasks.values())

    async def unlisted(
        self, resources: Mapping[Key, Resource]
    ) -> Mapping[Key, errors.ClusterError]:
        """The objects of kinds whose lists fail: without the permission, in a version that is not
        served, because the kind has no lists or a webhook of the kind fails. Their watches end;
        kinds that were listed before are not among them.
        """
        self._follow({*_WHOLE, *resources.values()})
        refused: dict[Resource, errors.ClusterError] = {}
        for kind in sorted(set(resources.values()).difference(_WHOLE)):
            try:
                await self._listed(kind)
            except errors.ClusterError as error:
                if _is_of_the_kind(error):
                    refused[kind] = error
                    del self._stores[kind]
                    await ended(self._tasks.pop(kind))
        return {key: refused[kind] for key, kind in resources.items() if kind in refused}

    async def live(self, resources: Mapping[Key, Resource]) -> Live:
        """The objects that are wanted or have our label. Only wanted objects without our label are
        requested from the API server.

        Raises ClusterError while a watch cannot continue because the API server is unreachable, and
        Forbidden for a kind that may not be listed.
        """
        kinds = {*_WHOLE, *resources.values()}
        self.bodies.add(resources)
        await self._list_reduced_again(resources.keys())
        self._follow(kinds)
        await self._wait_until_current()
        for kind in sorted(kinds):
            await self._listed(kind)
        self._wanted = frozenset(kinds)
        self.require_current()
        objects: dict[Key, Body] = {}
        for resource, store in self._stores.items():
            if resource not in (NODE, CONTROLLER_REVISION):
                objects.update(store.objects)
        revisions = self._stores[CONTROLLER_REVISION].objects.values()
        for body in live_state.targets_of(revisions, self._owner):
            objects[key_of(body)] = body
        missing = {
            key: resource
            for key, resource in resources.items()
            if key not in objects and resource not in (DAEMONSET, CONTROLLER_REVISION)
        }
        objects |= await live_state.single(self._cluster, missing)
        relevant = {
            key: body
            for key, body in objects.items()
            if key in resources or object_owner.owner_of(body) == self._owner
        }
        return live_state.assemble(relevant, revisions, self._stores[NODE].objects.values())

    async def _listed(self, kind: Resource) -> None:
        try:
            await self._stores[kind].listed()
        except errors.Forbidden as error:
            without = f"without that permission, remove {kind.plural} from the repository"
            raise errors.Forbidden(f"{error}; {without}", error.status, error.reason) from None

    def require_current(self) -> None:
        """Raises ClusterError if the last read of a wanted kind is too old: its objects may have
        changed.
        """
        now = asyncio.get_running_loop().time()
        for kind in sorted(self._wanted):
            failing = self._stores[kind].failing
            if failing is not None and now - self._current_at.get(kind, -math.inf) > OLDEST_PICTURE:
                error = failing.error
                message = (
                    f"the last list of {kind.plural} is more than {OLDEST_PICTURE / 60:.0f} "
                    f"minutes old: {error}"
                )
                raise type(error)(message, error.status, error.reason)

    def _sink(self, resource: Resource, store: InformerStore[Any]) -> informer.Sink:
        """The sink of a store, which also records when the store was last current."""
        time = asyncio.get_running_loop().time
        is_custom = (resource.group, resource.kind) not in RESOURCES

        def handle(event: informer.InformerEvent) -> None:
            if not isinstance(event, Failing):
                self._current_at[resource] = time()
            elif isinstance(event.error, errors.NotFound) and store.synced.is_set() and is_custom:
                # The kind is no longer served: its definition was deleted, and its objects with it.
                # A built-in kind is always served, so a 404 is not from the API server, but from a
                # proxy, for example.
                self._current_at[resource] = time()
                store.handle(Listing((), store.version))
            store.handle(event)

        return handle

    def expect(self, key: Key, version: str) -> None:
        """Makes the next read wait for a write, at this version; "" for a deletion."""
        for resource, store in self._stores.items():
            if (resource.group, resource.kind) == (key.group, key.kind):
                store.expect(key, version)

    async def _wait_until_current(self) -> None:
        """Waits until the watches have returned our writes; a plan from an older state would repeat
        them.
        """
        if any(store.away for store in self._stores.values()):
            self._retry_now.set()  # ends the pauses of failing watches
            self._retry_now.clear()
        try:
            async with asyncio.timeout(LAG):
                # All at once: a store whose watch fails is level for a moment only, after each of
                # its lists.
                await asyncio.gather(*(store.level.wait() for store in self._stores.values()))
        except TimeoutError:
            for store in self._stores.values():
                store.expect_nothing()
                if store.away and store.failing is not None:
                    raise store.failing.error from None

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._retry_now.wait()

    def _handle_changes(self, changes: tuple[WatchEvent, ...]) -> None:
        # Every change updates its mark, so none may be skipped.
        mattering = [change for change in changes if self._affects_plan(change)]
        if mattering:
            self._on_change()

    def _affects_plan(self, change: WatchEvent) -> bool:
        """Whether a change may affect a plan: changes of status and heartbeats do not."""
        key = key_of(change.object)
        mark = None if change.type is EventType.DELETED else _mark(change.object)
        if mark == self._marks.get(key):
            return False
        if mark is None:
            self._marks.pop(key, None)
        else:
            self._marks[key] = mark
        was_ours = key in self._ours
        if object_owner.owner_of(change.object) == self._owner and mark is not None:
            self._ours.add(key)
        else:
            self._ours.discard(
                key
            )  # another client removed our label: this change affects the plan as well
        is_ours = key in self._ours
        if key.kind == "ControllerRevision":  # promoted, deleted, halted, or the next stage waits
            waits = self._approval_may_be_missing(key, change)
            has_ended = was_ours and (not is_ours or _has_ended(change.object))
            return has_ended or waits or _is_early(change)
        return key.kind == "Node" or was_ours or is_ours

    def _approval_may_be_missing(self, key: Key, change: WatchEvent) -> bool:
        """Whether another stage waits for an approval, or the approvals changed."""
        deleted = change.type is EventType.DELETED
        mark = None if deleted else _approval_mark(change.object)
        before = self._approval_marks.pop(key, None)
        if mark is not None:
            self._approval_marks[key] = mark
        return mark is not None and mark != before


def _is_of_the_kind(error: errors.ClusterError) -> bool:
    """Whether the answer to a list is about its kind, and not about the client. A failing server
    counts too: a webhook that converts the versions of one kind fails its lists with 500, and a
    server that fails for all kinds also fails those that every plan reads.
    """
    others = (errors.Unauthorized, errors.Expired, errors.TooManyRequests)
    return error.status >= 400 and not isinstance(error, others)


def _approval_mark(body: Body) -> object:
    """The fields that determine which stage of a target revision needs an approval; None without
    approvers.
    """
    revision = revisions.revision_of(body)
    if revision is None:
        return None
    if rollout_annotations.approvers_of(revision) is None:
        return None
    approvals = rollout_annotations.approvals_text(revision)
    return frozenset(target_revisions.record_in(revision).passed), approvals


def _has_ended(body: Body) -> bool:
    """Whether the rollout of a target revision is halted, or complete while the DaemonSet owns
    another revision with its template.
    """
    revision = revisions.revision_of(body)
    if revision is None:
        return False
    is_halted = target_revisions.record_in(revision).halt is not None
    return is_halted or proofs.proof_in(revision) is not None


def _is_early(change: WatchEvent) -> bool:
    """Whether a DaemonSet owns this target revision: it got the template before the end."""
    revision = revisions.revision_of(change.object)
    if revision is None or names.ROLLOUT not in revisions.labels_of(revision):
        return False
    return target_revisions.is_promoted(revision)


def _mark(body: Body) -> object:
    metadata = body.get("metadata") or {}
    fields = [metadata.get("uid"), metadata.get("labels"), metadata.get("annotations")]
    if key_of(body).kind == "Node":
        return hash(str([*fields[:2], (body.get("spec") or {}).get("taints")]))
    return hash(str([*fields, metadata.get("generation") or metadata.get("resourceVersion")]))


def _without_status(body: Body) -> Body:
    return {key: value for key, value in body.items() if key != "status"}


def _planned_node(body: Body) -> Node:
    """The node with the fields that plans read."""
    node = node_of(body)
    return _NODES.intern(
        Node(
            node.name,
            node.labels,
            node.taints,
            ready=node.ready,
            unschedulable=node.unschedulable,
            uid=node.uid,
        )
    )
