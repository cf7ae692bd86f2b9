"""The status of each followed repository: evaluated after each reconciliation, and stored in its
own ConfigMap for commands without access to the service.

It is written when it changes, and else each HEARTBEAT, so that a status older than FRESH is from a
service that ended, as with a Node's Lease of a kubelet:
https://kubernetes.io/docs/concepts/architecture/nodes/#heartbeats
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from gitops_ds.core import errors, names, stated_reasons
from gitops_ds.core.cluster import Cluster, ClusterReader, Selection
from gitops_ds.core.deployer_state import DeployerState, Steering
from gitops_ds.core.events.deployer import Reconciled
from gitops_ds.core.objects import CONFIG_MAP, Body, CommitId, Key, short
from gitops_ds.core.plain_text import counted, listed
from gitops_ds.core.redaction import texts
from gitops_ds.core.sources.source_status import Condition, SourceStatus
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import timestamps

if TYPE_CHECKING:  # Git and the renderers take 10 MiB, which a reader does not need
    from gitops_ds.deploy.revision_selector import SelectedRevision

HEARTBEAT = 300.0  # seconds between two writes of a status that does not change
FRESH = 2 * HEARTBEAT + 60.0  # seconds for which a status is valid: one write may be missed
BURST, EVERY = 5, 10.0  # writes at once; then one per that many seconds
QUICK = 0.5  # seconds for the last write of a service that ends
_LABEL = f"{names.DOMAIN}/source-of"  # label: the id of the owner
_BYTES = 1024  # of a message


class Facts(msgspec.Struct, frozen=True):
    """The results of a reconciliation. `waiting`: the number of changes that a suspension of the
    repository holds back, None without a suspension.
    """

    choice: SelectedRevision | None
    state: DeployerState | None
    ended: Reconciled | None
    waiting: int | None = None


def judge(facts: Facts) -> tuple[Condition, str]:
    """The condition after a reconciliation without an error, and its message; the worst of several.
    Pure.
    """
    choice, ended = facts.choice, facts.ended
    if choice is None:
        return Condition.UNKNOWN, ""
    tip, good = short(choice.tip), facts.state.last_good if facts.state else None
    stays = f"commit {short(good)} stays applied" if good else "no earlier commit is applied"
    if choice.lost:
        stays += ", but the Git server no longer has it, so drift is not corrected"
    if choice.blocked is not None:
        return Condition.REWOUND, str(choice.blocked)
    if choice.rejected:
        return Condition.REJECTED, f"commit {tip} is not applied: {choice.rejected}; {stays}"
    if not choice.trusted:
        return (
            Condition.UNVERIFIED,
            f"commit {tip} is not applied: it is not signed by a trusted key; {stays}",
        )
    if choice.held:
        return Condition.HELD, f"commit {tip} is on hold ({choice.held}); {stays}"
    if choice.waiting is not None and facts.waiting is None:
        return Condition.WAITING, f"commit {tip} {choice.waiting.hold.text}; {stays}"
    if facts.waiting is not None:
        return (
            Condition.SUSPENDED,
            f"suspended: {counted(facts.waiting, 'change')} of commit {tip} not applied",
        )
    failed, waiting = (ended.failed, ended.suspended) if ended else ((), ())
    if failed and not any(refusal.reason.effect.notifies for refusal in failed):
        return Condition.PROGRESSING, f"commit {tip} is being applied: {failed[0].message}"
    if failed:
        named = listed((refusal.message for refusal in failed), 1)
        return Condition.PARTLY_APPLIED, f"commit {tip} is applied in part: {named}"
    if waiting:
        named = listed((refusal.message for refusal in waiting), 1)
        return Condition.SUSPENDED, f"commit {tip} is applied in part: {named}"
    if choice.prepared is None or good != choice.tip:
        return Condition.UNKNOWN, f"commit {tip} is not applied yet"
    if ended and ended.deletions_held:
        return (
            Condition.DELETIONS_HELD,
            f"commit {tip} is applied without its deletions: {ended.deletions_held[0].message}",
        )
    kept = listed((deletion.message for deletion in ended.deletions_waiting), 1) if ended else ""
    return Condition.SYNCED, f"commit {tip} is applied{f'; {kept}' if kept else ''}"


def of_error(error: errors.GitopsError) -> Condition:
    """The condition after a reconciliation that ended with an error. Pure."""
    match error:
        case errors.HistoryRewound():
            return Condition.REWOUND
        case errors.SourceUntrusted():
            return Condition.UNVERIFIED
        case errors.CommitRefused():
            return Condition.REJECTED
        case errors.SourceError():
            return Condition.UNREACHABLE
        case errors.OwnerRefused():
            return Condition.REFUSED
        case _:
            return Condition.FAILED


def after(
    before: SourceStatus,
    facts: Facts,
    steering: Steering,
    error: errors.GitopsError | None,
    now: float,
) -> SourceStatus:
    """The status after a reconciliation. Pure."""
    condition, message = judge(facts) if error is None else (of_error(error), str(error))
    if facts.waiting is not None and condition is Condition.SUSPENDED and error is None:
        message = stated_reasons.after(message, steering.suspend_reason)
    # a commit that is applied in part may be the last good one
    in_part = facts.ended is not None and not facts.ended.whole
    failed = (
        outcome.key for outcome in (facts.ended.failed if facts.ended and error is None else ())
    )
    return replace(
        before,
        condition=condition,
        message=texts.words(message)[:_BYTES],
        newest=_newest(facts) or before.newest,
        applied=facts.state.last_good if facts.state and not in_part else before.applied,
        held=steering.held,
        suspended=steering.suspended,
        since=before.since if condition is before.condition else now,
        refused=tuple(sorted({key for key in failed if key is not None and key.is_daemonset})),
    )


def _newest(facts: Facts) -> CommitId | None:
    """The newest commit; before the first response of Git, the last attempted one."""
    if facts.choice is None or facts.choice.kept:
        return facts.state.last_attempted if facts.choice and facts.state else None
    return facts.choice.tip


def beside(before: SourceStatus, stored: SourceStatus | None, now: float) -> float:
    """When another service saved its status of the same repository last: it is stored over the one
    that was saved `before`. 0 without such a service; one that was seen counts as long as a status
    is valid. Pure.

    The first status of a process, which was saved never before, replaces that of an earlier leader.
    """
    last = before.beside
    if before.written and stored is not None and stored.active and stored.written > before.written:
        last = stored.written
    return last if now - last <= FRESH else 0.0


def elsewhere(bodies: Iterable[Body], own: str, since: float) -> str:
    """The first other namespace than our own in which a service has saved the status of the same
    repository since a time, which one that was killed before has not. Pure.
    """
    for body in bodies:
        namespace, status = str(body["metadata"]["namespace"]), _read(body.get("data") or {})
        is_active = status is not None and status.active and status.written > since
        if is_active and namespace != own:
            return namespace
    return ""


class Saver:
    """Writes the status of one repository to its ConfigMap. `clock` returns seconds since 1970.

    `seen` gets the status after a write that saw another service, or no longer does.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        clock: Callable[[], float],
        seen: Callable[[SourceStatus], None] = lambda _: None,
    ) -> None:
        self._cluster, self._namespace, self._clock = cluster, namespace, clock
        self._seen, self._saved = seen, SourceStatus()
        self._status: SourceStatus | None = None
        self._began, self._searched = clock(), -HEARTBEAT
        self._changed = asyncio.Event()
        # when all writes of a burst are available again, in the event loop's time
        self._full_at = 0.0

    def update(self, status: SourceStatus, *, write: bool) -> None:
        """Sets the status; `write`: it differs from the previous one not only in its times."""
        self._status = status
        if write:
            self._changed.set()

    async def run(self) -> None:
        """Writes until it is cancelled. A failed write is repeated."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT):
                    await self._changed.wait()
            self._changed.clear()
            with contextlib.suppress(errors.GitopsError):
                await self._save()
            now = asyncio.get_running_loop().time()
            self._full_at = max(self._full_at, now) + EVERY
            await asyncio.sleep(max(0.0, self._full_at - now - BURST * EVERY))

    def stop(self) -> None:
        """Stops writing the status: another replica does."""
        self._status, self._saved = None, SourceStatus()

    async def close(self) -> None:
        """Writes that the repository is no longer followed, unless another service follows it,
        within the QUICK time limit.
        """
        if self._status is None:
            return
        with contextlib.suppress(errors.GitopsError, TimeoutError):
            async with asyncio.timeout(QUICK):
                if not await self._beside():
                    await self._save(active=False)

    async def _beside(self) -> float:
        """When another service saved its status last, 0 without one."""
        stored = None
        if self._saved.written:
            with contextlib.suppress(errors.NotFound):
                name = config_map_name(self._saved.id)
                read = await self._cluster.get(CONFIG_MAP, self._namespace, name)
                stored = _read(read.get("data") or {})
        return beside(self._saved, stored, self._clock())

    async def _elsewhere(self, id: str) -> str:
        """The namespace of the state of another service that follows the repository; empty without
        one, and without the right to list the ConfigMaps of all namespaces.
        """
        now = self._clock()
        if now - self._searched < HEARTBEAT:
            return self._saved.elsewhere
        self._searched = now
        try:
            listing = await self._cluster.list(CONFIG_MAP, Selection(labels=f"{_LABEL}={id}"))
        except errors.Forbidden:
            return ""
        return elsewhere(listing.items, self._namespace, max(self._began, now - FRESH))

    async def _save(self, *, active: bool = True) -> None:
        if self._status is None:
            return
        before = self._saved
        status = replace(
            self._status,
            written=self._clock(),
            active=active,
            beside=await self._beside() if active else 0.0,
            elsewhere=await self._elsewhere(self._status.id) if active else "",
        )
        if status.warning != before.warning:
            self._seen(status)
        await self._cluster.apply(
            CONFIG_MAP, body(self._namespace, status), manager=names.FIELD_MANAGER, force=True
        )
        self._saved = status


def config_map_name(id: str) -> str:
    """The name of the ConfigMap; those of states begin with `gitops-ds-`."""
    return f"gitops-ds.source.{id}"


def body(namespace: str, status: SourceStatus) -> dict[str, Any]:
    """The ConfigMap with a status."""
    labels = {"app.kubernetes.io/managed-by": "gitops-ds", _LABEL: status.id}
    metadata = {"namespace": namespace, "name": config_map_name(status.id), "labels": labels}
    flat = {
        "repository": status.repository,
        "condition": status.condition.value,
        "message": status.message,
        "newestCommit": status.newest or "",
        "appliedCommit": status.applied or "",
        "looked": timestamps.text(status.looked) if status.looked else "",
    }
    stored = msgspec.to_builtins(status)
    # An earlier version reads no status with other keys.
    for key in ("beside", "elsewhere", "refused"):
        if not stored[key]:
            del stored[key]
    whole = orjson.dumps(stored, option=orjson.OPT_SORT_KEYS).decode()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {**flat, "status.json": whole},
    }


async def forget(cluster: Cluster, namespace: str, id: str) -> None:
    """Deletes the status of an id that no repository has. Raises ClusterError."""
    with contextlib.suppress(errors.NotFound):
        await cluster.delete(CONFIG_MAP, namespace, config_map_name(id))


async def load_all(
    cluster: ClusterReader, namespace: str, now: float
) -> Mapping[str, SourceStatus]:
    """The status of each repository by the owner's id; not `active` if it is too old. Raises
    ClusterError.
    """
    listing = await cluster.list(CONFIG_MAP, Selection(namespace, labels=_LABEL))
    read = [
        status for body in listing.items if (status := _read(body.get("data") or {})) is not None
    ]
    return {
        status.id: replace(status, active=status.active and now - status.written <= FRESH)
        for status in read
    }


def _read(data: Mapping[str, str]) -> SourceStatus | None:
    try:
        status = orjson.loads(data["status.json"])
        commits = {
            name: CommitId(status[name]) if status[name] else None for name in ("newest", "applied")
        }
        return SourceStatus(
            **{
                **status,
                **commits,
                "condition": Condition(status["condition"]),
                "held": tuple(status["held"]),
                "refused": msgspec.convert(status.get("refused", ()), tuple[Key, ...]),
            }
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
