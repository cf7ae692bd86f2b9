"""The rules of leader election: a candidate's view of the Lease, and its next write. Pure; every
time is of the candidate's own clock.

Clocks are never compared. A lease counts as held while its spec changed within its duration by the
observer's clock, regardless of the times in it; its holder stops `LeaseTiming.renew_deadline` after
it *sent* the last accepted renewal. The holder's time begins before any other candidate can observe
that renewal, and is the shorter one: so two leaders never overlap, as long as no clock runs faster
than another by duration / renew_deadline.

If the API server is slow, the holder writes a longer duration: with requests of 5 s, fixed times of
10 and 7 s would leave no time to renew, and no candidate would lead. The duration is in the lease,
and all candidates respect it.

A lease that is not found may have been deleted under its holder, which keeps leading until its next
renewal. A candidate that creates a lease without an observed holder leads only after a whole
duration, stretched by the latency that it measured itself.
https://kubernetes.io/docs/concepts/architecture/leases/ and client-go's tools/leaderelection
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from gitops_ds.core.objects import LEASE, Body
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import timestamps

# seconds; a longer duration in a lease is an error, and must not block every candidate
LONGEST = 300.0
_SLOWEST = 6.0  # seconds of latency that a lease is stretched for: with the usual times to 32 s
_DECAY = 0.8  # of the latency, with each request that is faster
_MOST_TRANSITIONS = 2**31 - 1  # an int32; a lease edited to it must not block every candidate
_RELEASED = 1  # the duration of a released lease, as in client-go


class LeaseTiming(msgspec.Struct, frozen=True):
    """Seconds, as client-go's LeaseDuration, RenewDeadline and RetryPeriod."""

    duration: float = 10.0
    renew_deadline: float = 7.0
    retry: float = 2.0

    def stretched(self, latency: float) -> LeaseTiming:
        """The timing for requests of this latency in seconds: it leaves time for a renewal that is
        one retry late, and for the next one.
        """
        factor = max(1.0, (3 * latency + 2 * self.retry) / self.renew_deadline)
        return LeaseTiming(self.duration * factor, self.renew_deadline * factor, self.retry)


class Candidate(msgspec.Struct, frozen=True):
    """The view of one candidate. `me` is its identity, unique to the process.

    `body` is the lease as last observed (also after its deletion), `version` its resourceVersion,
    empty without a lease; `since` is when its spec was first observed, `looked` when the lease was
    last read. Until `until` this candidate may write. `latency` is the recent duration of requests
    in seconds; before `quiet_until` the candidate does not lead, because a lease that it created
    may have had a holder.
    """

    namespace: str
    lease: str
    me: str
    timing: LeaseTiming = msgspec.field(default_factory=LeaseTiming)
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
        """The holder of the lease as last observed; empty without one."""
        return str(_spec(self.body).get("holderIdentity") or "")

    def leads(self, now: float) -> bool:
        """Whether this candidate is the leader."""
        return now < self.until


def took(candidate: Candidate, seconds: float) -> Candidate:
    """The candidate after a request of this duration, answered or timed out; the latency of a slow
    one decays over the next requests.
    """
    return replace(candidate, latency=min(max(seconds, candidate.latency * _DECAY), _SLOWEST))


def saw(candidate: Candidate, body: Body | None, now: float) -> Candidate:
    """The candidate after a read of the lease, None if not found. Another holder ends its lead."""
    if body is None:
        # The holder may not have noticed and keeps leading, so others wait as after a renewal. The
        # same holds for a lease that was missing before and not read for a while: it may have
        # existed in between.
        fresh = bool(candidate.version) or now - candidate.looked > candidate.timing.retry
        return replace(candidate, version="", since=now if fresh else candidate.since, looked=now)
    version = str((body.get("metadata") or {}).get("resourceVersion") or "")
    same = candidate.body is not None and _spec(candidate.body) == _spec(body)
    seen = replace(
        candidate, body=body, version=version, since=candidate.since if same else now, looked=now
    )
    return seen if seen.holder == seen.me else replace(seen, until=-math.inf)


def wrote(candidate: Candidate, body: Body, sent: float, now: float) -> Candidate:
    """The candidate after an accepted write, sent at `sent`: it holds the lease."""
    timing, duration = candidate.timing, min(_spec(body).get("leaseDurationSeconds") or 0, LONGEST)
    quiet_until = now + duration if candidate.body is None else candidate.quiet_until
    until = (
        sent + duration * timing.renew_deadline / timing.duration
        if now >= quiet_until
        else -math.inf
    )
    return replace(saw(candidate, body, now), until=until, quiet_until=quiet_until)


def free_at(candidate: Candidate, now: float) -> float:
    """When the lease becomes free; in the past for an own, a released or an unknown lease.

    A deleted lease is an own one only while the candidate leads: another candidate may have held
    it since the last read.
    """
    if candidate.body is None or (
        candidate.holder == candidate.me and (candidate.version or candidate.leads(now))
    ):
        return -math.inf
    duration = _spec(candidate.body).get("leaseDurationSeconds") or 0
    if not candidate.holder and duration == _RELEASED:
        return -math.inf
    return candidate.since + max(candidate.timing.duration, min(duration, LONGEST))


def claim(candidate: Candidate, now: float, clock: float) -> Body | None:
    """The lease to write: renewed, acquired, or (if `version` is empty) created; None while another
    candidate holds it.

    `clock` is seconds since 1970, for people only: no candidate computes with the times in a lease.
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
        "leaseTransitions": min(
            (before.get("leaseTransitions") or 0) + (0 if mine or candidate.body is None else 1),
            _MOST_TRANSITIONS,
        ),
    }
    return _lease(candidate, spec)


def release(candidate: Candidate, clock: float) -> Body | None:
    """The lease to write when its holder stops, so that the next candidate acquires it at once;
    None for a lease of another holder.
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
    """Seconds until the next read or renewal; `chance`, a number in [0, 1), spreads the requests of
    several candidates.

    A standby reads twice as often as the leader renews, so that a released lease is soon acquired.
    The pause ends when the lease becomes free, and when the candidate's own leadership ends.
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
    """The lease to write over the observed version, with the metadata of other writers."""
    metadata: dict[str, Any] = {"namespace": candidate.namespace, "name": candidate.lease}
    if candidate.version:
        metadata = {
            **((candidate.body or {}).get("metadata") or {}),
            "resourceVersion": candidate.version,
        }
    return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}
