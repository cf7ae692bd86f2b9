"""The election: never two that may write, regardless of clocks, processes and replies;
one soon, without faults.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops_ds.core.objects import Body
from gitops_ds.kube.client import leader_election
from gitops_ds.kube.client.leader_election import Candidate, LeaseTiming
from tests import profiles

T = LeaseTiming(duration=10, renew_deadline=7, retry=2)
OFTEN = settings(max_examples=profiles.examples(200), deadline=None)


def candidate(me: str = "a") -> Candidate:
    return Candidate("ns", "lease", me, T)


def lease(holder: str, version: int = 1, duration: int = 10, **spec: Any) -> Body:
    spec_fields = {"holderIdentity": holder, "leaseDurationSeconds": duration, **spec}
    return {
        "metadata": {"namespace": "ns", "name": "lease", "resourceVersion": str(version)},
        "spec": spec_fields,
    }


def spec_of(body: Body | None) -> Any:
    assert body is not None
    return body["spec"]


def test_a_missing_lease_is_created_at_once() -> None:
    made = leader_election.claim(leader_election.saw(candidate(), None, 0), 0, 0)
    assert spec_of(made)["holderIdentity"] == "a"
    assert spec_of(made)["leaseTransitions"] == 0
    assert made is not None
    assert "resourceVersion" not in made["metadata"]


@pytest.mark.parametrize(
    ("seen", "free"),
    [
        (lease("b"), 110.0),
        (lease("b", duration=30), 130.0),
        (lease("b", duration=3), 110.0),
        (lease("b", duration=1_000_000), 400.0),
        (lease(""), 110.0),  # emptied by a user: the holder may not know yet
        (lease("", duration=1), 0.0),
        (lease("a"), 0.0),
        ({"metadata": {"resourceVersion": "1"}}, 110.0),
    ],
    ids=[
        "another's",
        "longer ones' own",
        "never shorter than ours",
        "a slip",
        "emptied",
        "released",
        "mine",
        "no spec",
    ],
)
def test_a_lease_is_left_alone_for_its_duration_after_it_was_seen(seen: Body, free: float) -> None:
    observer = leader_election.saw(candidate(), seen, 100)
    assert (leader_election.claim(observer, 100, 0) is not None) == (free <= 100)
    assert leader_election.claim(observer, free - 0.001, 0) is None or free == 0
    assert leader_election.claim(observer, free, 0) is not None


def test_only_a_change_of_the_spec_keeps_others_away() -> None:
    observer = leader_election.saw(candidate(), lease("b", 1), 100)
    annotated = {
        **lease("b", 2),
        "metadata": {"resourceVersion": "2", "annotations": {"seen": "yes"}},
    }
    assert leader_election.free_at(leader_election.saw(observer, annotated, 108), 108) == 110
    assert (
        leader_election.free_at(
            leader_election.saw(observer, lease("b", 3, renewTime="later"), 108), 108
        )
        == 118
    )


def test_fields_of_others_outside_of_the_spec_stay() -> None:
    annotated = {
        **lease("", 2, duration=1),
        "metadata": {"resourceVersion": "2", "annotations": {"seen": "yes"}},
    }
    taken = leader_election.claim(leader_election.saw(candidate(), annotated, 0), 0, 0)
    assert taken is not None
    assert taken["metadata"]["annotations"] == {"seen": "yes"}
    assert taken["metadata"]["resourceVersion"] == "2"


def test_takeovers_are_counted_and_renewals_are_not() -> None:
    taken = leader_election.claim(
        leader_election.saw(candidate(), lease("b", leaseTransitions=4, acquireTime="then"), 0),
        10,
        0,
    )
    assert spec_of(taken)["leaseTransitions"] == 5
    mine = leader_election.wrote(
        candidate(), lease("a", leaseTransitions=5, acquireTime="then"), 0, 0
    )
    again = spec_of(leader_election.claim(mine, 1, 0))
    assert (again["leaseTransitions"], again["acquireTime"]) == (5, "then")


def test_a_deleted_lease_is_respected_until_it_would_expire() -> None:
    gone = leader_election.saw(leader_election.saw(candidate(), lease("b"), 100), None, 101)
    assert leader_election.claim(gone, 110.9, 0) is None
    # it may have been created and deleted meanwhile
    assert leader_election.claim(leader_election.saw(gone, None, 110), 111, 0) is None
    made = leader_election.claim(leader_election.saw(gone, None, 102), 111, 0)
    assert made is not None
    assert "resourceVersion" not in made["metadata"]


def test_the_time_of_a_leader_begins_when_it_sent_its_renewal() -> None:
    led = leader_election.wrote(
        leader_election.saw(candidate(), lease("a"), 90), lease("a", 2), sent=100, now=103
    )
    assert led.leads(106.9)
    assert not led.leads(107)


def test_a_leader_that_finds_another_holder_in_the_lease_stops_leading() -> None:
    led = leader_election.wrote(candidate(), lease("a"), 100, 100)
    assert not leader_election.saw(led, lease("b", 2), 101).leads(101)


def test_finding_oneself_in_the_lease_does_not_make_a_leader() -> None:
    """The reply to a write was lost: until when it holds is not known, so it is written again."""
    observer = leader_election.saw(candidate(), lease("a"), 100)
    assert not observer.leads(100)
    assert leader_election.claim(observer, 100, 0) is not None


def test_only_the_holder_releases() -> None:
    led = leader_election.wrote(candidate(), lease("a", leaseTransitions=3), 100, 100)
    left = spec_of(leader_election.release(led, 0))
    assert (left["holderIdentity"], left["leaseDurationSeconds"], left["leaseTransitions"]) == (
        "",
        1,
        3,
    )
    assert leader_election.release(leader_election.saw(led, lease("b", 2), 101), 0) is None
    assert leader_election.release(leader_election.saw(led, None, 101), 0) is None


def test_no_candidate_waits_past_the_end_of_a_lease() -> None:
    waiting = leader_election.saw(candidate(), lease("b"), 100)
    assert leader_election.pause(waiting, 105, 0.5) == pytest.approx(1.05)
    assert leader_election.pause(waiting, 109.5, 0.5) == 0.5
    led = leader_election.wrote(
        leader_election.saw(candidate(), lease("a"), 90), lease("a", 2), 100, 100
    )
    assert leader_election.pause(led, 101, 0.5) == pytest.approx(2.1)
    assert leader_election.pause(led, 106.5, 0.5) == 0.5


@dataclass
class Api:
    """A lease behind an API server: writes pass at the version that they name."""

    body: Body | None = None
    version: int = 0

    def write(self, body: Body) -> Body | None:
        named = body["metadata"].get("resourceVersion")
        there = self.body["metadata"]["resourceVersion"] if self.body else None
        if named != there:
            return None
        self.version += 1
        self.body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        return self.body


@dataclass
class World:
    """Candidates with clocks that run at their own rates, and an API server; replies and requests
    get lost or late.
    """

    chance: random.Random
    trouble: float
    edits: float = 0.0
    latency: float = 0.01  # seconds of a request, of which half is the way back
    api: Api = field(default_factory=Api)
    now: float = 0.0
    due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    order: Any = field(default_factory=itertools.count)
    candidates: list[One] = field(default_factory=list)

    def at(self, moment: float, do: Callable[[], None]) -> None:
        heapq.heappush(self.due, (moment, next(self.order), do))

    def run(self, until: float) -> None:
        while self.due and self.due[0][0] <= until:
            self.now, _, do = heapq.heappop(self.due)
            do()
            leading = [one.state.me for one in self.candidates if one.state.leads(one.clock())]
            assert len(leading) <= 1, (self.now, leading)
        self.now = until

    def leads_now(self) -> list[str]:
        return [
            one.state.me for one in self.candidates if one.alive and one.state.leads(one.clock())
        ]


@dataclass
class One:
    world: World
    state: Candidate
    rate: float
    offset: float
    alive: bool = True
    epoch: int = 0

    def clock(self) -> float:
        return self.offset + self.world.now * self.rate

    def delay(self) -> float:
        return (
            self.world.chance.choice([0.01, 0.1, 1.0, 5.0])
            if self.lost()
            else self.world.latency / 2
        )

    def lost(self) -> bool:
        return self.world.chance.random() < self.world.trouble

    def attempt(self) -> None:
        """One look or renewal, as the driver makes them; a request may be lost on either way, or
        arrive when it was given up.
        """
        if not self.alive:
            return
        if self.lost() and self.world.chance.random() < 0.3:  # the process is paused for a while
            self.world.at(self.world.now + self.world.chance.choice([3, 8, 30]), self.attempt)
            return
        self.epoch += 1
        if self.state.leads(self.clock()) and self.state.version:
            self.write(self.epoch)
        else:
            self.look(self.epoch)

    def look(self, epoch: int) -> None:
        began = self.clock()

        def send() -> None:
            body = self.world.api.body

            def answered() -> None:
                if epoch == self.epoch and self.alive:
                    self.epoch += 1  # the request has not run out of time
                    self.state = leader_election.took(
                        leader_election.saw(self.state, body, self.clock()), self.clock() - began
                    )
                    self.write(self.epoch)

            if not self.lost():
                self.world.at(self.world.now + self.delay(), answered)

        self.request(send, epoch)

    def write(self, epoch: int) -> None:
        sent, body = (
            self.clock(),
            leader_election.claim(self.state, self.clock(), 1e9 + self.world.now),
        )
        if body is None:
            self.again(epoch)
            return

        def send() -> None:
            written = self.world.api.write(body)

            def answered() -> None:
                if epoch != self.epoch or not self.alive:
                    return
                self.epoch += 1
                self.state = leader_election.took(self.state, self.clock() - sent)
                if written is not None:
                    self.state = leader_election.wrote(self.state, written, sent, self.clock())
                    self.again(self.epoch)
                else:
                    self.look(self.epoch)

            if not self.lost():
                self.world.at(self.world.now + self.delay(), answered)

        self.request(send, epoch)

    def request(self, send: Callable[[], None], epoch: int) -> None:
        if not self.lost():
            self.world.at(self.world.now + self.delay(), send)
        patience = self.state.patience

        def given_up() -> None:
            if epoch == self.epoch:
                self.state = leader_election.took(self.state, patience)
                self.again(epoch)

        self.world.at(self.world.now + patience / self.rate, given_up)

    def again(self, epoch: int) -> None:
        if epoch == self.epoch:
            self.epoch += 1
            wait = leader_election.pause(self.state, self.clock(), self.world.chance.random())
            self.world.at(self.world.now + wait / self.rate, self.attempt)


def world(seed: int, number: int, trouble: float) -> World:
    chance = random.Random(seed)
    made = World(chance, trouble)
    for name in "abc"[:number]:
        state = Candidate("ns", "lease", name, T)
        made.candidates.append(
            One(made, state, chance.uniform(0.85, 1.15), chance.uniform(-1e6, 1e6))
        )
        made.at(chance.uniform(0, 3), made.candidates[-1].attempt)
    return made


@OFTEN
@given(st.integers(0, 2**32), st.integers(2, 3), st.sampled_from([0.0, 0.05, 0.2, 0.5]))
def test_never_two_may_write(seed: int, number: int, trouble: float) -> None:
    world(seed, number, trouble).run(600)


@OFTEN
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.2]))
def test_never_two_may_write_when_the_lease_is_deleted_or_emptied(
    seed: int, trouble: float
) -> None:
    """By people, at any moment; all candidates saw the lease before."""
    made = world(seed, 3, trouble)
    made.run(60)
    seen = [one for one in made.candidates if one.state.body is not None]
    for one in made.candidates:
        one.alive = one in seen
    remove_six_times(made)


@OFTEN
@given(st.integers(0, 2**32), st.sampled_from([0.01, 1.0, 2.0, 3.0, 5.0]))
def test_never_two_may_write_when_the_lease_is_deleted_while_another_candidate_starts(
    seed: int, latency: float
) -> None:
    """One that never saw the lease, and so can't know that it had a holder."""
    made = world(seed, 3, 0.0)
    made.latency = latency
    made.run(120)
    remove_six_times(made, newcomers=True)


def remove_six_times(made: World, *, newcomers: bool = False) -> None:
    """Deletes or empties the lease once a minute."""

    def delete() -> None:
        made.api.body = None

    def empty() -> None:
        if made.api.body is not None:
            made.api.write(
                {**made.api.body, "spec": {**made.api.body["spec"], "holderIdentity": ""}}
            )

    for number in range(6):
        moment = made.now + made.chance.uniform(0, 60)
        made.at(moment, made.chance.choice([delete, empty]))
        if newcomers:
            newcomer = One(
                made,
                Candidate("ns", "lease", f"new-{number}", T),
                made.chance.uniform(0.85, 1.15),
                0.0,
            )
            made.candidates.append(newcomer)
            made.at(moment + made.chance.uniform(0, 3), newcomer.attempt)
        made.run(made.now + 60)


@OFTEN
@given(st.integers(0, 2**32), st.sampled_from([1.0, 2.0, 3.0, 5.0]))
def test_at_any_latency_a_leader_exists_and_is_followed_after_its_death_and_never_two_may_write(
    seed: int, latency: float
) -> None:
    made = world(seed, 3, 0.0)
    made.latency = latency
    made.run(120)
    for _ in range(300):
        made.run(made.now + 1)
        assert len(made.leads_now()) == 1
    (leader,) = made.leads_now()
    next(one for one in made.candidates if one.state.me == leader).alive = False
    made.run(made.now + (T.stretched(latency * 1.2).duration + T.retry + 4 * latency) / 0.85)
    assert made.leads_now() not in ([], [leader])


@OFTEN
@given(st.integers(0, 2**32), st.sampled_from([1.0, 2.0, 3.0, 5.0]))
def test_a_leader_exists_again_soon_after_the_api_server_became_slow_or_fast(
    seed: int, latency: float
) -> None:
    made = world(seed, 3, 0.0)
    for value in (0.01, latency, 0.01):
        made.latency = value
        made.run(made.now + 120)
        assert len(made.leads_now()) == 1


@OFTEN
@given(st.integers(0, 2**32))
def test_after_any_fault_a_candidate_leads(seed: int) -> None:
    made = world(seed, 3, 0.5)
    made.run(120)
    made.trouble = 0.0
    made.run(made.now + 60)
    assert len(made.leads_now()) == 1
