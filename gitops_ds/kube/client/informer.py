"""An informer: lists and watches one kind of object indefinitely, across failures of the
connection.

A state and an input give the next state and the event to publish (`step`); a small driver sends the
requests. Every failure leads to a state. A list is published as a whole, so that a store can swap
its objects and detect those that were deleted while the watch was interrupted.

    Start ──list──> Watching ──the watch ends──> Returning ──same world──> Watching
      ^                 │                            │
      ├──410 Expired────┴────an older world──────────┤
      │                       the request fails──────┘
      └──the watch is fruitless: repeated failures, or silence for minutes

`Returning` requests an empty list for its version before it watches again: after a restored backup
the cluster may be older than the version that the watch follows, and a watch from a future version
is silent indefinitely.
https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
After an outage the version does not identify the history: others may have written so much to a
restored cluster that it exceeds the followed one. Therefore a full list follows if the request for
the version gets no answer, or that of a failing server.

An empty list proves that the API server answers, not that its watches work: a proxy or a missing
right may fail those alone. Then the full list is read again, with back-off, so that a broken watch
degrades to polling, as in client-go's reflector (tools/cache/reflector.go, ListAndWatch: every
error of a watch but 429 and a refused connection ends in another list).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.cluster import ClusterReader, Listing, Selection, WatchEvent
from gitops_ds.core.objects import Resource
from gitops_ds.core.rate_limits import Backoff
from gitops_ds.core.values import replace

# Seconds; jitter makes it up to twice as long. The first as client-go's reflector; the longest is
# shorter than its 30, so that stores are current half a minute after the API server recovers.
BACKOFF = Backoff(0.8, 12.0, jitter=1.0)
# seconds, as client-go's reflector: the back-off of full lists if the watch fails
RELIST_BACKOFF = replace(BACKOFF, longest=30.0)
FRUITLESS_WATCHES = 3  # watches in a row without an event, before the objects are listed again
# seconds without list, event or bookmark: API servers send a bookmark about each minute
LONGEST_SILENCE = 300.0
STEADY_AFTER = 10.0  # seconds; a watch of this duration resets the count of failures
_NO_SUCH = "metadata.name=gitops-ds-asks-for-the-version"


class Start(msgspec.Struct, frozen=True):
    """The objects are unknown: list them."""

    failures: int = 0
    fruitless: int = 0


class Watching(msgspec.Struct, frozen=True):
    """Every change up to `version` is published: watch from there.

    `resumed`: the watch follows an empty list instead of a full one. `fruitless`: the number of
    watches in a row that ended without an event.
    """

    version: str
    failures: int = 0
    resumed: bool = False
    fruitless: int = 0


class Returning(msgspec.Struct, frozen=True):
    """The watch ended: check that the cluster is not older than `version`."""

    version: str
    failures: int = 0
    fruitless: int = 0


InformerState = Start | Watching | Returning


class WatchEnded(msgspec.Struct, frozen=True):
    """The end of a watch after `lasted` seconds: by the server, or with an error.

    `silent_for`: seconds since the last list, event or bookmark; `had_events`: this watch received
    an event or a bookmark.
    """

    lasted: float
    error: errors.ClusterError | None = None
    silent_for: float = 0.0
    had_events: bool = True


class WorldVersion(msgspec.Struct, frozen=True):
    """The cluster's current version, from an empty list. As an event: the watch continues, or, if
    it is older than the followed version, a list follows.
    """

    version: str


class Failing(msgspec.Struct, frozen=True):
    """A request failed; the retry follows after `retry_in` seconds.

    `history_lost`: the cluster may not be the one that the watch followed; a list follows.
    """

    error: errors.ClusterError
    retry_in: float
    history_lost: bool = False


InformerInput = Listing | WatchEnded | WorldVersion | errors.ClusterError
InformerEvent = Listing | WatchEvent | WorldVersion | Failing
Sink = Callable[[InformerEvent], None]


class Transition(msgspec.Struct, frozen=True):
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
                return Transition(Start(state.failures), input)
            return Transition(
                Watching(followed, state.failures, resumed=True, fruitless=state.fruitless), input
            )
        case WatchEnded():
            return _after_watch(state, input, chance)
        case errors.Expired():
            # A restarted server has lost the older versions, but it answers: list at once.
            wait = (
                BACKOFF.delay(state.failures, chance)
                if state.failures and not _resumed(state)
                else 0.0
            )
            return Transition(
                Start(state.failures + 1, state.fruitless),
                Failing(input, wait, history_lost=not isinstance(state, Start)),
                wait,
            )
        case errors.ClusterError():
            wait = max(BACKOFF.delay(state.failures + 1, chance), _retry_after(input))
            after = _after_error(state, input)
            lost = isinstance(after, Start) and not isinstance(state, Start)
            return Transition(after, Failing(input, wait, history_lost=lost), wait)


def _after_watch(state: InformerState, ended: WatchEnded, chance: float) -> Transition:
    """The watch continues at its end, or a new list follows if watches seem broken."""
    steady = ended.lasted >= STEADY_AFTER
    failures = 0 if steady else state.failures
    fruitless = 0 if steady or ended.had_events else state.fruitless + 1
    # 429 means load, to which a full list would add.
    broken = fruitless >= FRUITLESS_WATCHES and not isinstance(ended.error, errors.TooManyRequests)
    silent = ended.silent_for >= LONGEST_SILENCE
    if (broken or silent) and not isinstance(ended.error, errors.Expired):
        wait = 0.0 if steady else RELIST_BACKOFF.delay(failures + 1, chance)
        error = _silence(ended) if silent else ended.error
        event = Failing(error, wait, history_lost=silent) if error is not None else None
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
    cluster: ClusterReader,
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
    source = _Source(cluster, resource, which, before_list)
    state: InformerState = Start()

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
                    # no variable of this function, which runs for days, may reference the objects
                    await feed(await source.list())
                case Returning():
                    await feed(await source.world_version())
                case Watching(version=version):
                    watch = await source.watch(version, sink)
                    state = replace(state, version=watch.version)
                    await feed(watch.ended)
        except errors.ClusterError as error:
            await feed(error)


class _WatchResult(msgspec.Struct, frozen=True):
    """The last version of a watch, and its end."""

    version: str
    ended: WatchEnded


class _Source:
    """The objects that an informer follows, and the time when they were last known to be up to
    date.
    """

    def __init__(
        self,
        cluster: ClusterReader,
        resource: Resource,
        which: Selection,
        before_list: Callable[[], None],
    ) -> None:
        self._cluster, self._resource, self._which = cluster, resource, which
        self._before_list = before_list
        self._clock = asyncio.get_running_loop().time
        self._proved = self._clock()

    async def list(self) -> Listing:
        self._before_list()
        began = self._clock()
        listing = await self._cluster.list(self._resource, self._which)
        self._proved = began
        return listing

    async def world_version(self) -> WorldVersion:
        self._before_list()
        return WorldVersion(await _world_version(self._cluster, self._resource, self._which))

    async def watch(self, since: str, sink: Sink) -> _WatchResult:
        """Publishes the events of one watch to the sink until it ends."""
        began, version, had_events = self._clock(), since, False
        error: errors.ClusterError | None = None
        try:
            async for event in self._cluster.watch(self._resource, since, self._which):
                version, had_events, self._proved = event.version or version, True, self._clock()
                sink(event)
        except errors.ClusterError as caught:
            error = caught
        now = self._clock()
        return _WatchResult(version, WatchEnded(now - began, error, now - self._proved, had_events))


async def _world_version(cluster: ClusterReader, resource: Resource, which: Selection) -> str:
    namespace = (which.namespace or "default") if resource.namespaced else ""
    return (await cluster.list(resource, Selection(namespace, fields=_NO_SUCH))).version


def _silence(ended: WatchEnded) -> errors.WatchSilent:
    why = f": {ended.error}" if ended.error is not None else ""
    return errors.WatchSilent(f"the watch was silent for {ended.silent_for:.0f} s{why}")


def _version(state: InformerState) -> str:
    return "" if isinstance(state, Start) else state.version


def _resumed(state: InformerState) -> bool:
    return isinstance(state, Watching) and state.resumed


def _after_error(state: InformerState, error: errors.ClusterError) -> InformerState:
    failures = state.failures + 1
    match state:
        case Start():
            return Start(failures, state.fruitless)
        case Returning() if isinstance(error, errors.ClusterUnreachable | errors.ServerFault):
            return Start(failures, state.fruitless)
        case Watching(version=version) | Returning(version=version):
            return Returning(version, failures, state.fruitless)


def _retry_after(error: errors.ClusterError) -> float:
    return (
        error.retry_after if isinstance(error, errors.TooManyRequests | errors.ServerFault) else 0.0
    )


def _is_before(version: str, followed: str) -> bool:
    """Whether a version is older than the followed one; versions that are not numeric are never
    compared.
    """
    return version.isdigit() and followed.isdigit() and int(version) < int(followed)
