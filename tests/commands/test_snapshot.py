"""A published cluster snapshot holds what checks use, no secrets, and on request no names of
nodes.
"""

from __future__ import annotations

import json
from typing import Any

from gitops_ds.cli.snapshot import cluster_snapshot
from gitops_ds.core.objects import Digest, key_of
from gitops_ds.core.sources.bundle import Bundle, ClusterFacts, Manifest, Origin, Pointer
from gitops_ds.deploy.plan import base_diff
from tests.plan.world import daemonset

UID = "6b1ff3b1-1111-4c5e-9a52-9a0c2f1f8a01"


def node(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": UID,
            "labels": {"kubernetes.io/hostname": name, "pool": "a"},
            "annotations": {"node.example.com/rack": "r1"},
            "managedFields": [{"manager": "kubelet"}],
        },
        "spec": {
            "podCIDR": "10.0.0.0/24",
            "taints": [{"key": "gpu", "effect": "NoSchedule"}],
            "providerID": "cloud://7",
        },
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}],
            "allocatable": {"cpu": "4", "pods": "110"},
            "conditions": [
                {"type": "Ready", "status": "False", "message": "disk"},
                {"type": "DiskPressure", "status": "True"},
            ],
            "images": [{"names": ["registry.example.com/agent"]}],
        },
    }


def agent(password: str) -> dict[str, Any]:
    body = daemonset(namespace="logging")
    body["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "DB_PASSWORD", "value": password}
    ]
    body["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "db-master"}
    return body


def test_a_published_node_has_only_the_fields_that_checks_use() -> None:
    (published,) = cluster_snapshot.published([node("db-master")])["items"]
    assert published == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "db-master",
            "labels": {"kubernetes.io/hostname": "db-master", "pool": "a"},
        },
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "4", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "False"}],
        },
    }
    live = cluster_snapshot.assemble([published])
    assert live.nodes is not None
    assert (
        live.nodes[0].ready,
        live.nodes[0].taints[0].key,
        live.allocatable["db-master"]["cpu"],
    ) == (False, "gpu", 4_000)


def test_values_with_a_secrets_name_are_hidden() -> None:
    assert "hunter2" not in json.dumps(cluster_snapshot.published([agent("hunter2")]))


def test_a_hidden_value_is_not_drift() -> None:
    body = agent("hunter2")
    base = Manifest(key_of(body), body, Digest("digest"), Origin(Pointer("agent.yaml", 0, ())))
    bundle = Bundle(commit=None, cluster=ClusterFacts(), manifests={base.key: base})
    live = cluster_snapshot.assemble(cluster_snapshot.published([body])["items"])
    assert base_diff.drift(bundle, live) == {}
    other = agent("hunter2")
    other["spec"]["template"]["spec"]["containers"][0]["image"] = (
        "registry.example.com/agent:by-hand"
    )
    elsewhere = cluster_snapshot.assemble(cluster_snapshot.published([other])["items"])
    assert [one.old for one in base_diff.drift(bundle, elsewhere)[base.key]] == [
        "registry.example.com/agent:by-hand"
    ]


def test_hashed_names_are_equal_everywhere_and_depend_on_the_uid() -> None:
    document = cluster_snapshot.published([node("db-master"), agent("x")], hash_names=True)
    assert "db-master" not in json.dumps(document)
    assert UID not in json.dumps(document)
    there, fleet = document["items"][1], document["items"][0]
    name = there["metadata"]["name"]
    assert there["metadata"]["labels"]["kubernetes.io/hostname"] == name
    assert fleet["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/hostname"] == name
    other = node("db-master")
    other["metadata"]["uid"] = "another"
    assert (
        cluster_snapshot.published([other], hash_names=True)["items"][0]["metadata"]["name"] != name
    )


def test_the_same_cluster_gives_the_same_bytes_in_any_order_of_the_list() -> None:
    bodies = [node("b"), agent("x"), node("a")]
    assert cluster_snapshot.published(bodies) == cluster_snapshot.published(bodies[::-1])
