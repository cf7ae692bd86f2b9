"""The observation of the DaemonSets of one cluster: four watches feed the cache, and warning events
and gates are read beside them.

It only reads. Commands, the page and the status of agents use it alone; the controller is this part
with an executor.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set

import msgspec

from gitops_ds.controller.pod_warnings import PodWarnings
from gitops_ds.controller.watched_ledger import WatchedLedger
from gitops_ds.core.cluster import ClusterReader, Listing, Selection, WatchEvent
from gitops_ds.core.daemonset import DaemonSet, Pod
from gitops_ds.core.decision import Decision, Observation
from gitops_ds.core.events.base import Emit, Listed, WatchFailed
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import NODE, POD, Body, Key, Resource
from gitops_ds.core.values import replace
from gitops_ds.daemonset.cache import WATCHED, Cache
from gitops_ds.daemonset.epochs import Epochs
from gitops_ds.daemonset.node_room import NodeCapacity
from gitops_ds.kube.client import informer
from gitops_ds.kube.client.informer import Failing, InformerEvent, WorldVersion
from gitops_ds.kube.client.owned_bodies import OwnedBodies
from gitops_ds.rollouts.decisions.stage_inputs import Rollout
from gitops_ds.rollouts.inputs.gate_measurement import GateMeter, GatePoller, PodGates
from gitops_ds.rollouts.inputs.rollout_memory import RolloutMemory, RolloutSources
from gitops_ds.rollouts.state import daemonset_statements

# seconds: interval of a list of the nodes and a reconciliation of every DaemonSet, without events
LIST_NODES_AGAIN = 300.0
# seconds since the last event or bookmark of a watch that is up to date
UP_TO_DATE = 90.0
# seconds between two lists of all kinds because of new epochs
RELIST_INTERVAL = 30.0


class ObserverHooks(msgspec.Struct, frozen=True):
    """The calls to a part that acts on the observations; none may block.

    `received` gets each event before it changes an observation, and may raise, which ends the
    observer. `due` gets the DaemonSets whose decision may have changed. `handled` follows each
    event.
    """

    received: Callable[[Resource, InformerEvent], None] = lambda _resource, _event: None
    due: Callable[[Set[Key]], None] = lambda _keys: None
    handled: Callable[[], None] = lambda: None


NO_HOOKS = ObserverHooks()


class ObservedEpoch:
    """The epoch of one observation, as its writes need it."""

    def __init__(self, observer: Observer, number: int) -> None:
        self._observer, self._number = observer, number

    @property
    def is_current(self) -> bool:
        """Whether all objects are of it still."""
        epochs = self._observer.epochs
        return epochs.number == self._number and not epochs.unlisted

    def end(self) -> None:
        """Ends it: the cluster is older than these objects."""
        if self.is_current:
            self._observer.begin_epoch()


class Observer:
    """The observations, current while `run` runs. `clock` gives seconds since 1970; delays are the
    event loop's.

    `chance` spreads retries and gives numbers in [0, 1).
    """

    def __init__(
        self,
        cluster: ClusterReader,
        emit: Emit,
        *,
        clock: Callable[[], float],
        chance: Callable[[], float],
        hooks: ObserverHooks = NO_HOOKS,
    ) -> None:
        self._cluster, self._emit, self._hooks = cluster, emit, hooks
        self._clock, self._chance = clock, chance
        self._rooms: NodeCapacity | None = None
        self._own_node = ""
        self._listeners: list[Callable[[Set[Key]], None]] = []
        self._event_times: dict[Resource, float] = {}
        self._bodies: OwnedBodies | None = None
        self._pods: Selection | None = None
        self._watches: dict[Resource, asyncio.Timeout] = {}
        self._relisted = -math.inf
        self._ledger: WatchedLedger | None = None
        self.cache, self.epochs = Cache(), Epochs(WATCHED)
        self.gates = GatePoller(PodGates(cluster, clock), lambda key: hooks.due({key}))
        self.pod_warnings = PodWarnings(cluster, clock, self._warned)
        sources = RolloutSources(
            self._applied,
            self._rollouts_in_progress,
            self.cache,
            self.gates,
            self.pod_warnings.of,
        )
        self.rollouts = RolloutMemory(emit, clock, sources)
        self.synced = asyncio.Event()
        self.as_announced: Callable[[DaemonSet, Iterable[Revision]], DaemonSet] = (
            lambda daemonset, _: daemonset
        )
        self.is_ours: Callable[[DaemonSet], bool] = lambda _: True  # applied from Git

    def observe_room(self) -> None:
        """Adds the free capacity of nodes to observations. Before `run`."""
        self._rooms = NodeCapacity()

    def keep_whole(self, bodies: OwnedBodies) -> None:
        """Keeps only the bodies of owned DaemonSets and of their revisions whole. Before `run`."""
        self._bodies = bodies
        bodies.listen(self._list_again)

    def watch_pods(self, which: Selection) -> None:
        """Watches only these pods, from now on if it runs."""
        if which != self._pods:
            self._pods = which
            if POD in self._watches:
                self._list_at(asyncio.get_running_loop().time(), (POD,))

    def follow_ledger(
        self, namespace: str, changed: Callable[[Set[str]], None] | None = None
    ) -> WatchedLedger:
        """Counts of each DaemonSet what the ledger in a namespace announces. `changed` gets the
        UIDs of other contents, by default `announced`. Before `run`.
        """
        ledger = WatchedLedger(self._cluster, namespace, changed or self.announced)
        self._ledger, self.cache.attested = ledger, ledger.attested
        self.as_announced, self.is_ours = ledger.as_announced, ledger.is_applied
        return ledger

    def _list_again(self, added: Set[Key]) -> None:
        """Lists DaemonSets and revisions again if an added one was reduced."""
        if any(self.cache.is_reduced(key) for key in added):
            self._list_at(asyncio.get_running_loop().time(), OwnedBodies.REDUCED)

    def _list_at(self, when: float, resources: Collection[Resource]) -> None:
        """Lists kinds again at a time of the loop, unless that is due before."""
        for resource in resources:
            limit = self._watches.get(resource)
            if limit is None or limit.expired() or (limit.when() or math.inf) <= when:
                continue
            limit.reschedule(when)

    def epoch(self, number: int) -> ObservedEpoch:
        """The epoch of an observation, for its writes."""
        return ObservedEpoch(self, number)

    def begin_epoch(self) -> None:
        """Lists every kind again: a request shows that the cluster is not the observed one."""
        self.epochs.begin()
        self._list_unlisted(())

    def _list_unlisted(self, own: Collection[Resource]) -> None:
        """Lists the kinds of an earlier epoch again, but for those that are about to be listed. A
        proxy that ends each watch with 410 must not list all kinds each time.
        """
        now = asyncio.get_running_loop().time()
        self._relisted = max(now, self._relisted + RELIST_INTERVAL)
        self._list_at(self._relisted, set(self.epochs.unlisted).difference(own))

    def runs_on(self, node: str) -> None:
        """Sets our own node, whose pods are replaced last. Before `run`."""
        self._own_node = node

    def measure_with(self, meter: GateMeter) -> None:
        """Sets the meter of the gates of rollouts. Before `run`."""
        self.gates.meter = meter

    def observe(self, key: Key) -> Observation | None:
        """The observation of a DaemonSet; None if it does not exist, or the lists were not read
        yet.
        """
        seen = self.cache.observe(key, self._clock())
        if seen is None:
            return None
        return replace(
            seen,
            daemonset=self.as_announced(seen.daemonset, seen.revisions),
            own_node=self._own_node,
            rooms=None if self._rooms is None else self._rooms.free_capacity(),
            epoch=self.epochs.number,
            unlisted=tuple(kind.plural for kind in self.epochs.unlisted),
        )

    def is_paced(self, key: Key) -> bool:
        """Whether powers pace may write something for a DaemonSet: it has a policy, in its
        annotations or by its announcement, or there are pods with our scheduling gate. True for an
        unknown one. It visits no pod: events of the pods of all DaemonSets arrive.
        """
        daemonset = self.cache.daemonset(key)
        if daemonset is None or self.cache.gated:
            return True
        announced = self.as_announced(daemonset, ())
        return any(
            map(daemonset_statements.has_policy, (daemonset.annotations, announced.annotations))
        )

    def _applied(self) -> Iterator[Observation]:
        """The observations of all our DaemonSets."""
        for daemonset in tuple(self.cache.daemonsets):
            if self.is_ours(daemonset) and (seen := self.observe(daemonset.key)) is not None:
                yield seen

    def _rollouts_in_progress(self) -> Iterator[Rollout]:
        """Our DaemonSets with a target, each with its revisions."""
        for daemonset in self.cache.daemonsets:
            announced = self.as_announced(daemonset, ()) if self.is_ours(daemonset) else None
            if announced is not None and daemonset_statements.target_name(announced.annotations):
                yield announced, self.cache.revisions_of(daemonset)

    @property
    def keys(self) -> tuple[Key, ...]:
        """The DaemonSets of the cluster, sorted."""
        return self.cache.keys

    def listen(self, moved: Callable[[Set[Key]], None]) -> None:
        """Subscribes `moved` to the keys of DaemonSets whose observation changed; it must return
        fast.
        """
        self._listeners.append(moved)

    @property
    def ages(self) -> Mapping[str, float]:
        """The seconds since the last event of each watch, by the plural of its kind; bookmarks
        arrive about every minute.
        """
        now = asyncio.get_running_loop().time()
        return {resource.plural: now - at for resource, at in self._event_times.items()}

    def known_pods(self, daemonset: DaemonSet) -> Sequence[Pod] | None:
        """The pods of a DaemonSet, with orphans that it selects; None if the watch may be behind:
        at rest, a bookmark arrives about every minute.
        """
        is_current = self.ages.get(POD.plural, math.inf) < UP_TO_DATE
        return self.cache.pods_of(daemonset) if is_current else None

    @property
    def unready(self) -> str:
        """Why the state of DaemonSets is unknown; empty when everything was listed once."""
        return "" if self.synced.is_set() else "the first lists are not read"

    def forget(self, key: Key) -> None:
        """Drops what was read beside the watches for a DaemonSet that is gone."""
        self.rollouts.forget(key)
        self.pod_warnings.forget(key)

    def announced(self, uids: Set[str]) -> None:
        """Handles that other annotations of the DaemonSets or revisions with these UIDs count."""
        keys = self.cache.with_uids(uids)
        self._hooks.due(keys)
        self._publish(keys)

    def remember(self, daemonset: DaemonSet, decision: Decision) -> None:
        """Stores a decision before it is executed: the watches show its effects later."""
        self.cache.remember(daemonset, decision)
        if self._rooms is not None:
            self._rooms.remember(daemonset.key, decision)

    def wrote(self, resource: Resource, body: Body) -> None:
        """Stores an object that the API server returned to a write, until its watch has passed
        it.
        """
        if self._rooms is not None and resource == POD:
            self._rooms.wrote(body)
        self.cache.wrote(resource, body, self._clock())
        self._publish_changes()

    async def run(self) -> None:
        """Watches until it is cancelled. Raises the errors of the hook `received`."""
        async with asyncio.TaskGroup() as group:
            if self._ledger is not None:
                group.create_task(self._ledger.run(self._chance))
                group.create_task(self._wait_for_ledger(self._ledger))
            for resource in WATCHED:
                group.create_task(self._watch(resource))
            for part in (self.gates, self.pod_warnings):
                group.create_task(part.run())

    async def _wait_for_ledger(self, ledger: WatchedLedger) -> None:
        await ledger.is_read.wait()
        self._publish_changes()

    def _set_synced(self) -> None:
        if self.cache.synced and (self._ledger is None or self._ledger.is_read.is_set()):
            self.synced.set()

    async def _watch(self, resource: Resource) -> None:
        def handle(event: InformerEvent) -> None:
            self._handle(resource, event)

        def asking() -> None:
            self.epochs.asks(resource)
            self.cache.asks(resource)

        bodies = self._bodies if resource in OwnedBodies.REDUCED else None
        which = Selection(brief=self._rooms is None, whole=bodies.whole if bodies else None)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LIST_NODES_AGAIN if resource == NODE else None) as limit:
                    self._watches[resource] = limit
                    await informer.run(
                        self._cluster,
                        resource,
                        self._pods if resource == POD and self._pods else which,
                        handle,
                        random=self._chance,
                        before_list=asking,
                    )

    def _handle(self, resource: Resource, event: InformerEvent) -> None:
        self._hooks.received(resource, event)
        epoch = self.epochs.number
        if not isinstance(event, Failing):
            self._event_times[resource] = asyncio.get_running_loop().time()
        match event:
            case Listing(items=items, version=version):
                self._emit(Listed(self._clock()))
                self.epochs.lists(resource, version)
                if self._rooms is not None:
                    self._hooks.due(self._rooms.replace(resource, items, version))
                self._hooks.due(self.cache.replace(resource, items, version))
            case WatchEvent(type=type, object=body, version=version):
                self.epochs.follows(resource, version)
                if self._rooms is not None:
                    self._hooks.due(self._rooms.apply(resource, type, body, version))
                self._hooks.due(self.cache.apply(resource, type, body, version))
            case WorldVersion(version=version):
                self.epochs.answered(resource, version)
                self._hooks.due(self.cache.answered(resource, version))
            case Failing(error=error, retry_in=retry_in, history_lost=history_lost):
                if history_lost:
                    self.epochs.lost(resource)
                self._emit(WatchFailed(self._clock(), resource, error, retry_in))
        if self.epochs.number != epoch:
            self._list_unlisted(() if isinstance(event, WatchEvent) else (resource,))
            self._publish(set(self.keys))
        self._publish_changes()

    def _warned(self, key: Key) -> None:
        self._hooks.due({key})
        self._publish({key})

    def _publish_changes(self) -> None:
        self._hooks.handled()
        self._set_synced()
        if self.cache.synced and (moved := self.cache.take_moved()):
            self._publish(moved)

    def _publish(self, keys: Set[Key]) -> None:
        for listener in self._listeners:
            listener(keys)
