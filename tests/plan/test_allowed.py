"""What a repository may name: lists of the settings, and what the service itself lives from."""

from __future__ import annotations

import pytest

from gitops_ds.core import names
from gitops_ds.core.objects import Digest, Key
from gitops_ds.core.sources.bundle import Manifest, Origin, Pointer
from gitops_ds.ownership import permissions
from gitops_ds.ownership.own_objects import OwnAccount
from gitops_ds.ownership.permissions import AllowList
from gitops_ds.service.settings.service import ClusterSettings, Service
from tests.plan.world import daemonset

HOME = AllowList(own=OwnAccount(frozenset({"gitops-ds"})))
ITSELF = AllowList(own=OwnAccount(frozenset({"gitops-ds"})), itself=True)
RBAC = "rbac.authorization.k8s.io"
REQUIRED = {names.REQUIRED_FOR_WORK: "true"}
AGENT = Key("apps", "DaemonSet", "logging", "agent")


def test_without_settings_everything_may_be_named_but_what_the_service_lives_from() -> None:
    fine = (
        AGENT,
        Key("apps", "DaemonSet", "kube-system", "kube-proxy"),
        Key("", "Namespace", "", "kube-system"),
        Key("", "ConfigMap", "logging", "gitops-ds-state"),
        Key(RBAC, "ClusterRole", "", "gitops-dsx"),
        Key("", "PersistentVolume", "", "gitops-ds"),
    )
    assert [key for key in fine if permissions.not_allowed(key, HOME)] == []
    others = (
        Key("", "Secret", "gitops-ds", "gitops-ds-1234"),
        Key("", "ConfigMap", "gitops-ds", "settings"),
    )
    assert [key for key in others if permissions.not_allowed(key, ITSELF)] == []
    own = (
        Key("", "Namespace", "", "gitops-ds"),
        Key("", "Secret", "gitops-ds", "credentials"),
        Key("apps", "Deployment", "gitops-ds", "gitops-ds"),
        Key("apps", "DaemonSet", "gitops-ds", "reader-of-credentials"),
        Key(RBAC, "RoleBinding", "gitops-ds", "any"),
        Key(RBAC, "ClusterRole", "", "gitops-ds"),
        Key(RBAC, "ClusterRoleBinding", "", "gitops-ds-pace"),
        Key(RBAC, "ClusterRoleBinding", "", "gitops-ds:more"),
    )
    assert [key for key in own if not permissions.not_allowed(key, HOME)] == []
    assert [key for key in own if permissions.not_allowed(key, ITSELF)] == []
    # a person at a desk has their own rights
    assert [key for key in own if permissions.not_allowed(key, AllowList())] == []


@pytest.mark.parametrize("settings", [HOME, ITSELF])
@pytest.mark.parametrize(
    "key",
    [
        Key("", "ConfigMap", "gitops-ds", "gitops-ds-1234"),
        Key("coordination.k8s.io", "Lease", "gitops-ds", "any"),
    ],
)
def test_memory_and_leases_are_never_named(settings: AllowList, key: Key) -> None:
    refusal = permissions.not_allowed(key, settings)
    assert refusal is not None
    assert (refusal.reason, refusal.key) == ("not-allowed", key)


@pytest.mark.parametrize(
    ("settings", "key", "word"),
    [
        (AllowList(frozenset(["logging"])), AGENT, ""),
        (AllowList(frozenset(["monitoring"])), AGENT, "apply.allow.namespaces has no logging"),
        (AllowList(frozenset()), AGENT, "apply.allow.namespaces has no logging"),
        (AllowList(frozenset()), Key("", "Namespace", "", "logging"), ""),
        (AllowList(cluster_scoped=False), AGENT, ""),
        (
            AllowList(cluster_scoped=False),
            Key("", "Namespace", "", "logging"),
            "apply.allow.clusterScoped is false",
        ),
        (AllowList(kinds=frozenset(["DaemonSet"])), AGENT, ""),
        (AllowList(kinds=frozenset(["apps/DaemonSet"])), AGENT, ""),
        (
            AllowList(kinds=frozenset(["core/DaemonSet"])),
            AGENT,
            "apply.allow.kinds has no apps/DaemonSet",
        ),
        (
            AllowList(kinds=frozenset(["DaemonSet"])),
            Key("", "Secret", "a", "b"),
            "apply.allow.kinds has no core/Secret",
        ),
        (AllowList(kinds=frozenset(["core/Secret"])), Key("", "Secret", "a", "b"), ""),
    ],
)
def test_only_objects_of_the_lists_are_allowed(settings: AllowList, key: Key, word: str) -> None:
    refusal = permissions.not_allowed(key, settings)
    assert (refusal.message if refusal else "") == (f"{key} is not allowed: {word}" if word else "")


def test_the_namespace_of_the_pod_and_that_of_the_state_are_both_out_of_reach() -> None:
    service = Service(cluster=ClusterSettings(namespace="gitops-state"), own_namespace="gitops-ds")
    for namespace in ("gitops-state", "gitops-ds"):
        for key in (
            Key("apps", "DaemonSet", namespace, "reader-of-credentials"),
            Key("", "ConfigMap", namespace, "settings"),
        ):
            assert permissions.not_allowed(key, service.apply_options.allowed) is not None
    assert Service().apply_options.allowed.own.homes == {"gitops-ds"}


def test_an_agent_that_nodes_must_not_wait_for_is_refused() -> None:
    body = daemonset("agent", "agent:1")
    required = {**body, "metadata": {**body["metadata"], "annotations": REQUIRED}}
    for one, allowed, refused in (
        (required, AllowList(required_for_work=False), True),
        (body, AllowList(required_for_work=False), False),
        (required, AllowList(), False),
    ):
        manifest = Manifest(AGENT, one, Digest(""), Origin(Pointer("a.yaml", 0, ())))
        refusal = permissions.not_requirable(manifest, allowed)
        assert (refusal is not None) is refused
