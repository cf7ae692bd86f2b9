"""Who leads: what a candidate makes of the lease it sees, and what it may write. Pure; every time
is of the candidate's own clock.

Clocks are never compared. A lease counts as held as long as its spec changed within its duration by
the watcher's clock, whatever times stand in it; its holder stops `LeaseTiming.renew_deadline` after
it *sent* the last renewal that was taken. The holder's time began before anybody could see that
renewal, and is the shorter one: so there are never two, as long as no clock runs faster than
another by duration / renew_deadline.

Where the API server is slow the holder asks for a longer lease: with requests of 5 s, fixed times
of 10 and 7 s would leave no time to renew, and no candidate would lead. The lease itself carries
the duration, which all others respect.

A lease that is not found may have been deleted under its holder, which goes on until its next
renewal. A candidate that creates one
without having seen the holder leads only after a whole duration, stretched by the latency that it
measured itself.
https://kubernetes.io/docs/concepts/architecture/leases/ and client-go's tools/leaderelection
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gitops_ds.apimachinery import timestamps
from gitops_ds.model.objects import LEASE, Body

# seconds; a longer duration in a lease is somebody's slip, and must not keep everybody waiting
LONGEST = 300.0
_SLOWEST = 6.0  # seconds of latency that a lease is stretched for: with the usual times to 32 s
_DECAY = 0.8  # of the latency, with each request that is faster
_RELEASED = 1  # the duration that a released lease is left with, as client-go does


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """In seconds: how long others leave a lease alone, how long its holder goes on without a
    renewal, and how often it renews.
    """

    duration: float = 10.0
    renew_deadline: float = 7.0
    retry: float = 2.0

    def stretched(self, latency: float) -> LeaseTiming:
        """The times where a request takes so many seconds: a renewal that is one retry late, and
        its successor, fit in.
        """
        factor = max(1.0, (3 * latency + 2 * self.retry) / self.renew_deadline)
        return LeaseTiming(self.duration * factor, self.renew_deadline * factor, self.retry)


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one candidate knows. `me` is its identity, of no other process ever.

    `body` is the lease as last seen (also when it is gone since), `version` its resourceVersion,
    empty where there is none; `since` is when its spec was first seen as it is, `looked` when it
    was last looked at. Until `until` writes of ours may be on their way. `latency` is the seconds
    that requests took lately; before `quiet_until` it does not lead, for a lease that it created
    may have had a holder.
    """

    namespace: str
    lease: str
    me: str
    timing: LeaseTiming = field(default_factory=LeaseTiming)
    body: Body | None = None
    version: str = ""
    since: float = -math.inf
    looked: float = -math.inf
    until: float = -math.inf
    latency: float = 0.0
    quiet_until: float = -math.inf

    @property
    def patience(self) -> float:
        """Seconds that one request may take."""
        return self.timing.stretched(self.latency).renew_deadline / 2

    @property
    def holder(self) -> str:
        """Who holds the lease by what was last seen; nobody: empty."""
        return str(_spec(self.body).get("holderIdentity") or "")

    def leads(self, now: float) -> bool:
        """Whether this candidate is the leader."""
        return now < self.until


def took(candidate: Candidate, seconds: float) -> Candidate:
    """A request was answered, or given up, after so many seconds; a slow one counts for some that
    follow.
    """
    return replace(candidate, latency=min(max(seconds, candidate.latency * _DECAY), _SLOWEST))


def saw(candidate: Candidate, body: Body | None, now: float) -> Candidate:
    """The lease was read; None: it is not there. Whoever finds another in it leads no more."""
    if body is None:
        # Who held it may not know yet, and goes on: others wait as if it had been renewed just now.
        # So they do when it was gone before, but they did not look for a while: it may have come
        # and gone meanwhile.
        fresh = bool(candidate.version) or now - candidate.looked > candidate.timing.retry
        return replace(candidate, version="", since=now if fresh else candidate.since, looked=now)
    version = str((body.get("metadata") or {}).get("resourceVersion") or "")
    same = candidate.body is not None and _spec(candidate.body) == _spec(body)
    seen = replace(
        candidate, body=body, version=version, since=candidate.since if same else now, looked=now
    )
    return seen if seen.holder == seen.me else replace(seen, until=-math.inf)


def wrote(candidate: Candidate, body: Body, sent: float, now: float) -> Candidate:
    """A write that was sent then was taken: the lease is ours, for as long as it says."""
    timing, duration = candidate.timing, min(_spec(body).get("leaseDurationSeconds") or 0, LONGEST)
    quiet_until = now + duration if candidate.body is None else candidate.quiet_until
    until = (
        sent + duration * timing.renew_deadline / timing.duration
        if now >= quiet_until
        else -math.inf
    )
    return replace(saw(candidate, body, now), until=until, quiet_until=quiet_until)


def free_at(candidate: Candidate, now: float) -> float:
    """From when on the lease may be taken; in the past for one that is ours, released, or never
    was.

    One that is gone is ours only while we lead: another may have held it since we looked.
    """
    if candidate.body is None or (
        candidate.holder == candidate.me and (candidate.version or candidate.leads(now))
    ):
        return -math.inf
    said = _spec(candidate.body).get("leaseDurationSeconds") or 0
    if not candidate.holder and said == _RELEASED:
        return -math.inf
    return candidate.since + max(candidate.timing.duration, min(said, LONGEST))


def claim(candidate: Candidate, now: float, clock: float) -> Body | None:
    """The lease to write: renewed, taken, or (where `version` is empty) made; None as long as
    another holds it.

    `clock` is seconds since 1970: what people read in a lease, and nobody reckons with.
    """
    if now < free_at(candidate, now):
        return None
    before = _spec(candidate.body)
    mine = candidate.holder == candidate.me
    spec = {
        "holderIdentity": candidate.me,
        "leaseDurationSeconds": max(
            1, math.ceil(candidate.timing.stretched(candidate.latency).duration)
        ),
        "acquireTime": before.get("acquireTime") if mine else timestamps.micros(clock),
        "renewTime": timestamps.micros(clock),
        "leaseTransitions": (before.get("leaseTransitions") or 0)
        + (0 if mine or candidate.body is None else 1),
    }
    return _lease(candidate, spec)


def release(candidate: Candidate, clock: float) -> Body | None:
    """The lease to write when its holder is done, so that the next one takes it at once; None where
    it is not ours.
    """
    if candidate.holder != candidate.me or not candidate.version:
        return None
    now = timestamps.micros(clock)
    kept = {"leaseTransitions": _spec(candidate.body).get("leaseTransitions") or 0}
    return _lease(
        candidate,
        {
            "holderIdentity": "",
            "leaseDurationSeconds": _RELEASED,
            "acquireTime": now,
            "renewTime": now,
            **kept,
        },
    )


def pause(candidate: Candidate, now: float, chance: float) -> float:
    """Seconds until the next look or renewal; `chance`, a number in [0, 1), spreads those of
    several.

    Others look twice as often as the leader renews, so that a lease that was released is soon
    taken. Nobody waits past the moment when the lease comes free, nor past the end of its own time.
    """
    leads = candidate.leads(now)
    usual = candidate.timing.retry * (1 + chance / 10) / (1 if leads else 2)
    for moment in (candidate.until, free_at(candidate, now)):
        if now < moment < now + usual:
            usual = moment - now
    return usual


def _spec(body: Body | None) -> Mapping[str, Any]:
    return (body or {}).get("spec") or {}


def _lease(candidate: Candidate, spec: Mapping[str, Any]) -> Body:
    """Over the version that was seen, with all that others wrote beside the spec."""
    metadata: dict[str, Any] = {"namespace": candidate.namespace, "name": candidate.lease}
    if candidate.version:
        metadata = {
            **((candidate.body or {}).get("metadata") or {}),
            "resourceVersion": candidate.version,
        }
    return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}
