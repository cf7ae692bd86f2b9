"""An informer: lists and watches one kind of object indefinitely, across failures of the
connection.

A state and an input give the next state and the event to publish (`step`); a small driver sends the
requests. Every failure leads to a state. A list is published as a whole, so that a store can swap
its objects and detect those that were deleted while the watch was interrupted.

    Start ──list──> Following ──the watch ends──> Returning ──same world──> Following
      ^                 │                            │
      ├──410 Expired────┴────an older world──────────┘
      └──the watch is fruitless: repeated failures, or silence for minutes

`Returning` requests an empty list for its version before it watches again: after a restored backup
the cluster may be older than the version that the watch follows, and a watch from a future version
is silent indefinitely.
https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes

An empty list proves that the API server answers, not that its watches work: a proxy or a missing
right may fail those alone. Then the full list is read again, with back-off, so that a broken watch
degrades to polling, as in client-go's reflector (tools/cache/reflector.go, ListAndWatch: every
error of a watch but 429 and a refused connection ends in another list).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Generic, TypeVar, cast

from gitops_ds.errors import ClusterError, ClusterUnreachable, Expired, ServerFault, TooManyRequests
from gitops_ds.model.backoff import Backoff
from gitops_ds.model.cluster import Cluster, EventType, Listing, Selection, WatchEvent
from gitops_ds.model.objects import Body, Key, Resource, key_of

# Seconds; jitter makes it up to twice as long. The first as client-go's reflector; the longest is
# shorter than its 30, so that stores are current half a minute after the API server recovers.
BACKOFF = Backoff(0.8, 12.0, jitter=1.0)
# seconds, as client-go's reflector: the back-off of full lists where the watch fails
RELIST_BACKOFF = replace(BACKOFF, longest=30.0)
FRUITLESS_WATCHES = 3  # watches in a row without an event, before the objects are listed again
# seconds without list, event or bookmark: API servers send a bookmark about each minute
LONGEST_SILENCE = 300.0
STEADY_AFTER = 10.0  # seconds; a watch that lasted so long resets the count of failures
_NO_SUCH = "metadata.name=gitops-ds-asks-for-the-version"


@dataclass(frozen=True, slots=True)
class Start:
    """The objects are unknown: list them."""

    failures: int = 0
    fruitless: int = 0


@dataclass(frozen=True, slots=True)
class Watching:
    """Every change up to `version` is published: watch from there.

    `resumed`: the watch follows an empty list instead of a full one. `fruitless`: the number of
    watches in a row that ended without an event.
    """

    version: str
    failures: int = 0
    resumed: bool = False
    fruitless: int = 0


@dataclass(frozen=True, slots=True)
class Returning:
    """The watch ended: check that the cluster is not older than `version`."""

    version: str
    failures: int = 0
    fruitless: int = 0


InformerState = Start | Watching | Returning


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """The end of a watch after `lasted` seconds: by the server, or with an error.

    `silent_for`: seconds since the last list, event or bookmark; `had_events`: this watch received
    an event or a bookmark.
    """

    lasted: float
    error: ClusterError | None = None
    silent_for: float = 0.0
    had_events: bool = True


@dataclass(frozen=True, slots=True)
class WorldVersion:
    """The cluster's current version, from an empty list. As an event: it is not older than the
    followed version, so the watch continues.
    """

    version: str


@dataclass(frozen=True, slots=True)
class Failing:
    """A request failed; the retry follows after `retry_in` seconds."""

    error: ClusterError
    retry_in: float


InformerInput = Listing | WatchEnded | WorldVersion | ClusterError
InformerEvent = Listing | WatchEvent | WorldVersion | Failing
Sink = Callable[[InformerEvent], None]


@dataclass(frozen=True, slots=True)
class Transition:
    """The next state, the event to publish (None: nothing), and the seconds to wait before it."""

    state: InformerState
    event: InformerEvent | None = None
    wait: float = 0.0


def step(state: InformerState, input: InformerInput, chance: float) -> Transition:
    """The next state. `chance` is a number in [0, 1) that spreads the retries of many watchers."""
    match input:
        case Listing(version=version):
            return Transition(Watching(version, state.failures, fruitless=state.fruitless), input)
        case WorldVersion(version=version):
            followed = _version(state)
            if _is_before(version, followed):
                return Transition(Start(state.failures))
            return Transition(
                Watching(followed, state.failures, resumed=True, fruitless=state.fruitless), input
            )
        case WatchEnded():
            return _after_watch(state, input, chance)
        case Expired():
            # A restarted server has lost the older versions, but it answers: list at once.
            wait = (
                BACKOFF.delay(state.failures, chance)
                if state.failures and not _resumed(state)
                else 0.0
            )
            return Transition(
                Start(state.failures + 1, state.fruitless), Failing(input, wait), wait
            )
        case ClusterError():
            wait = max(BACKOFF.delay(state.failures + 1, chance), _retry_after(input))
            return Transition(_after_error(state), Failing(input, wait), wait)


def _after_watch(state: InformerState, ended: WatchEnded, chance: float) -> Transition:
    """The watch continues where it ended, or a new list where watches seem broken."""
    steady = ended.lasted >= STEADY_AFTER
    failures = 0 if steady else state.failures
    fruitless = 0 if steady or ended.had_events else state.fruitless + 1
    # 429 is a matter of load, which a full list only adds to.
    broken = fruitless >= FRUITLESS_WATCHES and not isinstance(ended.error, TooManyRequests)
    if (broken or ended.silent_for >= LONGEST_SILENCE) and not isinstance(ended.error, Expired):
        wait = 0.0 if steady else RELIST_BACKOFF.delay(failures + 1, chance)
        event = Failing(ended.error, wait) if ended.error is not None else None
        return Transition(Start(failures + (not steady), fruitless), event, wait)
    if ended.error is not None:
        return step(
            Watching(_version(state), failures, _resumed(state), fruitless), ended.error, chance
        )
    if steady:
        return Transition(Returning(_version(state)))
    return Transition(
        Returning(_version(state), failures + 1, fruitless),
        wait=BACKOFF.delay(failures + 1, chance),
    )


async def run(
    cluster: Cluster,
    resource: Resource,
    which: Selection,
    sink: Sink,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    random: Callable[[], float],
    before_list: Callable[[], None] = lambda: None,
) -> None:
    """Publishes every change of these objects to the sink, until it is cancelled. Times are those
    of the running loop.

    `before_list` is called right before each list, full or empty: its answer includes every write
    up to then.
    """
    clock = asyncio.get_running_loop().time
    state: InformerState = Start()
    proved = clock()  # when the objects were last known to be up to date

    async def read() -> Listing:
        nonlocal proved
        before_list()
        began = clock()
        listing = await cluster.list(resource, which)
        proved = began
        return listing

    async def feed(input: InformerInput) -> None:
        nonlocal state
        transition = step(state, input, random())
        state = transition.state
        if transition.event is not None:
            sink(transition.event)
        if transition.wait:
            await sleep(transition.wait)

    while True:
        try:
            match state:
                case Start():
                    # no variable of this function, which runs for days, may hold the objects
                    await feed(await read())
                case Returning():
                    before_list()
                    await feed(WorldVersion(await _world_version(cluster, resource, which)))
                case Watching(version=version):
                    began = clock()
                    watch = await _watch(cluster, resource, which, version, sink)
                    state = replace(state, version=watch.version)
                    proved = proved if watch.last_event is None else watch.last_event
                    had_events = watch.last_event is not None
                    ended = clock()
                    await feed(WatchEnded(ended - began, watch.error, ended - proved, had_events))
        except ClusterError as error:
            await feed(error)


@dataclass(frozen=True, slots=True)
class _WatchResult:
    """The end of a watch: the last version, the time of the last event (None without one), and
    the error that ended it.
    """

    version: str
    last_event: float | None
    error: ClusterError | None


async def _watch(
    cluster: Cluster, resource: Resource, which: Selection, since: str, sink: Sink
) -> _WatchResult:
    """Publishes the events of one watch to the sink until it ends."""
    clock = asyncio.get_running_loop().time
    version, last_event = since, None
    try:
        async for event in cluster.watch(resource, since, which):
            version, last_event = event.version or version, clock()
            sink(event)
    except ClusterError as error:
        return _WatchResult(version, last_event, error)
    return _WatchResult(version, last_event, None)


V = TypeVar("V")
Listener = Callable[[tuple[WatchEvent, ...]], None]


class InformerStore(Generic[V]):
    """The objects of one informer: `handle` is for its one writer, everything else for readers.

    `parse` converts a body to the value that is stored. The listener receives the changes, those
    that a new list reveals as well: an object that is missing from it is DELETED, in its last form
    where bodies are stored.

    `level` is set while the store matches the cluster: the API server answers, and the watch has
    returned every write that is expected (`expect`).
    """

    def __init__(self, parse: Callable[[Body], V], listener: Listener | None = None) -> None:
        self._parse, self._listener = parse, listener
        self._objects: dict[Key, V] = {}
        self._versions: dict[Key, str] = {}
        self.version = ""
        self._expected: dict[Key, int] = {}
        self.synced, self.level, self._tried = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.failing: Failing | None = None
        self.level.set()

    @property
    def objects(self) -> Mapping[Key, V]:
        """The objects by key; a view, not a copy."""
        return MappingProxyType(self._objects)

    async def listed(self) -> None:
        """Waits for the first list. Raises its ClusterError as long as no list succeeded."""
        await self._tried.wait()
        if self.failing is not None and not self.synced.is_set():
            raise self.failing.error

    def handle(self, event: InformerEvent) -> None:
        """Updates the objects by an event of the informer."""
        self._tried.set()
        changes: tuple[WatchEvent, ...] = ()
        match event:
            case Failing():
                self.failing = event
            case WorldVersion():
                self.failing = None
            case Listing(version=version):
                changes = self._replace(event)
                self.version, self.failing = version, None
                self.synced.set()
            case WatchEvent(version=version):
                changes = self._apply(event)
                self.version, self.failing = version, None
        self._update_level()
        if changes and self._listener is not None:
            self._listener(changes)

    @property
    def away(self) -> bool:
        """Whether the API server gives no answer; other errors of one kind block no reader."""
        return self.failing is not None and isinstance(
            self.failing.error, ClusterUnreachable | ServerFault
        )

    def expect(self, key: Key, version: str) -> None:
        """Waits for the watch to return an object that was just written, with its version; "" for
        a deletion.
        """
        if (
            key in self._objects
            if version == ""
            else _number(self._versions.get(key, "")) < _number(version)
        ):
            self._expected[key] = _number(version)
            self._update_level()

    def expect_nothing(self) -> None:
        """Drops every expected write."""
        self._expected = {}
        self._update_level()

    def _update_level(self) -> None:
        if self._expected or self.away:
            self.level.clear()
        else:
            self.level.set()

    def _apply(self, event: WatchEvent) -> tuple[WatchEvent, ...]:
        if event.type is EventType.BOOKMARK:
            return ()
        key = key_of(event.object)
        ending = "deletionTimestamp" in (event.object.get("metadata") or {})
        if (expected := self._expected.get(key)) is not None and (
            event.type is EventType.DELETED or ending or 0 < expected <= _number(event.version)
        ):
            del self._expected[key]
        if event.type is EventType.DELETED:
            self._objects.pop(key, None)
            self._versions.pop(key, None)
        else:
            self._objects[key] = self._parse(event.object)
            self._versions[key] = event.version
        return (event,)

    def _replace(self, listing: Listing) -> tuple[WatchEvent, ...]:
        objects, versions, changes = dict[Key, V](), dict[Key, str](), list[WatchEvent]()
        for body in listing.items:
            key, version = (
                key_of(body),
                str((body.get("metadata") or {}).get("resourceVersion") or ""),
            )
            if key in self._objects and self._versions[key] == version:
                objects[key] = self._objects[key]
            else:
                type = EventType.MODIFIED if key in self._objects else EventType.ADDED
                objects[key] = self._parse(body)
                changes.append(WatchEvent(type, body, version))
            versions[key] = version
        gone = self._objects.keys() - objects.keys()
        changes += [
            WatchEvent(EventType.DELETED, self._last(key), listing.version) for key in sorted(gone)
        ]
        self._objects, self._versions, self._expected = objects, versions, {}
        return tuple(changes)

    def _last(self, key: Key) -> Body:
        """The object's last body, or its name alone where no body is stored."""
        kept = self._objects[key]
        if isinstance(kept, Mapping):
            return cast("Body", kept)
        return {
            "apiVersion": f"{key.group}/v1" if key.group else "v1",
            "kind": key.kind,
            "metadata": _names(key),
        }


async def _world_version(cluster: Cluster, resource: Resource, which: Selection) -> str:
    namespace = (which.namespace or "default") if resource.namespaced else ""
    return (await cluster.list(resource, Selection(namespace, fields=_NO_SUCH))).version


def _names(key: Key) -> dict[str, str]:
    return {"namespace": key.namespace, "name": key.name} if key.namespace else {"name": key.name}


def _version(state: InformerState) -> str:
    return "" if isinstance(state, Start) else state.version


def _resumed(state: InformerState) -> bool:
    return isinstance(state, Watching) and state.resumed


def _after_error(state: InformerState) -> InformerState:
    failures = state.failures + 1
    match state:
        case Start():
            return Start(failures, state.fruitless)
        case Watching(version=version) | Returning(version=version):
            return Returning(version, failures, state.fruitless)


def _retry_after(error: ClusterError) -> float:
    return error.retry_after if isinstance(error, TooManyRequests | ServerFault) else 0.0


def _number(version: str) -> int:
    """A version as a number; 0 for one that is not numeric, which is never expected."""
    return int(version) if version.isascii() and version.isdigit() else 0


def _is_before(version: str, followed: str) -> bool:
    """Whether a version is older than the followed one; versions that are not numeric are never
    compared.
    """
    return version.isdigit() and followed.isdigit() and int(version) < int(followed)
