"""Upstream's unit tests of the controller (pkg/controller/daemon/daemon_controller_test.go), one
row each, with its numbers.

A row is a fleet, and how many pods one turn makes and ends there. Each is played under both update
strategies, as upstream does. Where its tests are, that are not here:

| upstream | here |
|---|---|
| NodeShouldRunDaemonPod, tolerations, IsPodUpdated | tests/apimachinery/test_node_eligibility.py,
test_rollout.py |
| AddNode, AddPod*, UpdatePod*, DeletePod*, UpdateNode, DeleteNoDaemonPod | test_cache.py: which
news wakes whom |
| DeleteFinalStateUnknown | test_cache.py: a new list wakes everybody; there are no tombstones |
| ExpectationsOnRecreate, PodCreateErrors, BeingDeletedRace | test_cache.py,
tests/controller/test_controller.py |
| UpdatesStatusError, StoreDaemonSetStatus | tests/simulator/test_faults.py; a patch of counters
can't be stale |
| PodCreateExpectationsError, consistency_test.go | no expectations: own writes are known at once
(test_cache.py) |
| NumberReadyStatus, ObservedGeneration | test_status_and_health.py |

Those of the rolling update (update_test.go) are tables of all states of nodes here
(test_replaced_pods.py), and properties of whole rollouts (test_rollout.py). Its integration tests
(test/integration/daemonset) are Kubernetes' own end-to-end tests with our
controller (tests/conformance), and in virtual time tests/simulator/test_scenarios.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.decision import CreatePod, DeletePod
from gitops_ds.daemonset import pod_changes
from tests.daemonset.world import World, daemonset, node, rolling

CURRENT = {"app": "agent", names.POD_TEMPLATE_GENERATION: "1"}
FOREIGN = {"type": "production"}
SSD = {"disk": "ssd"}

STRATEGIES = {"rolling": rolling(), "on delete": {"type": "OnDelete"}}


def fleet(nodes: list[dict[str, Any]] | int = 1, **pod_spec: Any) -> World:
    """A DaemonSet over nodes; `pod_spec` is merged into its template."""
    body = daemonset()
    body["spec"]["template"]["spec"] |= pod_spec
    return World(body, nodes)


def half(**pod_spec: Any) -> World:
    """Five plain nodes, and then five with the label."""
    return fleet([node(f"node-{i}", SSD if i >= 5 else None) for i in range(10)], **pod_spec)


def tainted(key: str, effect: str, *tolerations: dict[str, Any], **pod_spec: Any) -> World:
    taint = {"key": key, "effect": effect}
    return fleet([node("node-0", taints=[taint])], tolerations=list(tolerations), **pod_spec)


def holding(
    world: World, there: dict[str, int], labels: dict[str, str] = CURRENT, **status: Any
) -> World:
    """So many pods of the DaemonSet on each node; with foreign labels they have no owner."""
    for on, count in there.items():
        for _ in range(count):
            name = f"pod-{len(world.pods)}"
            world.existing(name, on, owned=labels is not FOREIGN, labels=labels, **status)
    return world


def pending_on(world: World, on: str) -> World:
    """A pod that waits for a node."""
    pod = holding(world, {on: 1}).pods["pod-0"]
    pod["spec"]["affinity"] = pod_changes.pinned_to({}, on)
    del pod["spec"]["nodeName"]
    pod["status"] = {"phase": "Pending"}
    return world


def on_its_way_out(world: World) -> World:
    world.body["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z"
    return world


def with_empty_selector(world: World) -> World:
    world.body["spec"]["selector"] = {}
    return world


def full(world: World) -> World:
    world.body["spec"]["template"]["spec"]["containers"][0]["resources"] = {
        "requests": {"memory": "75M", "cpu": "75m"}
    }
    for each in world.nodes:
        each["status"]["allocatable"] = {"memory": "100M", "cpu": "100m", "pods": "1"}
        holding(world, {each["metadata"]["name"]: 1}, FOREIGN)
    return world


def in_affinity(*values: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": list(values)}]}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }


def existing_on_all_kinds() -> World:
    world = half(nodeSelector=SSD)
    holding(world, {"node-1": 2, "node-7": 4, "node-9": 1}, FOREIGN)
    return holding(world, {"node-0": 1, "node-1": 3, "node-2": 4, "node-6": 13, "node-9": 1})


TOLERATED = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}

Row = tuple[str, Callable[[], World], int, int]

ROWS: list[Row] = [
    ("no node, no pod", lambda: fleet(0), 0, 0),
    ("one node gets one pod", lambda: fleet(1), 1, 0),
    ("five nodes get five pods", lambda: fleet(5), 5, 0),
    ("a node that is not ready gets its pod", lambda: fleet([node("node-0", ready=False)]), 1, 0),
    ("a node without room gets its pod, which waits there", lambda: full(fleet(1)), 1, 0),
    (
        "of two full nodes the one with the label gets a pod",
        lambda: full(fleet([node("a"), node("b", SSD)], nodeSelector=SSD)),
        1,
        0,
    ),
    (
        "a taken host port is the scheduler's matter",
        lambda: fleet(1, hostNetwork=True, containers=[{"ports": [{"hostPort": 666}]}]),
        1,
        0,
    ),
    ("a DaemonSet that is being deleted makes nothing", lambda: on_its_way_out(fleet(5)), 0, 0),
    (
        "an empty selector ends no pod",
        lambda: with_empty_selector(holding(fleet(1), {"node-0": 2})),
        0,
        0,
    ),
    (
        (
            "nodes without a pod get one, those with several keep one, and foreign pods count for "
            "nothing"
        ),
        lambda: holding(
            holding(fleet(5), {"node-1": 1, "node-2": 2, "node-3": 5}), {"node-4": 2}, FOREIGN
        ),
        2,
        5,
    ),
    ("a node selector chooses the nodes", lambda: half(nodeSelector=SSD), 5, 0),
    ("a node selector that no node meets", lambda: half(nodeSelector={"disk": "tape"}), 0, 0),
    (
        "pods on nodes that the selector left go, others stay",
        lambda: holding(
            holding(half(nodeSelector=SSD), {"node-0": 2, "node-1": 1}, FOREIGN),
            {"node-1": 3, "node-4": 1},
        ),
        5,
        4,
    ),
    ("missing ones come, surplus and misplaced ones go", existing_on_all_kinds, 3, 20),
    ("a node name in the template chooses that node", lambda: half(nodeName="node-0"), 1, 0),
    ("a node name that is not a node's", lambda: half(nodeName="node-10"), 0, 0),
    ("node name and selector that agree", lambda: half(nodeName="node-6", nodeSelector=SSD), 1, 0),
    ("node name and selector that do not", lambda: half(nodeName="node-0", nodeSelector=SSD), 0, 0),
    ("required node affinity chooses the nodes", lambda: half(affinity=in_affinity("ssd")), 5, 0),
    ("a node with a well pod is left alone", lambda: holding(fleet(1), {"node-0": 1}), 0, 0),
    (
        "a failed pod goes, and its replacement waits for a later turn",
        lambda: holding(fleet(1), {"node-0": 1}, phase="Failed"),
        0,
        1,
    ),
    (
        "one failed and three well pods: one stays",
        lambda: holding(holding(fleet(1), {"node-0": 1}, phase="Failed"), {"node-0": 3}),
        0,
        3,
    ),
    (
        "a succeeded pod goes, and returns later",
        lambda: holding(fleet(1), {"node-0": 1}, phase="Succeeded"),
        0,
        1,
    ),
    (
        "NoSchedule does not take a pod away",
        lambda: holding(tainted("dedicated", "NoSchedule"), {"node-0": 1}),
        0,
        0,
    ),
    ("NoExecute does", lambda: holding(tainted("dedicated", "NoExecute"), {"node-0": 1}), 0, 1),
    ("an untolerated taint keeps a pod away", lambda: tainted("dedicated", "NoSchedule"), 0, 0),
    ("a tolerated one does not", lambda: tainted("dedicated", "NoSchedule", TOLERATED), 1, 0),
    ("PreferNoSchedule is only a wish", lambda: tainted("dedicated", "PreferNoSchedule"), 1, 0),
    (
        "not-ready NoExecute is tolerated unasked",
        lambda: tainted("node.kubernetes.io/not-ready", "NoExecute"),
        1,
        0,
    ),
    (
        "unreachable NoExecute is tolerated unasked",
        lambda: tainted("node.kubernetes.io/unreachable", "NoExecute"),
        1,
        0,
    ),
    (
        "not-ready NoSchedule is not",
        lambda: tainted("node.kubernetes.io/not-ready", "NoSchedule"),
        0,
        0,
    ),
    (
        "disk pressure is tolerated unasked",
        lambda: tainted("node.kubernetes.io/disk-pressure", "NoSchedule"),
        1,
        0,
    ),
    (
        "memory pressure is tolerated unasked",
        lambda: tainted("node.kubernetes.io/memory-pressure", "NoSchedule"),
        1,
        0,
    ),
    (
        "pid pressure is tolerated unasked",
        lambda: tainted("node.kubernetes.io/pid-pressure", "NoSchedule"),
        1,
        0,
    ),
    (
        "a cordoned node gets its pod",
        lambda: tainted("node.kubernetes.io/unschedulable", "NoSchedule"),
        1,
        0,
    ),
    (
        "a node without network waits for it",
        lambda: tainted("node.kubernetes.io/network-unavailable", "NoSchedule"),
        0,
        0,
    ),
    (
        "a pod of the host's network does not wait",
        lambda: tainted("node.kubernetes.io/network-unavailable", "NoSchedule", hostNetwork=True),
        1,
        0,
    ),
    ("a pod that waits for a node that is gone goes", lambda: pending_on(fleet(0), "node-9"), 0, 1),
    (
        "a pod that ran on a node that is gone is the garbage collector's",
        lambda: holding(fleet(0), {"node-9": 1}),
        0,
        0,
    ),
]


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize(
    ("world", "creates", "deletes"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_one_turn_as_upstream(
    world: Callable[[], World], creates: int, deletes: int, strategy: dict[str, Any]
) -> None:
    there = world()
    there.body["spec"]["updateStrategy"] = strategy
    assert counted(there) == (creates, deletes)


def counted(world: World) -> tuple[int, int]:
    """How many pods a turn makes, and how many it ends."""
    actions = world.turn().actions
    return sum(isinstance(a, CreatePod) for a in actions), sum(
        isinstance(a, DeletePod) for a in actions
    )


OLD = {"app": "agent", names.REVISION_HASH: "old"}


def surging(nodes: int, **spec: Any) -> World:
    """A fleet with surge 1 whose revision is there, and no pods."""
    world = World(daemonset(updateStrategy=rolling(0, 1), **spec), nodes)
    world.turn(at_most=1)
    world.backoffs.clear()
    return world


def facing(world: World, on: str, *, old_ready: bool, new_ready_for: float | None) -> World:
    """An old pod and a new one on a node; the new one has been ready for so long, or is not."""
    (revision,) = world.revisions.values()
    new = {"app": "agent", names.REVISION_HASH: revision["metadata"]["labels"][names.REVISION_HASH]}
    old = world.existing(f"old-{on}", on, labels=OLD)
    world.now -= 100
    world.start(old, ready=old_ready)
    world.now += 100
    made = world.existing(f"new-{on}", on, labels=new)
    if new_ready_for is not None:
        world.now -= new_ready_for
        world.start(made)
        world.now += new_ready_for
    return world


def existing_with_surge() -> World:
    world = surging(5)
    (revision,) = world.revisions.values()
    new = {"app": "agent", names.REVISION_HASH: revision["metadata"]["labels"][names.REVISION_HASH]}
    holding(world, {"node-1": 1, "node-2": 2, "node-3": 5}, new)
    return holding(world, {"node-4": 2}, FOREIGN)


def old_one_ending() -> World:
    world = surging(2)
    for on in ("node-0", "node-1"):
        world.start(world.existing(f"old-{on}", on, labels=OLD))
    world.pods["old-node-0"]["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z"
    return world


SURGE: list[Row] = [
    ("surplus of one revision goes as without surge", existing_with_surge, 2, 5),
    (
        "an available old pod stays while the new one is not ready",
        lambda: facing(surging(4), "node-1", old_ready=True, new_ready_for=None),
        3,
        0,
    ),
    (
        "an old pod whose place is free again gets its successor at once, regardless of the limit",
        old_one_ending,
        1,
        0,
    ),
    (
        "an old pod that is not ready goes, for its successor is there",
        lambda: facing(surging(4), "node-1", old_ready=False, new_ready_for=None),
        3,
        1,
    ),
    (
        "a new pod that is ready for ten of fifteen seconds does not yet replace the old one",
        lambda: facing(surging(4, minReadySeconds=15), "node-1", old_ready=True, new_ready_for=10),
        3,
        0,
    ),
    (
        "one that is ready for twenty does",
        lambda: facing(surging(4, minReadySeconds=15), "node-1", old_ready=True, new_ready_for=20),
        3,
        1,
    ),
    (
        "and at exactly fifteen as well",
        lambda: facing(surging(4, minReadySeconds=15), "node-1", old_ready=True, new_ready_for=15),
        3,
        1,
    ),
]


@pytest.mark.parametrize(
    ("world", "creates", "deletes"), [row[1:] for row in SURGE], ids=[row[0] for row in SURGE]
)
def test_one_turn_with_surge_as_upstream(
    world: Callable[[], World], creates: int, deletes: int
) -> None:
    assert counted(world()) == (creates, deletes)
