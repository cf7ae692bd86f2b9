"""A controller that acts as ours would has no differences, however seldom we compare; one that acts
otherwise is reported.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gitops_ds.core.daemonset import Counts, RollingUpdate, Share
from gitops_ds.core.decision import (
    Action,
    CreatePod,
    CreateRevision,
    Decision,
    DeleteCause,
    DeletePod,
    Observation,
    StatusUpdate,
)
from gitops_ds.core.events.base import Compared, Decided, Differed, DifferenceKind, Event
from gitops_ds.core.values import replace
from gitops_ds.daemonset import decide
from gitops_ds.daemonset.shadow import Shadow
from gitops_ds.kube.apimachinery import daemonsets, pods, timestamps
from tests.daemonset import world
from tests.daemonset.world import World

Decide = Callable[[Observation], Decision]


@dataclass
class Scene:
    """A world that `theirs` looks after, and ours in the shadow."""

    world: World
    theirs: Decide = decide.decide
    shadow: Shadow = field(default_factory=Shadow)
    records: list[Event] = field(default_factory=list)
    wake_after: float | None = None

    def act(self, at_most: int | None = None, order: Callable[[Action], Any] | None = None) -> None:
        """One turn of theirs, or a part of it, its pods in another order."""
        decision = self.theirs(self.world.observe())
        actions = sorted(decision.actions, key=order) if order else list(decision.actions)
        for action in actions[:at_most]:
            self.world.perform(action)
        self.world.backoffs.update(decision.backoffs)
        if decision.status is not None:
            counters = daemonsets.counters(decision.status.counts)
            self.world.body["status"] = {
                **counters,
                "observedGeneration": decision.status.observed_generation,
            }
            self.touch()

    def touch(self) -> None:
        """Another version of the DaemonSet."""
        metadata = self.world.body["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)

    def edit(self, image: str, **spec: Any) -> None:
        self.world.edit(image)
        self.world.body["spec"].update(spec)
        self.touch()

    def taint(self, index: int, effect: str) -> None:
        """Taints a node, or takes its taint away with an empty effect."""
        name = self.world.nodes[index]["metadata"]["name"]
        taints = [{"key": "drained", "effect": effect}] if effect else []
        self.world.nodes = [
            *self.world.nodes[:index],
            world.node(name, taints=taints),
            *self.world.nodes[index + 1 :],
        ]

    def end(self, node: str) -> None:
        """A user deletes the pods of a node."""
        for body in self.world.pods.values():
            if pods.pod_of(body).node == node:
                body["metadata"]["deletionTimestamp"] = timestamps.text(self.world.now)

    def fail(self, node: str) -> None:
        for body in self.world.pods.values():
            if pods.pod_of(body).node == node:
                body["status"] = {"phase": "Failed", "reason": "Evicted"}

    def kubelets(self) -> bool:
        before = {name: pods.pod_of(body) for name, body in self.world.pods.items()}
        moved = self.world.kubelets()
        for name in before.keys() - self.world.pods.keys():
            self.shadow.gone(before[name])
        return moved

    def look(self) -> None:
        # A world changes its objects in place, which no cluster does.
        seen = copy.deepcopy(self.world.observe())
        seen = Observation(
            seen.now, seen.daemonset, seen.nodes, seen.pods, seen.revisions, {}, seen.vanished
        )
        look = self.shadow.observe(
            Decided(seen.now, seen.daemonset.key, decide.decide(seen), False, seen)
        )
        self.records += look.records
        self.wake_after = look.wake_after

    def rest(self, turns: int = 300, *, often: bool = False) -> None:
        """Until theirs is done, and ours has looked as often as it wanted to; `often`: after each
        of their turns.
        """
        for _ in range(turns):
            before = self.world.body["metadata"]["resourceVersion"], sorted(self.world.pods)
            self.act()
            if often:
                self.look()
            if self.kubelets() or before != (
                self.world.body["metadata"]["resourceVersion"],
                sorted(self.world.pods),
            ):
                continue
            self.look()
            if self.wake_after is None:
                return
            self.world.now += self.wake_after
        raise AssertionError("there is no end to it")

    @property
    def differences(self) -> list[Differed]:
        return [record for record in self.records if isinstance(record, Differed)]

    @property
    def compared(self) -> list[Compared]:
        return [record for record in self.records if isinstance(record, Compared)]


def scene(nodes: int = 4, theirs: Decide = decide.decide, **spec: Any) -> Scene:
    """A settled one."""
    made = Scene(World(world.daemonset(**spec), nodes), theirs)
    made.look()
    made.rest()
    made.records.clear()
    return made


def chaos(there: Scene, step: str, chance: random.Random) -> None:
    """One change, by the other controller, by the kubelets, or by a user."""
    node = chance.randrange(len(there.world.nodes))
    name = there.world.nodes[node]["metadata"]["name"]
    match step:
        case "part":
            there.act(at_most=chance.randrange(4), order=lambda _: chance.random())
        case "act":
            there.act()
        case "kubelets":
            there.kubelets()
        case "edit":
            there.edit(f"agent:{chance.randrange(3)}")
        case "taint":
            there.taint(node, chance.choice(["NoExecute", "NoSchedule", ""]))
        case "fail":
            there.fail(name)
        case "join":
            there.world.nodes = [
                *there.world.nodes,
                world.node(f"new-{len(there.world.nodes)}-{chance.random()}"),
            ]
        case "surge":
            there.edit("agent:7", updateStrategy=world.rolling(0, chance.randrange(1, 4)))
        case "replace":
            there.edit(
                "agent:8", updateStrategy=world.rolling(chance.choice(["25%", "50%", "75%"]))
            )
        case "ondelete":
            there.edit("agent:9", updateStrategy={"type": "OnDelete"})
        case _:
            there.end(name)


CAUSES = ("edit", "surge", "replace", "ondelete", "taint", "join")
STEPS = st.sampled_from(
    [
        "part",
        "part",
        "act",
        "act",
        "kubelets",
        "kubelets",
        "kubelets",
        "edit",
        "taint",
        "fail",
        "join",
        "surge",
        "replace",
        "end",
        "ondelete",
    ]
)


def seldom(*steps: str) -> list[tuple[str, bool]]:
    """Steps after which ours looks only at causes."""
    return [(step, False) for step in steps]


# a new pod gets available and fails between two looks, and the next node follows
FAILS_UNSEEN = seldom(
    *("taint", "edit", "part", "kubelets", "part", "kubelets", "part", "act", "fail", "edit")
)
# a rollback with surge to the template of pods that failed before
ROLLS_BACK_TO_FAILED_PODS = seldom(
    *("surge", "fail", "kubelets", "fail", "kubelets", "part", "fail", "act", "taint", "edit"),
    *("kubelets", "taint"),
)
# a pod is replaced on a node that needs none, and needs one later
NEEDED_LATER = seldom("part", "act", "taint", "replace", "act", "kubelets", "part", "taint")


@settings(deadline=None)
@example(FAILS_UNSEEN, 9760)
@example(ROLLS_BACK_TO_FAILED_PODS, 2)
@example(NEEDED_LATER, 2)
@given(st.lists(st.tuples(STEPS, st.booleans()), max_size=40), st.integers(0, 10_000))
def test_a_controller_that_decides_as_ours_has_no_differences_however_seldom_we_compare(
    steps: list[tuple[str, bool]], seed: int
) -> None:
    there, chance = scene(), random.Random(seed)
    for step, looks in steps:
        chaos(there, step, chance)
        if looks or step in CAUSES:
            there.look()
    there.rest()
    # Nothing shows who deleted a pod that an update would replace, so the deletion by a user
    # counts as one of the other controller.
    ended = any(step == "end" for step, _ in steps)
    assert [
        difference
        for difference in there.differences
        if not (ended and difference.what is DifferenceKind.ROLLOUT)
    ] == []
    assert ended or not any(comparison.elsewhere for comparison in there.compared)


def blind_to_taints(seen: Observation) -> Decision:
    return decide.decide(
        replace(seen, nodes=tuple(replace(node, taints=()) for node in seen.nodes))
    )


def without(test: Callable[[Action], bool]) -> Decide:
    def theirs(seen: Observation) -> Decision:
        decision = decide.decide(seen)
        return replace(
            decision, steps=tuple(tuple(a for a in step if not test(a)) for step in decision.steps)
        )

    return theirs


def paced_by(strategy: RollingUpdate) -> Decide:
    return lambda seen: decide.decide(
        replace(seen, daemonset=replace(seen.daemonset, strategy=strategy))
    )


def counts_wrong(seen: Observation) -> Decision:
    decision = decide.decide(seen)
    counts = Counts(desired=3, current=3, ready=3, updated=3, available=3)
    status = StatusUpdate(counts, seen.daemonset.generation)
    return replace(decision, status=None if seen.daemonset.counts == counts else status)


def ends_the_elder(seen: Observation) -> Decision:
    """Of several pods on a node, keeps the youngest."""
    decision = decide.decide(seen)
    return replace(
        decision,
        steps=tuple(tuple(other_of(action, seen) for action in step) for step in decision.steps),
    )


def other_of(action: Action, seen: Observation) -> Action:
    if not isinstance(action, DeletePod) or action.cause is not DeleteCause.DUPLICATE:
        return action
    elder = next(pod for pod in seen.pods if pod.node == action.node and pod.uid != action.uid)
    return replace(action, key=replace(action.key, name=elder.name), uid=elder.uid)


def taint_one(there: Scene) -> None:
    there.end("node-1")
    there.taint(1, "NoSchedule")


def double(there: Scene) -> None:
    labels = next(iter(there.world.pods.values()))["metadata"]["labels"]
    there.world.start(there.world.existing("agent-double", "node-2", labels=dict(labels)))


def roll(there: Scene) -> None:
    there.edit("agent:2")


def surge(there: Scene) -> None:
    there.edit("agent:2", updateStrategy=world.rolling(0, 1))


@pytest.mark.parametrize(
    ("theirs", "what_happens", "expected"),
    [
        (blind_to_taints, taint_one, ("create", "no pod on node-1", "made agent-")),
        (
            blind_to_taints,
            lambda there: there.taint(1, "NoExecute"),
            ("standstill", "DeletePod agent-", "nothing for 120 s"),
        ),
        (
            without(lambda a: isinstance(a, CreatePod)),
            lambda there: there.end("node-3"),
            ("standstill", "pods on node-3", "nothing"),
        ),
        (
            without(lambda a: isinstance(a, DeletePod)),
            lambda there: there.fail("node-0"),
            ("standstill", "DeletePod agent-", "nothing"),
        ),
        (
            without(lambda a: isinstance(a, DeletePod)),
            roll,
            ("standstill", "DeletePod agent-", "nothing"),
        ),
        (
            without(lambda a: isinstance(a, CreateRevision)),
            roll,
            ("standstill", "CreateRevision agent-", "nothing"),
        ),
        (
            paced_by(RollingUpdate(Share(3))),
            roll,
            ("rollout", "at most 1 nodes at risk at once", "put 3 at risk"),
        ),
        (
            paced_by(RollingUpdate(Share(0), Share(2))),
            surge,
            ("rollout", "at most 1 nodes at risk at once", "put 2 at risk"),
        ),
        (counts_wrong, roll, ("standstill", "the status Counts(desired=4", "nothing")),
        (ends_the_elder, double, ("delete", "an end of agent-double on node-2", "ended agent-")),
    ],
)
def test_a_controller_that_acts_otherwise_is_reported(
    theirs: Decide, what_happens: Callable[[Scene], None], expected: tuple[str, str, str]
) -> None:
    there = scene()
    there.theirs = theirs
    what_happens(there)
    there.look()
    there.rest(often=True)
    differences = [(record.what.value, record.ours, record.theirs) for record in there.differences]
    assert any(
        all(one.startswith(start) for one, start in zip(texts, expected, strict=True))
        for texts in differences
    ), differences
    assert all(comparison.differences for comparison in there.compared)


@pytest.mark.parametrize(
    "change", [{"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"uid": "another"}]
)
def test_a_daemonset_that_ends_or_is_another_one_is_not_judged(change: dict[str, str]) -> None:
    there = scene()
    there.world.body["metadata"].update(change)
    there.world.pods.clear()
    there.look()
    there.world.now += 1000
    there.look()
    assert [record for record in there.records if isinstance(record, Compared)] == []


def test_what_happens_while_a_daemonset_cannot_be_reconciled_is_not_judged() -> None:
    there = scene()
    there.look()
    spec = there.world.body["spec"]
    there.world.body["spec"] = {**spec, "selector": {}}
    there.touch()
    there.look()
    double(there)
    there.world.body["spec"] = spec
    there.touch()
    there.look()
    there.rest()
    assert there.differences == []


def test_a_difference_is_reported_once_and_no_comparison_lasts_indefinitely() -> None:
    there = scene(theirs=decide.decide)
    there.theirs = without(lambda action: isinstance(action, CreatePod))
    there.end("node-3")
    there.rest()
    for _ in range(10):
        there.world.now += 300
        there.look()
    assert len(there.differences) == 1
    assert there.wake_after is None
    there.theirs = decide.decide
    there.rest()
    roll(there)
    there.rest()
    assert [comparison.differences for comparison in there.compared] == [1, 0]


@pytest.mark.parametrize(("seconds", "elsewhere"), [(5.0, {}), (6.0, {"node-1": 1})])
def test_a_pod_that_went_for_a_rollout_that_was_just_undone_is_not_a_difference(
    seconds: float, elsewhere: dict[str, int]
) -> None:
    """The other controller had sent the deletion when the rollback was observed; long after that
    another user deletes it.
    """
    there = scene()
    there.edit("agent:2")
    there.act(at_most=1)  # the revision
    there.look()
    there.edit("agent:1")
    there.look()
    there.world.now += seconds
    there.look()
    there.end("node-1")
    there.look()
    there.rest()
    assert (there.differences, there.compared[-1].elsewhere) == ([], elsewhere)


def test_all_pods_of_a_new_daemonset_are_counted_as_created() -> None:
    there = Scene(World(world.daemonset(), 3))
    there.act()
    del there.world.body["status"]  # it is written last
    there.look()
    there.rest()
    (comparison,) = there.compared
    assert comparison.created == {"node-0": 1, "node-1": 1, "node-2": 1}
