"""The order of writes: by kind, and by the waves of agents."""

from __future__ import annotations

import pytest

from gitops_ds.core.change import Change, Operation
from gitops_ds.core.objects import Key
from gitops_ds.core.values import replace
from gitops_ds.deploy.plan import apply_order
from tests.staging.staged_objects import KEY, manifest

WEBHOOKS = "admissionregistration.k8s.io"


@pytest.mark.parametrize(
    ("group", "kind", "rank"),
    [
        ("", "Namespace", 0),
        ("apps", "ControllerRevision", apply_order.LAST - 2),
        ("apps", "DaemonSet", apply_order.LAST - 1),
        ("example.com", "DaemonSet", apply_order.LAST),
        (WEBHOOKS, "ValidatingAdmissionPolicy", apply_order.LAST),
        ("example.com", "MutatingWebhookConfiguration", apply_order.LAST),
        (WEBHOOKS, "MutatingWebhookConfiguration", apply_order.LAST + 1),
        (WEBHOOKS, "ValidatingWebhookConfiguration", apply_order.LAST + 1),
    ],
)
def test_webhooks_are_written_after_unknown_kinds(group: str, kind: str, rank: int) -> None:
    assert apply_order.rank(Key(group, kind, "", "a")) == rank


def test_objects_that_pods_need_are_written_before_daemonsets() -> None:
    agents = apply_order.rank(KEY)
    for group, kinds in {
        "": "ServiceAccount ResourceQuota LimitRange ConfigMap Secret PersistentVolumeClaim",
        "networking.k8s.io": "NetworkPolicy",
        "node.k8s.io": "RuntimeClass",
        "rbac.authorization.k8s.io": "RoleBinding ClusterRoleBinding",
        "scheduling.k8s.io": "PriorityClass",
    }.items():
        assert all(0 < apply_order.rank(Key(group, one, "", "a")) < agents for one in kinds.split())
    assert agents < apply_order.rank(Key("apps", "Deployment", "", "a"))


def test_an_agent_is_one_wave_after_the_last_of_its_dependencies() -> None:
    needs = {"a": (), "b": ("a",), "c": ("b", "a", "gone"), "d": ("c", "b"), "e": ("gone", "e")}
    cycle = {"f": ("g",), "g": ("f",), "": ("a",)}
    manifests = [
        replace(manifest("1", agent=agent), depends_on=others)
        for agent, others in {**needs, **cycle}.items()
    ]
    waves = apply_order.waves(manifests)
    assert {name: waves[name] for name in needs} == {"a": 0, "b": 1, "c": 2, "d": 3, "e": 0}
    assert waves.keys() == {*needs, "f", "g"}


def test_deletes_are_last_in_the_opposite_order() -> None:
    config = Key("", "ConfigMap", "infra", "agent")
    later = Key("", "ConfigMap", "infra", "later")
    changes = [
        Change(Operation.DELETE, Key("", "Namespace", "", "infra"), None),
        Change(Operation.DELETE, KEY, None),
        Change(Operation.CREATE, later, manifest("1", later, "b")),
        Change(Operation.CREATE, KEY, manifest("1", agent="a")),
        Change(Operation.UPDATE, config, manifest("1", config, "a")),
    ]
    ordered = apply_order.ordered(changes, {"a": 0, "b": 1})
    assert [(one.operation.value, one.key.kind, one.key.name) for one in ordered] == [
        ("update", "ConfigMap", "agent"),
        ("create", "DaemonSet", "agent"),
        ("create", "ConfigMap", "later"),
        ("delete", "DaemonSet", "agent"),
        ("delete", "Namespace", "infra"),
    ]
