"""List, then watch, for ever: keeps whoever listens up to date with one kind of object, whatever
happens to the connection.

A state and what was heard give the next state and what to tell (`step`); a small driver does the
requests. Every failure names the state it goes back to. A list is told as a whole, so that whoever
keeps the objects can swap them, and sees what vanished while nobody was looking.

    Start ──list──> Following ──the watch ends──> Returning ──same world──> Following
      ^                 │                            │
      ├──410 Expired────┴────an older world──────────┘
      └──the watch brings nothing: it fails again and again, or it was silent for minutes

`Returning` asks for the version of an empty list before it watches again: after a restored backup
the world may be older than the
version we follow, and a watch from a future version is silent for ever.
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
# shorter than its 30, so that all is known again within half a minute after an API server that was
# away came back.
BACKOFF = Backoff(0.8, 12.0, jitter=1.0)
# seconds, as client-go's reflector: the back-off of full lists where the watch fails
RELIST_BACKOFF = replace(BACKOFF, longest=30.0)
FRUITLESS_WATCHES = 3  # watches in a row that brought nothing, before the objects are listed again
# seconds without list, event or bookmark: API servers send a bookmark about each minute
LONGEST_SILENCE = 300.0
STEADY_AFTER = 10.0  # seconds; a watch that lived so long pays off earlier failures
_NO_SUCH = "metadata.name=gitops-ds-asks-for-the-version"


@dataclass(frozen=True, slots=True)
class Start:
    """Nothing is known, or no longer: list."""

    failures: int = 0
    fruitless: int = 0


@dataclass(frozen=True, slots=True)
class Watching:
    """Everything up to `version` was told: watch from there. `resumed`: after an empty list, with
    no new one in between.

    `fruitless`: the number of watches in a row, up to now, that ended without an event.
    """

    version: str
    failures: int = 0
    resumed: bool = False
    fruitless: int = 0


@dataclass(frozen=True, slots=True)
class Returning:
    """The watch ended: see whether the world is still the one that `version` belongs to."""

    version: str
    failures: int = 0
    fruitless: int = 0


InformerState = Start | Watching | Returning


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """The watch ended after so many seconds: by the server, or with an error.

    `silent_for`: seconds since the last list, event or bookmark; `had_events`: whether this watch
    brought an event or a bookmark.
    """

    lasted: float
    error: ClusterError | None = None
    silent_for: float = 0.0
    had_events: bool = True


@dataclass(frozen=True, slots=True)
class WorldVersion:
    """The version of the world, as an empty list told it. Told on where it is no older than what we
    follow: the watch goes on.
    """

    version: str


@dataclass(frozen=True, slots=True)
class Failing:
    """Told when a request failed: it is tried again `retry_in` seconds later."""

    error: ClusterError
    retry_in: float


Heard = Listing | WatchEnded | WorldVersion | ClusterError
InformerEvent = Listing | WatchEvent | WorldVersion | Failing
Sink = Callable[[InformerEvent], None]


@dataclass(frozen=True, slots=True)
class Transition:
    """Where to go on, what to tell (None: nothing), and the seconds to wait before."""

    state: InformerState
    told: InformerEvent | None = None
    wait: float = 0.0


def step(state: InformerState, heard: Heard, chance: float) -> Transition:
    """The next state. `chance` is a number in [0, 1) that spreads the retries of many watchers."""
    match heard:
        case Listing(version=version):
            return Transition(Watching(version, state.failures, fruitless=state.fruitless), heard)
        case WorldVersion(version=version):
            followed = _version(state)
            if _is_before(version, followed):
                return Transition(Start(state.failures))
            return Transition(
                Watching(followed, state.failures, resumed=True, fruitless=state.fruitless), heard
            )
        case WatchEnded():
            return _after_watch(state, heard, chance)
        case Expired():
            # A server that was restarted remembers no older version, but it answers: so it is
            # listed at once.
            wait = (
                BACKOFF.delay(state.failures, chance)
                if state.failures and not _resumed(state)
                else 0.0
            )
            return Transition(
                Start(state.failures + 1, state.fruitless), Failing(heard, wait), wait
            )
        case ClusterError():
            wait = max(BACKOFF.delay(state.failures + 1, chance), _asked_for(heard))
            return Transition(_after_error(state), Failing(heard, wait), wait)


def _after_watch(state: InformerState, ended: WatchEnded, chance: float) -> Transition:
    """The watch goes on where it ended, unless it seems not to work: then the objects are listed."""
    steady = ended.lasted >= STEADY_AFTER
    failures = 0 if steady else state.failures
    fruitless = 0 if steady or ended.had_events else state.fruitless + 1
    # 429 is a matter of load, which a full list only adds to.
    broken = fruitless >= FRUITLESS_WATCHES and not isinstance(ended.error, TooManyRequests)
    if (broken or ended.silent_for >= LONGEST_SILENCE) and not isinstance(ended.error, Expired):
        wait = 0.0 if steady else RELIST_BACKOFF.delay(failures + 1, chance)
        told = Failing(ended.error, wait) if ended.error is not None else None
        return Transition(Start(failures + (not steady), fruitless), told, wait)
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
    asking: Callable[[], None] = lambda: None,
) -> None:
    """Tells the sink everything about these objects, until it is cancelled. Times are those of the
    running loop.

    `asking` is called right before a list or the world's version is asked for: what was written by
    then is in the answer.
    """
    clock = asyncio.get_running_loop().time
    state: InformerState = Start()
    proved = clock()  # when the objects were last known to be up to date

    async def hear(heard: Heard) -> None:
        nonlocal state
        taken = step(state, heard, random())
        state = taken.state
        if taken.told is not None:
            sink(taken.told)
        if taken.wait:
            await sleep(taken.wait)

    while True:
        try:
            match state:
                case Start():
                    asking()
                    began = clock()
                    listing = await cluster.list(resource, which)
                    proved = began
                    await hear(listing)
                case Returning():
                    asking()
                    await hear(WorldVersion(await _world_version(cluster, resource, which)))
                case Watching(version=version):
                    began, error, had_events = clock(), None, False
                    try:
                        async for event in cluster.watch(resource, version, which):
                            version, had_events, proved = event.version or version, True, clock()
                            sink(event)
                    except ClusterError as caught:
                        error = caught
                    state = replace(state, version=version)
                    await hear(WatchEnded(clock() - began, error, clock() - proved, had_events))
        except ClusterError as error:
            await hear(error)


V = TypeVar("V")
Listener = Callable[[tuple[WatchEvent, ...]], None]


class InformerStore(Generic[V]):
    """The objects of one informer: `hear` is for its one writer, everything else for readers.

    `parse` makes of a body what shall be kept. A listener is told what changed, also when a new
    list shows it: an object that vanished meanwhile is told as DELETED, in its last form where the
    bodies themselves are kept.

    `level` is set while this is the cluster as far as we know: the API server answers, and the
    watch has shown what we `expect`.
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
        """What is there, by key; a view, not a copy."""
        return MappingProxyType(self._objects)

    async def listed(self) -> None:
        """Returns when the objects are known. Raises the ClusterError of the last try as long as
        none succeeded.
        """
        await self._tried.wait()
        if self.failing is not None and not self.synced.is_set():
            raise self.failing.error

    def handle(self, told: InformerEvent) -> None:
        """Takes what the informer tells."""
        self._tried.set()
        changes: tuple[WatchEvent, ...] = ()
        match told:
            case Failing():
                self.failing = told
            case WorldVersion():
                self.failing = None
            case Listing(version=version):
                changes = self._replace(told)
                self.version, self.failing = version, None
                self.synced.set()
            case WatchEvent(version=version):
                changes = self._apply(told)
                self.version, self.failing = version, None
        self._update_level()
        if changes and self._listener is not None:
            self._listener(changes)

    @property
    def away(self) -> bool:
        """Whether it is the API server that does not answer; a kind that can't be watched for
        another reason holds nobody up.
        """
        return self.failing is not None and isinstance(
            self.failing.error, ClusterUnreachable | ServerFault
        )

    def expect(self, key: Key, version: str) -> None:
        """An object was just written, and this is its version; "" for one that was deleted."""
        if (
            key in self._objects
            if version == ""
            else _number(self._versions.get(key, "")) < _number(version)
        ):
            self._expected[key] = _number(version)
            self._update_level()

    def expect_nothing(self) -> None:
        """What was expected is not waited for any longer."""
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
        """The object's last form, or, where only something parsed from it was kept, its name alone."""
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


def _asked_for(error: ClusterError) -> float:
    return error.retry_after if isinstance(error, TooManyRequests | ServerFault) else 0.0


def _number(version: str) -> int:
    """A version as a number; 0 for one that is none, which is never waited for."""
    return int(version) if version.isascii() and version.isdigit() else 0


def _is_before(version: str, followed: str) -> bool:
    """Whether a version is of an older world; versions that are no numbers tell nothing."""
    return version.isdigit() and followed.isdigit() and int(version) < int(followed)
