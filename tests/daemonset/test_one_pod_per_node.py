"""The pods that a reconciliation creates and deletes on each node, and why;
test_upstream_controller.py has the table of all cases.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from gitops_ds.core.decision import (
    Adopt,
    CreatePod,
    CreateRevision,
    DeleteCause,
    DeletePod,
    FailedPodBackoff,
    Release,
)
from gitops_ds.core.values import replace
from gitops_ds.daemonset import claims, decide, memory, pod_changes
from gitops_ds.kube.apimachinery import node_eligibility
from tests.daemonset.world import OWNER, World, daemonset, node, rolling

NO_SCHEDULE = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
NO_EXECUTE = {"key": "dedicated", "value": "gpu", "effect": "NoExecute"}


def one_node(*taints: dict[str, str], labels: dict[str, str] | None = None, **spec: Any) -> World:
    return World(daemonset(**spec), [node("node-0", labels, list(taints))])


def with_pod(world: World, **status: Any) -> World:
    world.existing("there", "node-0", **status)
    return world


def selecting(world: World) -> World:
    world.body["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
    return world


def two_pods(strategy: dict[str, Any]) -> World:
    world = World(daemonset(updateStrategy=strategy), 1)
    for name in ("b", "a"):
        world.existing(name, "node-0")
    return world


ROWS: list[tuple[str, Callable[[], World], list[str], list[tuple[str, DeleteCause]]]] = [
    (
        "NoExecute takes the pod that is there",
        lambda: with_pod(one_node(NO_EXECUTE)),
        [],
        [("there", DeleteCause.UNWANTED)],
    ),
    (
        "a node selector that does not match takes it too",
        lambda: selecting(with_pod(one_node())),
        [],
        [("there", DeleteCause.UNWANTED)],
    ),
    (
        "a failed pod is deleted, its replacement waits",
        lambda: with_pod(one_node(), phase="Failed"),
        [],
        [("there", DeleteCause.FAILED)],
    ),
    (
        "a succeeded pod is deleted",
        lambda: with_pod(one_node(), phase="Succeeded"),
        [],
        [("there", DeleteCause.SUCCEEDED)],
    ),
    (
        "of two pods the older stays, by name when as old",
        lambda: two_pods(rolling()),
        [],
        [("b", DeleteCause.DUPLICATE)],
    ),
    (
        "with surge as well, within a revision",
        lambda: two_pods(rolling(0, 1)),
        [],
        [("b", DeleteCause.DUPLICATE)],
    ),
]


@pytest.mark.parametrize(
    ("world", "creates", "deletes"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_a_turn_settles_each_node(
    world: Callable[[], World], creates: list[str], deletes: list[tuple[str, DeleteCause]]
) -> None:
    there = world()
    there.existing("foreign", "node-0", owned=False, labels={"app": "other"})
    del there.pods["foreign"]["status"]
    actions = there.turn().actions
    settled = [
        a for a in actions if isinstance(a, DeletePod) and a.cause is not DeleteCause.OUTDATED
    ]
    assert [a.node for a in actions if isinstance(a, CreatePod)] == creates
    assert [(a.key.name, a.cause) for a in settled] == deletes


def test_a_pod_is_created_for_its_node_as_upstream_creates_it() -> None:
    world = World(daemonset(), 1)
    world.body["spec"]["template"]["spec"]["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
        },
        "podAffinity": {"kept": True},
    }
    (create,) = [a for a in world.turn().actions if isinstance(a, CreatePod)]
    (revision,) = world.revisions.values()
    spec, metadata = create.body["spec"], create.body["metadata"]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]}
    affinity = spec["affinity"]
    assert affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] == {
        "nodeSelectorTerms": [term]
    }
    assert "preferredDuringSchedulingIgnoredDuringExecution" in affinity["nodeAffinity"]
    assert affinity["podAffinity"] == {"kept": True}
    assert "nodeName" not in spec
    assert spec["tolerations"] == node_eligibility.daemon_tolerations({})
    assert create.why == "the node has no pod"
    assert metadata["name"].startswith("agent-")
    assert metadata["labels"] == {
        "app": "agent",
        "pod-template-generation": "1",
        "controller-revision-hash": revision["metadata"]["labels"]["controller-revision-hash"],
    }
    assert metadata["ownerReferences"][0]["uid"] == "ds-uid"


def test_the_same_view_names_the_same_pod_and_a_replacement_has_a_name_of_its_own() -> None:
    def created(world: World) -> str:
        (create,) = [a for a in world.turn(at_most=0).actions if isinstance(a, CreatePod)]
        return str(create.body["metadata"]["name"])

    world = World(daemonset(), 1)
    first = created(world)
    assert created(world) == first
    world.vanished["node-0"] = "uid-of-a-pod"
    assert created(world) != first


def test_a_leader_that_saw_no_pod_vanish_names_a_surge_pod_as_one_that_did() -> None:
    def created(vanished: dict[str, str]) -> list[str]:
        world = World(daemonset(updateStrategy=rolling(0, 2)), 2)
        world.settle()
        world.edit("agent:2")
        world.vanished = vanished
        return [
            a.body["metadata"]["name"] for a in world.turn().actions if isinstance(a, CreatePod)
        ]

    assert created({}) == created({"node-0": "an-earlier-pod", "node-1": "another"}) != []


def test_a_pod_that_keeps_failing_is_deleted_later_each_time() -> None:
    world, delays = World(daemonset(), 1), []
    for _ in range(12):
        world.pods.clear()
        world.existing(
            "there",
            "node-0",
            phase="Failed",
            labels={"app": "agent", "pod-template-generation": "1"},
        )
        waits = 0.0
        decision = world.turn()
        while not any(isinstance(action, DeletePod) for action in decision.actions):
            assert decision.wake_after is not None
            world.now += decision.wake_after
            waits += decision.wake_after
            decision = world.turn()
        delays.append(waits)
    assert delays == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, memory.LONGEST_DELAY]


def test_a_terminating_pod_blocks_its_replacement_but_an_ended_one_that_is_stuck_does_not() -> None:
    world = World(daemonset(), 2)
    for name, on, phase in (("running", "node-0", "Running"), ("stuck", "node-1", "Succeeded")):
        world.existing(name, on, phase=phase)["metadata"]["deletionTimestamp"] = (
            "2027-01-01T00:00:00Z"
        )
    assert [a.node for a in world.turn().actions if isinstance(a, CreatePod)] == ["node-1"]


def test_pods_of_a_vanished_node_go_only_when_they_never_ran() -> None:
    world = World(daemonset(), 1)
    world.settle()
    (pod,) = world.pods.values()
    world.nodes.clear()
    assert world.turn().actions == ()
    del pod["spec"]["nodeName"]
    (delete,) = world.turn().actions
    assert isinstance(delete, DeletePod)
    assert delete.cause is DeleteCause.UNWANTED


def test_orphans_are_adopted_and_pods_that_left_the_selector_are_released() -> None:
    world = World(daemonset(), 2)
    world.existing("orphan", "node-0", owned=False)
    world.existing("left", "node-1", labels={"app": "other"})
    assert {type(action) for action in world.turn().actions} == {Adopt, Release}
    assert world.pods["orphan"]["metadata"]["ownerReferences"][0]["uid"] == "ds-uid"
    assert "ownerReferences" not in world.pods["left"]["metadata"]
    world.turn()
    assert [pod.node for pod in world.parsed() if pod.name.startswith("agent-")] == ["node-1"]


def test_an_orphan_is_adopted_and_counts_only_afterwards() -> None:
    world = World(daemonset(), 2)
    world.settle()
    own = set(world.pods)
    world.existing("orphan", "node-0", owned=False)
    world.existing("stranger", "node-0", owned=False, labels={"app": "x"})
    ending = world.existing("ending", "node-0", owned=False)
    ending["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z"
    claim = claims.claim(world.observe())
    assert {pod.name for pod in claim.pods} == own
    (adopt,) = claim.actions
    assert isinstance(adopt, Adopt)
    assert adopt.key.name == "orphan"
    assert claim.adopts


def test_a_pod_of_another_owner_is_neither_claimed_nor_released() -> None:
    world = World(daemonset(), 2)
    world.settle()
    own = set(world.pods)
    for name, labels in (("like", {"app": "agent"}), ("unlike", {"app": "x"})):
        foreign = world.existing(name, "node-0", labels=labels)
        foreign["metadata"]["ownerReferences"] = [{**OWNER, "uid": "another"}]
    claim = claims.claim(world.observe())
    assert {pod.name for pod in claim.pods} == own
    assert claim.actions == ()


def test_a_pod_that_left_the_selector_does_not_count_in_the_turn_that_releases_it() -> None:
    world = World(daemonset(), 1)
    world.existing("left", "node-0", labels={"app": "other"})
    decision = world.turn()
    assert {type(action) for action in decision.actions} == {Release, CreateRevision, CreatePod}


def test_a_daemonset_that_is_being_deleted_or_selects_everything_does_nothing() -> None:
    world = World(daemonset(), 1)
    world.existing("left", "node-0", labels={"app": "other"})
    world.body["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z"
    assert not any(isinstance(a, Release) for a in world.turn().actions)
    assert world.turn().actions == ()
    world = World({**daemonset(), "spec": {**daemonset()["spec"], "selector": {}}}, 1)
    assert world.turn().actions == ()
    assert "non-empty selector" in world.turn().complaint


@pytest.mark.parametrize("length", [51, 52, 53, 63, 100])
def test_a_pod_of_a_daemonset_with_a_long_name_has_a_valid_name_wherever_it_is_cut(
    length: int,
) -> None:
    for end in (".b", "-b", "b"):
        whole = ("a" * (length - 2) + end + "c" * 200)[:200]
        assert re.fullmatch(
            r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            pod_changes.pod_name(f"{whole}\nrest"),
        )


def test_the_name_of_a_pod_has_at_most_63_characters() -> None:
    assert pod_changes.pod_name(f"{'a' * 52}\nrest").startswith(f"{'a' * 52}-")
    assert pod_changes.pod_name(f"{'a' * 53}\nrest").startswith(f"{'a' * 52}-")
    assert len(pod_changes.pod_name(f"{'a' * 100}\nrest")) == 63


@pytest.mark.parametrize(
    ("status", "why"),
    [({}, "it failed (Failed)"), ({"reason": "Evicted"}, "it failed (Evicted)")],
)
def test_the_deletion_of_a_failed_pod_gives_its_reason(status: dict[str, str], why: str) -> None:
    actions = with_pod(World(daemonset(), 1), phase="Failed", **status).turn().actions
    assert [action.why for action in actions if isinstance(action, DeletePod)] == [why]


def test_one_reconciliation_creates_at_most_250_pods() -> None:
    world = World(daemonset(), 600)
    sizes = [sum(isinstance(a, CreatePod) for a in world.turn().actions) for _ in range(4)]
    assert sizes == [250, 250, 100, 0]


def test_creates_wait_for_the_watch_and_go_on_after_five_minutes() -> None:
    world = World(daemonset(), 600)
    sizes = []
    for unshown in (0, 100, 249, 250, 400):
        decision = decide.decide(replace(world.observe(), unshown=unshown))
        sizes.append(sum(isinstance(a, CreatePod) for a in decision.actions))
        assert decision.wake_after == (300.0 if unshown else None)
    assert sizes == [250, 150, 1, 0, 0]
    few = decide.decide(replace(World(daemonset(), 3).observe(), unshown=247))
    assert (sum(isinstance(a, CreatePod) for a in few.actions), few.wake_after) == (3, None)


def test_a_back_off_from_the_future_holds_nothing_up() -> None:
    world = with_pod(World(daemonset(), 1), phase="Failed")
    world.backoffs = {"node-0": FailedPodBackoff(world.now + 86400, 1.0)}
    assert [type(action) for action in world.turn().actions if isinstance(action, DeletePod)] == [
        DeletePod
    ]
    assert world.backoffs["node-0"].since == world.now


def test_the_oldest_of_several_pods_on_their_node_stays() -> None:
    world = World(daemonset(), 1)
    world.existing("b-oldest-but-waiting", "node-0")
    world.now += 10
    for name in ("z-older", "a-younger"):
        world.existing(name, "node-0")
        world.now += 10
    waiting = world.pods["b-oldest-but-waiting"]["spec"]
    del waiting["nodeName"]
    waiting["affinity"] = pod_changes.pinned_to({}, "node-0")
    ended = {a.key.name for a in world.turn().actions if isinstance(a, DeletePod)}
    assert ended == {"b-oldest-but-waiting", "a-younger"}


def test_nodes_after_the_first_burst_are_left_to_the_next_reconciliation() -> None:
    changes, _ = decide.moves(World(daemonset(), 260).observe())
    assert (len(changes.creates), len(changes.later)) == (250, 10)
    assert {create.node for create in changes.creates}.isdisjoint(changes.later)


def test_a_duplicate_names_the_pod_that_stays() -> None:
    world = World(daemonset(), 1)
    world.settle()
    (first,) = world.pods
    world.now += 10
    world.existing("second", "node-0")
    world.existing("third", "node-0")
    deletes = [action for action in world.turn().actions if isinstance(action, DeletePod)]
    assert {delete.key.name: delete.why for delete in deletes} == {
        "second": f"{first} runs there already",
        "third": f"{first} runs there already",
    }


@pytest.mark.parametrize(
    ("attempt", "name"),
    [
        ((), "node-agent-v6f9wrclkd"),
        ((0,), "node-agent-v6f9wrclkd"),
        ((1,), "node-agent-mksdlpf5j7"),
    ],
)
def test_a_pod_has_the_same_name_in_every_version_of_the_controller(
    attempt: tuple[int, ...], name: str
) -> None:
    """Two leaders of an upgrade that create the same pod then meet at its name."""
    assert pod_changes.pod_name("node-agent\nuid", *attempt) == name


@pytest.mark.parametrize(("taints", "creates"), [([], 1), ([NO_SCHEDULE], 0)])
def test_with_surge_an_ended_pod_is_replaced_where_the_node_needs_one(
    taints: list[dict[str, str]], creates: int
) -> None:
    world = World(daemonset(updateStrategy=rolling(0, 1)), 1)
    world.settle()
    (pod,) = world.pods.values()
    pod["status"]["phase"] = "Failed"
    world.nodes[0]["spec"]["taints"] = taints
    decision = world.turn()
    assert sum(isinstance(action, CreatePod) for action in decision.actions) == creates
    assert any(isinstance(action, DeletePod) for action in decision.actions)
