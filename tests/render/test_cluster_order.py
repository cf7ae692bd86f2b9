"""The order of the clusters: waves, and the place of each mistake."""

from __future__ import annotations

import pytest

from gitops_ds.checks.schema import repository_files
from gitops_ds.core.rollouts.cluster_report import ClusterBehind, ClusterOrder
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.source import render
from tests.render import snapshots

AGENT = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a, namespace: agents}\n"


def files(**clusters: str) -> dict[str, str]:
    """A repository with these files of clusters, `-` of a name written as `_`."""
    return {
        "gitops-ds.yaml": "version: v1\nname: fleet\n",
        "environments/production.yaml": "values: {}\n",
        "agents/a/daemonset.yaml": AGENT,
        **{
            f"clusters/{name.replace('_', '-')}.yaml": f"environment: production\n{text}"
            for name, text in clusters.items()
        },
    }


def bundle(cluster: str, **clusters: str) -> Bundle:
    return render.render(snapshots.of_texts(files(**clusters)), cluster=cluster)


def findings(cluster: str, **clusters: str) -> list[str]:
    reported = bundle(cluster, **clusters).findings
    return [f"{one.rule} {one.place} {one.message}" for one in reported]


def test_a_repository_without_an_order_has_no_waves() -> None:
    assert bundle("one", one="", two="").cluster.order == ClusterOrder()
    assert not bundle("one", one="").cluster.order.exists


def test_waves_follow_from_the_clusters_before() -> None:
    clusters = {
        "staging": "",
        "eu_1": "after: [staging]\n",
        "eu_2": "after: {clusters: [eu-1, staging], soak: 1h30m, within: 2d}\n",
        "us_1": "after: [staging]\n",
        "lab": "",
    }
    orders = {name: bundle(name.replace("_", "-"), **clusters).cluster.order for name in clusters}
    assert {name: order.wave for name, order in orders.items()} == {
        "staging": 1,
        "eu_1": 2,
        "eu_2": 3,
        "us_1": 2,
        "lab": 1,
    }
    assert {order.waves for order in orders.values()} == {3}
    assert orders["eu_2"].after == ("eu-1", "staging")
    assert (orders["eu_2"].soak, orders["eu_2"].within) == (5400.0, 172_800.0)
    assert (orders["eu_1"].soak, orders["eu_1"].within) == (0.0, 86_400.0)
    assert orders["staging"].behind == (
        ClusterBehind("eu-1"),
        ClusterBehind("eu-2", 5400.0),
        ClusterBehind("us-1"),
    )
    assert findings("eu-2", **clusters) == []


def test_an_unknown_cluster_is_found_at_its_place_with_the_nearest_name() -> None:
    clusters = {"staging": "", "eu_1": "after: [staging, stagign]\n"}
    assert findings("eu-1", **clusters) == [
        "DS802 clusters/eu-1.yaml:2:18 no cluster stagign in clusters/; did you mean staging?"
    ]
    assert findings("staging", **clusters) == []
    clusters["eu_1"] = "after:\n  soak: 1h\n  clusters: [sta]\n"
    assert findings("eu-1", **clusters)[0].startswith("DS802 clusters/eu-1.yaml:4:14 ")


@pytest.mark.parametrize(
    ("clusters", "cluster", "expected"),
    [
        (
            {"one": "after: [one]\n"},
            "one",
            "DS808 clusters/one.yaml:2:9 cluster one waits for itself",
        ),
        (
            {"one": "after: [two]\n", "two": "after: [three]\n", "three": "after: [one]\n"},
            "two",
            (
                "DS808 clusters/two.yaml:2:9 the clusters wait for each other: "
                "two after three after one after two"
            ),
        ),
    ],
)
def test_a_cycle_is_found_in_each_of_its_clusters(
    clusters: dict[str, str], cluster: str, expected: str
) -> None:
    assert findings(cluster, **clusters) == [expected]
    assert bundle(cluster, **clusters).cluster.order.wave == 0


def test_a_cluster_after_a_cycle_has_no_mistake_of_its_own() -> None:
    clusters = {"one": "after: [two]\n", "two": "after: [one]\n", "last": "after: [one]\n"}
    assert findings("last", **clusters) == []
    assert bundle("last", **clusters).cluster.order.wave == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "after: {cluster: [staging]}\n",
            'unknown key "cluster" in after: did you mean "clusters"?',
        ),
        ("after: {clusters: [staging], soak: 1 hour}\n", "after.soak is"),
        ("after: []\n", "after"),
        ("after: staging\n", "after must be"),
        ("after: {soak: 1h}\n", '"clusters" is missing in after'),
    ],
)
def test_the_schema_is_closed(text: str, message: str) -> None:
    snapshot = snapshots.of_texts(files(staging="", eu_1=text))
    (reported, *_) = list(repository_files.check_repository(snapshot))
    assert message in reported.message
    assert reported.place is not None
    assert reported.place.line == 2
