"""Nodes that a cluster's file declares, and nodes in groups: what is known of them, and how they
are named.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core.live import Census, Live, Node, Taint
from gitops_ds.core.sources.bundle import ClusterFacts, Pool, Requirement
from gitops_ds.kube.apimachinery import node_eligibility, node_pools
from gitops_ds.kube.apimachinery.node_eligibility import Placement

GENERAL = Pool(
    "general", (Requirement("pool", "In", ("general",)),), 3, allocatable=(("cpu", 4000),)
)
SPOT = Pool(
    "spot",
    (Requirement("pool", "In", ("batch", "spot")), Requirement("gpu", "Exists")),
    4,
    taints=(Taint("spot", "NoSchedule"),),
)


def census(*some: Pool) -> Census:
    pools = node_pools.declared(some)
    assert pools is not None
    return pools


def test_declared_nodes_meet_the_conditions_of_their_pool_each_value_in_turn() -> None:
    made = census(GENERAL, SPOT)
    assert made.declared
    assert [node.name for node in made.nodes] == [
        "general-1",
        "general-2",
        "general-3",
        "spot-1",
        "spot-2",
        "spot-3",
        "spot-4",
    ]
    assert [node.labels["pool"] for node in made.nodes[3:]] == ["batch", "spot", "batch", "spot"]
    assert all(
        node.labels["gpu"] == "true" and node.taints == (Taint("spot", "NoSchedule"),)
        for node in made.nodes[3:]
    )
    assert all(node.ready and node.labels["kubernetes.io/os"] == "linux" for node in made.nodes)
    assert made.room == {f"general-{number}": {"cpu": 4000} for number in (1, 2, 3)}
    assert all(
        node_pools.pool_of(node, (GENERAL, SPOT)) == made.pools[node.name] for node in made.nodes
    )


def test_labels_that_no_pool_declares_are_unknown() -> None:
    made = census(Pool("a", (), 1, labels=(("zone", "x"),)), Pool("b", (), 1))
    assert made.keys == {"zone", "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch"}


def test_a_pool_of_unknown_size_leaves_all_nodes_unknown() -> None:
    unsaid = Pool("x", ())
    assert node_pools.declared((GENERAL, unsaid)) is None
    assert node_pools.silent((GENERAL, unsaid)) == ("x",)
    assert node_pools.declared((Pool("none", (), 0),)) is None
    assert node_pools.declared((Pool("huge", (), 10**9),)) is None


def test_nodes_of_a_cluster_take_precedence_over_declared_ones() -> None:
    node = Node("real", {"pool": "general"})
    seen = node_pools.census(ClusterFacts(pools=(GENERAL,)), Live(nodes=(node,)))
    assert seen is not None
    assert (seen.nodes, seen.pools, seen.declared) == ((node,), {"real": "general"}, False)
    assert node_pools.census(ClusterFacts(pools=(GENERAL,)), Live(nodes=())) == census(GENERAL)
    assert node_pools.census(ClusterFacts(), Live()) is None


def test_without_pools_of_its_own_a_providers_label_names_the_pool() -> None:
    assert node_pools.pool_of(Node("a", {"eks.amazonaws.com/nodegroup": "blue"}), ()) == "blue"
    assert node_pools.pool_of(Node("a", {}), (GENERAL,)) == ""


def test_many_nodes_are_named_in_a_few_words() -> None:
    names = [f"node-{letter}" for letter in "abcdef"]
    seen = Census((), dict.fromkeys(names, "small"))
    assert node_pools.summary(names, seen) == "6 nodes of pool small: node-a, node-b and 4 more"
    assert node_pools.summary(names[:3], seen) == "3 nodes of pool small: node-a, node-b, node-c"
    assert node_pools.summary(names[:1], Census(())) == "1 node: node-a"
    mixed = Census((), {"node-a": "small", "node-b": "large", "node-c": "large"})
    assert (
        node_pools.summary(names[:4], mixed)
        == "4 nodes (2 of pool large, 1 of no pool, 1 of pool small): node-a, node-b and 2 more"
    )
    assert (
        node_pools.summary(names, Census((), dict.fromkeys(names, "small"), declared=True))
        == "6 nodes of pool small"
    )


values = st.sampled_from(["a", "b"])
labels = st.dictionaries(st.sampled_from(["x", "y", "z"]), values)
taints = st.lists(
    st.builds(Taint, st.sampled_from(["t", "u"]), st.sampled_from(["NoSchedule", "NoExecute"])),
    max_size=2,
).map(tuple)
fleets = st.lists(st.tuples(labels, taints), max_size=8)
templates = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "nodeSelector": labels,
                "tolerations": st.just([{"key": "t", "operator": "Exists"}]),
                "affinity": st.sampled_from(
                    [("x", "In", ["a"]), ("y", "NotIn", ["b"]), ("z", "Exists", [])]
                ).map(
                    lambda one: {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [
                                    {
                                        "matchExpressions": [
                                            dict(
                                                zip(("key", "operator", "values"), one, strict=True)
                                            )
                                        ]
                                    },
                                    {
                                        "matchFields": [
                                            {
                                                "key": "metadata.name",
                                                "operator": "In",
                                                "values": ["node-1"],
                                            }
                                        ]
                                    },
                                ]
                            }
                        }
                    }
                ),
            },
        )
    }
)


@given(fleets, st.lists(templates, min_size=1, max_size=3))
def test_nodes_in_groups_are_placed_as_one_by_one(
    fleet: list[tuple[dict[str, str], tuple[Taint, ...]]], some: list[dict[str, object]]
) -> None:
    nodes = [Node(f"node-{index}", labels, taints) for index, (labels, taints) in enumerate(fleet)]
    placers = [node_eligibility.read(template) for template in some]
    groups = node_pools.equal_groups(nodes, node_pools.keys_of(placers))
    for placer in placers:
        placed = {
            node.name: placement
            for placement, items in node_pools.placed(placer, groups).items()
            for node in items
        }
        assert placed == {node.name: placer.place(node) for node in nodes}
        assert set(placed.values()) <= set(Placement)
