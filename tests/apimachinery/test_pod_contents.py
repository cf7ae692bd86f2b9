"""The content of pods: what admission changes is not compared, and anything else is."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gitops_ds.core.daemonset import PodContent
from gitops_ds.kube.apimachinery import defaults, node_eligibility, pod_contents, pods

PROBE = {"httpGet": {"path": "/ready", "port": 80}, "periodSeconds": 5}
TEMPLATE: dict[str, Any] = {
    "spec": {
        "hostNetwork": True,
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
                    ]
                }
            }
        },
        "initContainers": [{"name": "init", "image": "init:1", "restartPolicy": "Always"}],
        "containers": [
            {
                "name": "agent",
                "image": "registry.example.com/cni:1",
                "args": ["--node"],
                "readinessProbe": PROBE,
                "ports": [{"containerPort": 80}],
                "resources": {"requests": {"cpu": "0.10"}},
            }
        ],
    }
}
OWNED = {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}
WANTED = pod_contents.of_template(TEMPLATE)


def spec(**changes: Any) -> dict[str, Any]:
    """The spec of the pod that the DaemonSet controller makes, as the API server stores it, with
    changes of its container or of itself.
    """
    made = copy.deepcopy(defaults.defaulted_template(TEMPLATE)["spec"])
    made["tolerations"] = node_eligibility.daemon_tolerations(made)
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    made["affinity"] = {"nodeAffinity": needed}
    made["containers"][0]["ports"][0]["hostPort"] = 80
    for name, value in changes.items():
        (made if name in made else made["containers"][0])[name] = value
    return made


def content_of(metadata: dict[str, Any], spec: dict[str, Any]) -> PodContent | None:
    return pods.pod_of({"metadata": metadata, "spec": spec}).content


def content(**changes: Any) -> PodContent:
    read = content_of(OWNED, spec(**changes))
    assert read is not None
    return read


def test_a_pod_of_the_template_has_its_content() -> None:
    assert content() == WANTED
    assert pod_contents.difference(WANTED, content()) == ""


def test_the_pod_of_another_owner_has_none() -> None:
    other = {"ownerReferences": [{"kind": "ReplicaSet", "controller": True}]}
    for metadata in ({}, other, {"ownerReferences": [{"kind": "DaemonSet"}]}):
        assert content_of(metadata, spec()) is None


@pytest.mark.parametrize(
    ("generation", "deleted", "is_changed"),
    [(None, None, False), (1, None, False), (2, None, True), (2, "x", False), (3, "x", True)],
)
def test_a_pod_states_whether_its_spec_was_changed(
    generation: int | None, deleted: str | None, is_changed: bool
) -> None:
    metadata = {"generation": generation, "deletionTimestamp": deleted}
    assert pods.pod_of({"metadata": metadata, "spec": spec()}).changed is is_changed


@pytest.mark.parametrize("image", ["cni:1@sha256:0123", "cni@sha256:0123"])
def test_another_digest_is_a_difference_of_a_changed_pod(image: str) -> None:
    pod = content(image=f"registry.example.com/{image}")
    assert "has the image" in pod_contents.difference(WANTED, pod, exact=True)
    assert pod_contents.difference(pod, pod, exact=True) == ""
    assert pod_contents.difference(WANTED, content(), exact=True) == ""


SIDECAR = {"name": "injected", "image": "sidecar:1"}


@pytest.mark.parametrize(
    "change",
    [
        {"containers": [*spec()["containers"], SIDECAR]},
        {"initContainers": [*spec()["initContainers"], SIDECAR]},
        {"resources": {"requests": {"cpu": "1"}}},
        {"imagePullPolicy": "Always"},
        {"volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets"}]},
        {"env": [{"name": "HTTP_PROXY", "value": "x"}]},
        {"image": "registry.example.com/cni:1@sha256:0123"},
        {"image": "registry.example.com/cni@sha256:0123"},
        {"readinessProbe": {**spec()["containers"][0]["readinessProbe"], "failureThreshold": 9}},
        {"nodeName": "n1"},
    ],
    ids=",".join,
)
def test_what_admission_changes_is_not_a_difference(change: dict[str, Any]) -> None:
    assert pod_contents.difference(WANTED, content(**change)) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image": "pause:3"}, "has the image pause:3, not registry.example.com/cni:1"),
        ({"image": "cni:1"}, "the image"),
        ({"image": "registry.example.com/cni:2"}, "the image"),
        ({"image": "registry.example.com/cni:2@sha256:0123"}, "the image"),
        ({"image": "evil.example/registry.example.com/cni:1"}, "the image"),
        ({"image": "registry.example.com/cni"}, "the image"),
        ({"command": ["sleep"]}, "another command"),
        ({"args": []}, "another command"),
        ({"workingDir": "/"}, "another command"),
        ({"readinessProbe": None}, "probes"),
        ({"readinessProbe": {"exec": {"command": ["true"]}}}, "probes"),
        ({"startupProbe": PROBE}, "probes"),
        ({"name": "other"}, "no container agent"),
        ({"initContainers": []}, "no container init"),
        ({"initContainers": [{"name": "init", "image": "init:1"}]}, "container init"),
    ],
)
def test_a_pod_that_runs_something_else_is_another_one(change: dict[str, Any], words: str) -> None:
    assert words in pod_contents.difference(WANTED, content(**change))


def test_a_container_does_not_replace_an_init_container() -> None:
    moved = content(
        containers=[*spec()["containers"], *spec()["initContainers"]], initContainers=[]
    )
    assert "container init" in pod_contents.difference(WANTED, moved)


@pytest.mark.parametrize(
    ("image", "is_mirrored"),
    [
        ("mirror.example.com/registry.example.com/cni:1", True),
        ("mirror.example.com/cni:1", True),
        ("mirror.example.com/cni:1@sha256:0123", True),
        ("mirror.example.com/cni:2", False),
        ("mirror.example.com.evil.example/cni:1", False),
        ("other.example.com/cni:1", False),
    ],
)
def test_only_a_named_mirror_replaces_a_registry(image: str, is_mirrored: bool) -> None:
    wanted = "registry.example.com/cni:1"
    assert pod_contents.is_image(image, wanted, ["mirror.example.com/"]) is is_mirrored
    assert not pod_contents.is_image(image, wanted)


@pytest.mark.parametrize(
    "change",
    [
        {"resources": {"requests": {"cpu": "99"}}},
        {"ports": [{"containerPort": 80}, {"containerPort": 81}]},
        {"nodeSelector": {"pool": "b"}},
        {"tolerations": []},
        {"affinity": {"podAntiAffinity": {"required": []}}, "schedulerName": "other"},
    ],
    ids=",".join,
)
def test_a_pod_that_needs_something_else_is_seen_until_it_has_a_node(
    change: dict[str, Any],
) -> None:
    assert content(**change).room != WANTED.room
    bound = {**spec(**change), "nodeName": "n1"}
    read = content_of(OWNED, bound)
    assert read is not None
    assert read.room == ""
