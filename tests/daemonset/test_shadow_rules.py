"""The rules of the shadow mode at their bounds: seconds, states of pods, strategies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.daemonset import Owner, Phase, Pod
from gitops_ds.core.decision import Decision, DeletePod, DeleteRevision
from gitops_ds.core.events.base import DifferenceKind
from gitops_ds.core.objects import Key
from gitops_ds.core.values import replace
from gitops_ds.daemonset import decide, shadow, shadow_views
from gitops_ds.daemonset.node_pods import NodePodLayout, NodePods
from gitops_ds.daemonset.shadow_views import ObservedAct
from gitops_ds.kube.apimachinery.node_eligibility import Placement
from tests.daemonset import world
from tests.daemonset.world import START, World
from tests.observe.test_shadow import Scene, double, scene, without

QUIET, STALLED, STANDSTILL, LONGEST_BACKOFF = 5.0, 60.0, 120.0, 1020.0


def pod(letter: str, name: str = "p") -> Pod:
    """`N` runs the wanted template and `O` another one; small letters are pods that are not ready,
    `t` is one that is being deleted, `f` one of the wanted template that failed.
    """
    return Pod(
        "logging",
        name,
        name,
        node="node-0",
        ready=letter in "NO",
        ready_since=0.0,
        phase=Phase.FAILED if letter == "f" else Phase.RUNNING,
        hash="new" if letter in "Nnf" else "old",
        terminating=letter == "t",
    )


def layout_of(letters: str, placement: Placement | None, **spec: Any) -> NodePodLayout:
    seen = World(world.daemonset(**spec), 0).observe()
    pods = tuple(pod(letter, f"p{index}") for index, letter in enumerate(letters))
    there = NodePods("node-0", placement, pods, tuple(one.uid for one in pods))
    return NodePodLayout(seen, "new", (there,), frozenset())


@pytest.mark.parametrize(
    ("letters", "doubled"),
    [
        ("nO", True),
        ("NO", False),
        ("no", False),
        ("O", False),
        ("N", False),
        ("OO", False),
        ("Oo", False),
        ("nN", False),
        ("tO", False),
        ("fO", False),
    ],
)
def test_a_node_is_doubled_by_an_unavailable_new_pod_beside_an_available_old_one(
    letters: str, doubled: bool
) -> None:
    layout = layout_of(letters, Placement.RUN)
    assert shadow._is_doubled(layout, layout.nodes[0]) == doubled


ON_DELETE = {"updateStrategy": {"type": "OnDelete"}}


@pytest.mark.parametrize(
    ("letters", "placement", "spec", "well"),
    [
        ("N", Placement.RUN, {}, True),
        ("O", Placement.RUN, {}, False),
        ("O", Placement.RUN, ON_DELETE, True),
        ("n", Placement.RUN, {}, False),
        ("n", Placement.RUN, ON_DELETE, False),
        ("", Placement.RUN, {}, False),
        ("Nt", Placement.RUN, {}, False),
        ("t", Placement.EVICT, {}, False),
        ("o", Placement.KEEP, {}, True),
        ("", Placement.EVICT, {}, True),
        ("t", None, {}, True),
    ],
)
def test_a_daemonset_is_well_without_anything_in_progress(
    letters: str, placement: Placement | None, spec: dict[str, Any], well: bool
) -> None:
    assert shadow._is_well(layout_of(letters, placement, **spec)) is well


def test_departed_pods_are_put_back_in_their_last_state() -> None:
    seen = replace(
        World(world.daemonset(), 0).observe(), pods=(pod("t", "a"), pod("N", "c"), pod("N", "d"))
    )
    gone = {name: ObservedAct(pod("N", name), START) for name in ("a", "b")}
    assert shadow_views.with_departures(seen, gone).pods == tuple(pod("N", one) for one in "abcd")
    assert not gone["a"].risks


def test_arrived_pods_and_those_of_a_new_daemonset_are_taken_away() -> None:
    seen = World(world.daemonset(), 0).observe()
    owned = replace(pod("N", "b"), owner=Owner("DaemonSet", "agent", "ds-uid"))
    seen = replace(seen, pods=(pod("N", "a"), owned))
    assert shadow_views.without_arrivals(seen, {"a"}).pods == (owned,)
    assert shadow_views.without_owned_pods(seen).pods == (pod("N", "a"),)


def test_a_settled_daemonset_is_not_looked_at_again() -> None:
    fleet = World(world.daemonset(), 2)
    fleet.settle()
    there = Scene(fleet)
    there.look()
    assert (there.wake_after, there.records) == (None, [])


def test_the_last_state_of_an_orphan_is_not_kept() -> None:
    there = scene()
    there.shadow.gone(pod("N"))
    (watched,) = there.shadow._watched.values()
    assert watched.last == {}


@pytest.mark.parametrize(("image", "due"), [("agent:2", QUIET), ("bad", STALLED)])
def test_an_interval_ends_exactly_when_its_daemonset_was_quiet_for_long_enough(
    image: str, due: float
) -> None:
    there = scene()
    there.world.bad_images = {"bad"}
    there.edit(image)
    while there.theirs(there.world.observe()).actions or there.kubelets():
        there.act()
        there.look()
    there.touch()
    there.look()
    assert there.wake_after == due
    there.world.now += due - 1
    there.look()
    assert (there.wake_after, there.compared) == (1.0, [])
    there.world.now += 1
    there.look()
    assert (there.wake_after, len(there.compared)) == (None, 1)


def test_a_failed_pod_may_stay_for_the_longest_backoff_and_no_longer() -> None:
    there = scene()
    there.fail("node-0")
    there.look()
    assert there.wake_after == STANDSTILL
    there.world.now += STANDSTILL
    there.look()
    assert there.wake_after == LONGEST_BACKOFF - STANDSTILL
    there.world.now += LONGEST_BACKOFF - STANDSTILL - 1
    there.look()
    assert (there.wake_after, DifferenceKind.STANDSTILL in kinds(there, "DeletePod")) == (
        1.0,
        False,
    )
    there.world.now += 1
    there.look()
    assert (there.wake_after, DifferenceKind.STANDSTILL in kinds(there, "DeletePod")) == (
        None,
        True,
    )


def kinds(there: Scene, ours: str) -> set[DifferenceKind]:
    return {difference.what for difference in there.differences if difference.ours.startswith(ours)}


@pytest.mark.parametrize(("seconds", "differences"), [(QUIET, 0), (QUIET + 1, 1)])
def test_the_cause_of_a_new_pod_may_be_observed_seconds_later(
    seconds: float, differences: int
) -> None:
    there = scene()
    before = there.world.nodes
    there.world.nodes = [*before, world.node("late")]
    there.act()
    there.kubelets()
    there.world.nodes, after = before, there.world.nodes
    there.look()
    there.world.now += seconds
    there.world.nodes = after
    there.look()
    there.rest()
    assert len(there.differences) == differences


@pytest.mark.parametrize(("seconds", "deleted"), [(0.0, True), (QUIET, True), (QUIET + 1, False)])
def test_the_cause_of_a_deletion_may_be_observed_seconds_later(
    seconds: float, deleted: bool
) -> None:
    there = scene()
    there.end("node-1")
    there.kubelets()
    if seconds:
        there.look()
    there.world.now += seconds
    there.taint(1, "NoExecute")
    there.look()
    there.rest()
    (compared,) = there.compared
    counted = {"node-1": 1}
    assert (compared.deleted, compared.elsewhere) == ((counted, {}) if deleted else ({}, counted))


def test_a_deletion_that_ours_wanted_before_its_cause_was_undone_is_its_own() -> None:
    there = scene()
    there.taint(1, "NoExecute")
    there.look()
    there.taint(1, "")
    there.look()
    there.end("node-1")
    there.look()
    there.rest()
    (compared,) = there.compared
    assert (compared.deleted, compared.elsewhere) == ({"node-1": 1}, {})


def ready(there: Scene, *nodes: str, ready: bool) -> None:
    for one in there.world.parsed():
        if one.node in nodes:
            there.world.start(there.world.pods[one.name], ready=ready)


def test_only_available_pods_that_a_rollout_deletes_are_at_risk() -> None:
    there = scene()
    ready(there, "node-0", "node-1", "node-2", ready=False)
    there.edit("agent:2")
    there.look()
    there.rest(often=True)
    (compared,) = there.compared
    assert (compared.replaced, compared.at_risk, there.differences) == (4, 1, [])


def test_a_pod_that_became_unavailable_before_its_deletion_was_not_at_risk() -> None:
    there = scene()
    there.edit("agent:2")
    there.act(at_most=1)  # the revision
    there.look()
    ready(there, "node-0", "node-1", "node-2", ready=False)
    for name in ("node-0", "node-1", "node-2"):
        there.end(name)
    there.kubelets()
    there.look()
    there.rest()
    assert (there.differences, there.compared[-1].at_risk) == ([], 0)


def suspend(there: Scene) -> None:
    there.world.body["metadata"]["annotations"][names.SUSPEND] = "true"


@pytest.mark.parametrize(
    ("before", "now", "ended"),
    [
        ("", "f", True),
        ("n", "f", True),
        ("N", "f", True),
        ("t", "f", False),
        ("f", "f", False),
        ("", "n", False),
    ],
)
def test_a_pod_ends_once_and_not_by_its_deletion(before: str, now: str, ended: bool) -> None:
    seen = replace(World(world.daemonset(), 0).observe(), pods=tuple(map(pod, before)))
    nodes = shadow_views.nodes_of_ended_pods(seen, [pod(now)])
    assert nodes == ({"node-0"} if ended else set())


def deleted_node(there: Scene) -> str:
    """The one node with a pod that is being deleted."""
    (node,) = (one.node for one in there.world.parsed() if one.terminating)
    return node


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("vanishes", [False, True])
def test_a_node_whose_new_pod_failed_after_it_was_available_is_no_longer_at_risk(
    looks: bool, vanishes: bool
) -> None:
    there = scene()
    there.edit("agent:2")
    there.look()
    there.act()
    first = deleted_node(there)
    if looks:
        there.look()
    for _ in range(2):  # the new pod is created, and available
        there.kubelets()
        there.act()
    assert deleted_node(there) != first
    there.fail(first)
    if vanishes:
        there.act()
        there.kubelets()
    there.look()
    there.rest()
    assert (there.differences, there.compared[-1].at_risk) == ([], 1)


def test_a_deleted_pod_that_ends_before_it_vanishes_leaves_its_node_at_risk() -> None:
    there = scene()
    there.edit("agent:2")
    there.look()
    there.act()
    there.look()
    first = deleted_node(there)
    there.fail(first)
    there.end(next(one.node for one in there.world.parsed() if one.node != first))
    there.look()
    assert [difference.theirs for difference in there.differences] == ["put 2 at risk"]


@pytest.mark.parametrize(
    ("change", "elsewhere"),
    [
        (lambda there: None, {}),
        (suspend, {"node-1": 1}),
        (lambda there: there.world.body["spec"].update(ON_DELETE), {"node-1": 1}),
    ],
)
def test_a_pod_of_an_earlier_template_is_replaced_only_by_a_rolling_update(
    change: Callable[[Scene], None], elsewhere: dict[str, int]
) -> None:
    there = scene()
    there.theirs = without(lambda action: hasattr(action, "cause"))
    change(there)
    there.edit("agent:2")
    there.look()
    there.end("node-1")
    there.look()
    there.kubelets()
    there.act()
    there.kubelets()
    there.look()
    there.world.now += STANDSTILL
    there.look()
    (watched,) = there.shadow._watched.values()
    found = there.compared[0].elsewhere if there.compared else watched.interval.elsewhere
    assert found == elsewhere


def test_with_surge_only_a_pod_of_another_template_on_its_node_explains_a_new_one() -> None:
    there = scene(updateStrategy=world.rolling(0, 1))
    there.edit("agent:2")
    there.look()
    for _ in range(3):
        there.act()
        there.kubelets()
        there.look()
    images = there.world.images()
    updated = next(name for name, some in images.items() if some == ["agent:2"])
    assert ["agent:1"] in images.values()
    there.theirs = without(lambda action: True)
    twin = next(one for one in there.world.parsed() if one.node == updated)
    labels = dict(there.world.pods[twin.name]["metadata"]["labels"])
    there.world.start(there.world.existing("agent-twin", updated, labels=labels))
    there.look()
    there.world.now += STANDSTILL
    there.look()
    assert [
        difference.theirs
        for difference in there.differences
        if difference.what is DifferenceKind.CREATE
    ] == ["made agent-twin"]


def test_a_stalled_rollout_that_becomes_on_delete_exceeds_no_budget() -> None:
    there = scene(updateStrategy=world.rolling(3))
    there.world.bad_images = {"bad"}
    there.edit("bad")
    there.look()
    there.rest(often=True)
    assert there.compared[-1].at_risk == 3
    there.world.body["spec"].update(ON_DELETE)
    there.edit("agent:2")
    there.look()
    there.rest()
    assert there.differences == []


def test_without_a_rollout_no_node_is_at_risk() -> None:
    there = scene()
    there.end("node-1")
    there.rest()
    assert there.compared[-1].at_risk == 0


def test_a_second_pod_of_the_template_is_superfluous_with_surge_as_well() -> None:
    there = scene(updateStrategy=world.rolling(0, 1))
    double(there)
    there.theirs = without(lambda action: True)
    there.look()
    there.world.now += STANDSTILL
    there.look()
    assert DifferenceKind.CREATE in kinds(there, "no pod on node-2")


@pytest.mark.parametrize(
    ("strategy", "superfluous"), [(world.rolling(1), True), (world.rolling(0, 1), False)]
)
def test_only_with_surge_a_rollout_creates_a_new_pod_beside_the_old_one(
    strategy: dict[str, Any], superfluous: bool
) -> None:
    there = scene(updateStrategy=strategy)
    there.edit("agent:2")
    there.act(at_most=1)  # the revision
    there.look()
    labels = {"app": "agent", names.REVISION_HASH: decide.layout(there.world.observe()).hash}
    there.world.start(there.world.existing("agent-new", "node-2", labels=labels))
    there.look()
    there.world.now += STANDSTILL
    there.look()
    found = {
        difference.theirs
        for difference in there.differences
        if difference.what is DifferenceKind.CREATE
    }
    assert found == ({"made agent-new"} if superfluous else set())


@pytest.mark.parametrize(("failures", "superfluous"), [(1, False), (2, False), (0, True)])
def test_new_pods_that_failed_are_not_a_difference_before_one_that_did_not(
    failures: int, superfluous: bool
) -> None:
    there = scene()
    there.world.nodes = [*there.world.nodes, world.node("late")]
    there.look()
    for number in range(failures):
        failed = there.world.existing(f"z-failed-{number}", "late", phase="Failed")
        failed["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    there.act()
    if superfluous:
        there.world.start(there.world.existing("z-second", "late"))
    there.theirs = without(lambda action: isinstance(action, DeletePod))
    there.look()
    there.world.now += STANDSTILL
    there.look()
    found = [
        difference.theirs
        for difference in there.differences
        if difference.what is DifferenceKind.CREATE
    ]
    assert found == (["made z-second"] if superfluous else [])


def test_a_difference_names_five_pods_and_five_other_objects_at_most() -> None:
    keys = [Key("apps", "ControllerRevision", "logging", f"r{number}") for number in range(7)]
    deletes = tuple(DeleteRevision(key, "u", "") for key in keys)
    words = shadow._wishes(Decision((deletes,)), failed=False)
    assert words.endswith("DeleteRevision r4 and 2 more")
