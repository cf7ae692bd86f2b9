"""What a pod refers to, and what permits its ServiceAccount something."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.objects import Key
from gitops_ds.kube.apimachinery import pod_references

RBAC = "rbac.authorization.k8s.io"
ACCOUNT = Key("", "ServiceAccount", "infra", "agent")


def volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "a", **source}]}


def core(kind: str, name: str = "x") -> Key:
    return Key("", kind, "infra", name)


CASES: dict[str, tuple[dict[str, Any], Key]] = {
    "account": ({"serviceAccountName": "x"}, core("ServiceAccount")),
    "old name of the account": ({"serviceAccount": "x"}, core("ServiceAccount")),
    "no account": ({}, core("ServiceAccount", "default")),
    "pull secret": ({"imagePullSecrets": [{"name": "x"}]}, core("Secret")),
    "config map": (volume(configMap={"name": "x", "optional": True}), core("ConfigMap")),
    "secret": (volume(secret={"secretName": "x"}), core("Secret")),
    "azure file": (volume(azureFile={"secretName": "x"}), core("Secret")),
    "csi": (volume(csi={"nodePublishSecretRef": {"name": "x"}}), core("Secret")),
    "rbd": (volume(rbd={"secretRef": {"name": "x"}}), core("Secret")),
    "projected config map": (
        volume(projected={"sources": [{"configMap": {"name": "x"}}]}),
        core("ConfigMap"),
    ),
    "projected secret": (
        volume(projected={"sources": [{"secret": {"name": "x"}}]}),
        core("Secret"),
    ),
    "claim": (
        volume(persistentVolumeClaim={"claimName": "x"}),
        core("PersistentVolumeClaim"),
    ),
    "environment": (
        {"initContainers": [{"envFrom": [{"secretRef": {"name": "x"}}]}]},
        core("Secret"),
    ),
    "variable": (
        {"containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "x", "key": "k"}}}]}]},
        core("Secret"),
    ),
    "priority": (
        {"priorityClassName": "x"},
        Key("scheduling.k8s.io", "PriorityClass", "", "x"),
    ),
    "runtime": ({"runtimeClassName": "x"}, Key("node.k8s.io", "RuntimeClass", "", "x")),
    "resource claim": (
        {"resourceClaims": [{"name": "a", "resourceClaimTemplateName": "x"}]},
        Key("resource.k8s.io", "ResourceClaimTemplate", "infra", "x"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_pod_refers_to(case: str) -> None:
    spec, key = CASES[case]
    account = core("ServiceAccount", "default")
    assert pod_references.of("infra", spec) - {account} == {key} - {account}
    assert key in pod_references.of("infra", spec)


SUBJECTS: dict[str, tuple[dict[str, str], bool]] = {
    "the account": ({"kind": "ServiceAccount", "name": "agent", "namespace": "infra"}, True),
    "without a namespace": ({"kind": "ServiceAccount", "name": "agent"}, True),
    "of another namespace": (
        {"kind": "ServiceAccount", "name": "agent", "namespace": "other"},
        False,
    ),
    "another account": ({"kind": "ServiceAccount", "name": "x", "namespace": "infra"}, False),
    "as a user": ({"kind": "User", "name": "system:serviceaccount:infra:agent"}, True),
    "the group of its namespace": (
        {"kind": "Group", "name": "system:serviceaccounts:infra"},
        True,
    ),
    "the group of another one": ({"kind": "Group", "name": "system:serviceaccounts:x"}, False),
}


@pytest.mark.parametrize("case", SUBJECTS)
@pytest.mark.parametrize("role", ["Role", "ClusterRole"])
def test_a_binding_of_the_account_belongs_to_it_with_its_role(case: str, role: str) -> None:
    subject, belongs = SUBJECTS[case]
    binding = Key(RBAC, "RoleBinding", "infra", "b")
    body = {"roleRef": {"kind": role, "name": "r"}, "subjects": [subject]}
    named = Key(RBAC, role, "infra" if role == "Role" else "", "r")
    found = pod_references.of_account(ACCOUNT, {binding: body})
    assert found == ({binding, named} if belongs else set())


def test_the_secrets_of_the_account_belong_to_it() -> None:
    body = {"secrets": [{"name": "a"}], "imagePullSecrets": [{"name": "b"}]}
    found = pod_references.of_account(ACCOUNT, {ACCOUNT: body})
    assert found == {core("Secret", "a"), core("Secret", "b")}
