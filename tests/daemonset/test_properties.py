"""Properties of every generated cluster: any nodes, any pods in any state, any strategy."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops_ds.core import names
from gitops_ds.core.daemonset import OnDelete, Pod, RollingUpdate
from gitops_ds.core.decision import (
    Adopt,
    CreatePod,
    DeleteCause,
    DeletePod,
    DeleteRevision,
    Observation,
    RelabelPod,
    Release,
    RenumberRevision,
)
from gitops_ds.daemonset import decide
from gitops_ds.kube.apimachinery import daemonsets, node_eligibility, revisions
from gitops_ds.kube.apimachinery.node_eligibility import Placement
from tests import profiles
from tests.daemonset.world import World, daemonset, node, rolling

OFTEN = settings(max_examples=profiles.examples(100), deadline=None)
SLOWLY = settings(max_examples=profiles.examples(60), deadline=None)

STRATEGIES = [
    rolling(1),
    rolling(2),
    rolling("34%"),
    rolling("100%"),
    rolling(0, 1),
    rolling(0, "50%"),
    {"type": "OnDelete"},
]
TAINTS = [[], [], [], [{"key": "a", "effect": "NoSchedule"}], [{"key": "a", "effect": "NoExecute"}]]
LABELS = [
    {"app": "agent", names.POD_TEMPLATE_GENERATION: "2"},
    {"app": "agent", names.POD_TEMPLATE_GENERATION: "1"},
    {"app": "agent", names.REVISION_HASH: "lost"},
    {"app": "agent"},
    {"app": "other"},
]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A fleet after its first edit, with any pods."""
    nodes = [
        node(f"node-{i}", taints=draw(st.sampled_from(TAINTS)), ready=draw(st.booleans()))
        for i in range(draw(st.integers(0, 6)))
    ]
    min_ready, limit = draw(st.sampled_from([0, 10])), draw(st.sampled_from([0, 1, 10]))
    strategy = draw(st.sampled_from(STRATEGIES))
    world = World(
        daemonset(updateStrategy=strategy, minReadySeconds=min_ready, revisionHistoryLimit=limit),
        nodes,
    )
    world.turn(at_most=1)
    world.edit("agent:2")
    tidy = draw(st.booleans())
    for on in [f"node-{i}" for i in range(len(nodes) if tidy else len(nodes) + 1)]:
        for number in range(1 if tidy else draw(st.integers(0, 3))):
            draw(existing(world, f"{on}-{number}", on, tidy))
    return world


@st.composite
def existing(draw: st.DrawFn, world: World, name: str, on: str, tidy: bool) -> None:
    """A pod on that node: of this template or the last one, or, untidily, in any state and of
    any owner.
    """
    world.now += draw(st.integers(0, 9))
    labels = draw(st.sampled_from(LABELS[:2] if tidy else LABELS))
    phase = (
        "Running"
        if tidy
        else draw(
            st.sampled_from(
                ["Pending", "Running", "Running", "Running", "Failed", "Succeeded", "Unknown"]
            )
        )
    )
    pod = world.existing(name, on, owned=tidy or draw(st.booleans()), labels=labels, phase=phase)
    if draw(st.integers(0, 3)):
        world.start(pod)
        pod["status"]["phase"] = phase
    if not tidy and draw(st.integers(0, 4)) == 0:
        pod["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z"


def placements(seen: Observation) -> dict[str, Placement]:
    placer = node_eligibility.read(seen.daemonset.template)
    return {each.name: placer.place(each) for each in seen.nodes}


def counting(world: World) -> list[Pod]:
    """The DaemonSet's pods that are there to stay."""
    return [
        pod
        for pod in world.parsed()
        if pod.owner is not None
        and pod.labels.get("app") == "agent"
        and not pod.terminating
        and not pod.ended
    ]


def surges(world: World) -> bool:
    strategy = daemonsets.strategy(world.body["spec"])
    return isinstance(strategy, RollingUpdate) and strategy.surges


@OFTEN
@given(world=worlds(), shuffled=st.randoms(use_true_random=False))
def test_the_same_observations_in_any_order_give_the_same_decision_byte_for_byte(
    world: World, shuffled: Any
) -> None:
    first = repr(decide.decide(world.observe()))
    for objects in ("pods", "revisions"):
        items = list(getattr(world, objects).items())
        shuffled.shuffle(items)
        setattr(world, objects, dict(items))
    shuffled.shuffle(world.nodes)
    assert repr(decide.decide(world.observe())) == first


@OFTEN
@given(world=worlds())
def test_pods_are_created_once_per_node_and_only_on_eligible_nodes_and_deleted_once_each(
    world: World,
) -> None:
    seen = world.observe()
    actions = decide.decide(seen).actions
    creates = [a.node for a in actions if isinstance(a, CreatePod)]
    deletes = [a.uid for a in actions if isinstance(a, DeletePod)]
    assert len(set(creates)) == len(creates)
    assert all(placements(seen)[on] is Placement.RUN for on in creates)
    assert len(set(deletes)) == len(deletes)
    ours = {
        pod.uid for pod in seen.pods if not pod.terminating and pod.labels.get("app") == "agent"
    }
    assert ours.issuperset(deletes)


@OFTEN
@given(world=worlds())
def test_only_our_own_objects_are_written_and_an_adoption_is_the_only_action(world: World) -> None:
    for _ in range(4):
        seen = world.observe()
        owned = {
            pod.uid
            for pod in seen.pods
            if pod.owner is not None and pod.owner.uid == seen.daemonset.uid
        }
        owned |= {
            r.uid
            for r in seen.revisions
            if (owner := revisions.owner_of(r)) is not None and owner.uid == seen.daemonset.uid
        }
        decision = decide.decide(seen)
        adopted = [action for action in decision.actions if isinstance(action, Adopt)]
        if adopted:
            assert (len(decision.steps), decision.status) == (1, None)
            assert all(isinstance(action, Adopt | Release) for action in decision.actions)
        ended = [
            action
            for action in decision.actions
            if isinstance(action, DeletePod | RelabelPod | DeleteRevision | RenumberRevision)
        ]
        assert owned >= {action.uid for action in ended}
        for action in decision.actions:
            if adopted and action in adopted[::2]:
                continue  # every second adoption is refused, permanently
            world.perform(action)
        world.kubelets()


@OFTEN
@given(world=worlds())
def test_no_reconciliation_deletes_more_available_pods_than_its_budget(world: World) -> None:
    seen = world.observe()
    seconds, strategy = seen.daemonset.min_ready_seconds, seen.daemonset.strategy
    expected = {on for on, placement in placements(seen).items() if placement is Placement.RUN}
    claimed = [
        pod for pod in seen.pods if pod.labels.get("app") == "agent" and pod.node in expected
    ]
    gone = {
        a.uid
        for a in decide.decide(seen).actions
        if isinstance(a, DeletePod) and a.cause is DeleteCause.OUTDATED
    }
    serving = {
        pod.node for pod in claimed if not pod.terminating and pod.available(seconds, seen.now)
    }
    left = {
        pod.node
        for pod in claimed
        if not pod.terminating and pod.uid not in gone and pod.available(seconds, seen.now)
    }
    if isinstance(strategy, OnDelete):
        assert not gone
        return
    most, _ = daemonsets.limits(strategy, len(expected))
    assert len(serving - left) <= max(0, most - (len(expected) - len(serving)))


@OFTEN
@given(world=worlds())
def test_no_reconciliation_creates_a_second_pod_on_a_node_beyond_surge(world: World) -> None:
    def crowds() -> dict[str, int]:
        on = [pod.node for pod in counting(world)]
        return {name: on.count(name) for name in on}

    before, most = crowds(), 2 if surges(world) else 1
    adopted = {pod.node for pod in world.parsed() if pod.owner is None}
    world.turn()
    assert all(
        count <= max(most, before.get(on, 0)) for on, count in crowds().items() if on not in adopted
    )


@SLOWLY
@given(world=worlds(), crashes=st.lists(st.integers(0, 4), max_size=4))
def test_from_any_state_and_through_any_crashes_the_fleet_becomes_right_and_stays(
    world: World, crashes: list[int]
) -> None:
    for at_most in crashes:
        world.turn(at_most=at_most)
        world.kubelets()
    nodes = {body["metadata"]["name"] for body in world.nodes}
    for pod in world.parsed():
        if pod.node not in nodes:
            # as the cluster's garbage collector does; until then such pods can hold up a rollout
            world.vanish(pod.name)
    for _ in range(120):
        world.turn()
        world.kubelets()
        for pod in counting(world):
            if not pod.ready:
                world.start(world.pods[pod.name])
    seen = world.observe()
    decision = decide.decide(seen)
    assert (decision.actions, decision.status) == ((), None)
    by_hand = isinstance(seen.daemonset.strategy, OnDelete)
    for on, placement in placements(seen).items():
        there = [pod for pod in counting(world) if pod.node == on]
        assert (
            len(there) == 1
            if placement is Placement.RUN
            else len(there) <= (placement is Placement.KEEP)
        )
        assert (
            by_hand
            or placement is Placement.KEEP
            or all(pod.template_generation == "2" for pod in there)
        )
    assert len(world.numbers()) == len(set(world.numbers()))


@SLOWLY
@given(world=worlds(), passed=st.sampled_from([0, 1, 20, 10**6, -(10**6)]))
def test_the_passage_of_time_changes_the_decision_no_sooner_than_wake_after(
    world: World, passed: int
) -> None:
    """At the time that it names, and never before; a clock that jumps may only make it decide,
    never fail.
    """
    first = decide.decide(world.observe())
    if first.wake_after is None or first.wake_after > 1:
        world.now += 0.5
        again = decide.decide(world.observe())
        assert [type(a) for a in again.actions] == [type(a) for a in first.actions]
        assert again.status == first.status
    world.now += passed
    decide.decide(world.observe())
