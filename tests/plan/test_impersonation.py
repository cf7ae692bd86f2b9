"""Each object is applied in the name of its account; what that may not do, and what no account is
for, is refused.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.core.cluster import Identity
from gitops_ds.core.objects import DAEMONSET, NAMESPACE, Key
from gitops_ds.core.skip_reasons import SkipReason
from gitops_ds.core.values import replace
from gitops_ds.ownership import permissions, references
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.ownership.permissions import Impersonation
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator.faults import RequestFault, SimulatedRequest
from tests.plan import world
from tests.plan.world import World, config_map, daemonset
from tests.staging.staged_objects import manifest

play = world.play

NAMESPACED = Key("apps", "DaemonSet", "a", "agent")
CLUSTER_WIDE = Key("", "Namespace", "", "a")
BY_NAMESPACE = Impersonation(service_account="deployer")
FILES = {"a.yaml": daemonset("agent", namespace="a"), "b.yaml": daemonset("agent", namespace="b")}
WRITES = ("apply", "create", "update", "patch", "delete")


def options(who: Impersonation) -> ApplyOptions:
    return replace(world.pruning(share=1.0), impersonation=who)


def account(namespace: str, name: str = "deployer") -> str:
    return f"system:serviceaccount:{namespace}:{name}"


async def spaces(cluster: simulator.SimulatedCluster) -> None:
    for name in ("a", "b"):
        await cluster.create(NAMESPACE, world.namespace(name))


def recorded_requests(client: simulator.Client, denied: str = "") -> list[SimulatedRequest]:
    """The requests of a client from now on; those of the user `denied` are refused."""
    result: list[SimulatedRequest] = []

    def record(request: SimulatedRequest) -> RequestFault | None:
        result.append(request)
        if denied and request.user == denied:
            return errors.Forbidden(
                f'User "{denied}" cannot patch resource "daemonsets"', 403, "Forbidden"
            )
        return None

    client.faults = record
    return result


async def test_every_write_of_an_object_carries_the_account_of_its_namespace(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await spaces(cluster)
    client = cluster.client()
    requests, world = recorded_requests(client), World(client)
    assert (await world.apply(FILES, options=options(BY_NAMESPACE))).writes == 2
    assert (
        await world.apply({"a.yaml": FILES["a.yaml"]}, "second", options(BY_NAMESPACE))
    ).writes == 1
    written = [
        request for request in requests if request.resource == DAEMONSET and request.verb in WRITES
    ]
    assert {one.verb for one in written} == {"apply", "delete"}
    assert all(one.user == account(one.namespace) for one in written)
    # What it remembers is its own.
    assert all(not request.user for request in requests if request.resource != DAEMONSET)


async def test_a_forbidden_action_is_reported_with_its_account_and_the_others_continue(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    await spaces(cluster)
    client = cluster.client()
    recorded_requests(client, denied=account("b"))
    world = World(client)
    planned = (await world.draft(FILES, options=options(BY_NAMESPACE))).plan
    assert [refusal.reason for refusal in planned.refusals] == ["refused"]
    assert account("b") in planned.refusals[0].message
    done = await world.apply(FILES, options=options(BY_NAMESPACE))
    assert done.written == ("create DaemonSet a/agent",)
    with pytest.raises(errors.NotFound):
        await cluster.get(DAEMONSET, "b", "agent")


async def test_cluster_scoped_objects_need_an_account_of_their_own(
    deployer: World, cluster: simulator.SimulatedCluster, /
) -> None:
    files = {"space.yaml": world.namespace("c")}
    refused = await deployer.apply(files, options=options(BY_NAMESPACE))
    assert (refused.writes, refused.guards) == (0, ["impersonation"])
    done = await deployer.apply(
        files, options=options(Impersonation(cluster_service_account="ops/cluster"))
    )
    assert done.writes == 1
    # Nor does it go without one.
    kept = await deployer.apply(
        {"c.yaml": config_map("c", "default")}, "second", options(BY_NAMESPACE)
    )
    assert kept.guards == ["impersonation"]
    assert await cluster.get(NAMESPACE, "", "c")


RBAC = "rbac.authorization.k8s.io"
SUBJECTS = [
    ({"kind": "ServiceAccount", "name": "x", "namespace": "a"}, True),
    ({"kind": "ServiceAccount", "name": "x", "namespace": "kube-system"}, False),
    ({"kind": "User", "name": "system:serviceaccount:kube-system:x", "apiGroup": RBAC}, False),
    ({"kind": "Group", "name": "system:serviceaccounts:kube-system", "apiGroup": RBAC}, False),
    ({"kind": "Group", "name": "system:serviceaccounts:a", "apiGroup": RBAC}, True),
    ({"kind": "Group", "name": "system:serviceaccounts", "apiGroup": RBAC}, False),
    ({"kind": "Group", "name": "system:authenticated", "apiGroup": RBAC}, False),
    ({"kind": "Group", "name": "system:masters", "apiGroup": RBAC}, False),
    ({"kind": "User", "name": "system:anonymous", "apiGroup": RBAC}, False),
    ({"kind": "User", "name": "system:kube-scheduler", "apiGroup": RBAC}, False),
    ({"kind": "User", "name": "system:node:n1", "apiGroup": RBAC}, False),
    ({"kind": "User", "name": "system:serviceaccount:a:x", "apiGroup": RBAC}, True),
    ({"kind": "User", "name": "system:serviceaccount:", "apiGroup": RBAC}, False),
    ({"kind": "Group", "name": "team-a", "apiGroup": RBAC}, True),
    ({"kind": "User", "name": "ada", "apiGroup": RBAC}, True),
]


@pytest.mark.parametrize(("subject", "taken"), SUBJECTS)
def test_references_to_other_namespaces_are_refused_unless_allowed(
    subject: dict[str, str], taken: bool
) -> None:
    key = Key(RBAC, "RoleBinding", "a", "binding")
    one = replace(manifest("1", key), body={"subjects": [subject]})
    skipped = permissions.not_appliable(one, BY_NAMESPACE)
    assert (skipped.reason if skipped else None) == (None if taken else SkipReason.CROSS_NAMESPACE)
    allowed = replace(BY_NAMESPACE, cross_namespace=True)
    assert permissions.not_appliable(one, allowed) is None
    assert permissions.not_appliable(one, None) is None


@pytest.mark.parametrize(
    ("who", "key", "user"),
    [
        (Impersonation(), NAMESPACED, None),
        (BY_NAMESPACE, NAMESPACED, account("a")),
        (BY_NAMESPACE, CLUSTER_WIDE, None),
        (
            Impersonation(cluster_service_account="system/root"),
            CLUSTER_WIDE,
            account("system", "root"),
        ),
        (Impersonation(cluster_service_account="root"), CLUSTER_WIDE, None),
        (Impersonation(service_account="ops/deployer"), NAMESPACED, account("ops")),
        (Impersonation(service_account="ops/"), NAMESPACED, None),
        (Impersonation(service_account="a:b/deployer"), NAMESPACED, None),
        (Impersonation(agents={"agent": "special"}), NAMESPACED, account("a", "special")),
        (Impersonation(agents={"other": "special"}), NAMESPACED, None),
        (Impersonation(user="ada"), CLUSTER_WIDE, "ada"),
    ],
)
def test_the_account_of_an_object(who: Impersonation, key: Key, user: str | None) -> None:
    found = who.of(key, "agent")
    assert (found.user if isinstance(found, Identity) else None) == user
    assert (permissions.not_deletable(key, "agent", who) is None) is (user is not None)
    if not isinstance(found, Identity):
        setting = "serviceAccount" if key is NAMESPACED else "clusterServiceAccount"
        assert found.message.endswith(f"set apply.impersonate.{setting}")
    assert permissions.not_deletable(key, "agent", None) is None


SERVICES: list[tuple[Any, bool]] = [
    ({"type": "ExternalName", "externalName": "secret.kube-system.svc.cluster.local"}, False),
    ({"type": "ExternalName", "externalName": "secret.kube-system.svc"}, False),
    ({"type": "ExternalName", "externalName": "SECRET.Kube-System.SVC.cluster.local."}, False),
    ({"type": "ExternalName", "externalName": "p-0.db.other.svc.example.org"}, False),
    ({"type": "ExternalName", "externalName": "10-0-0-1.kube-system.pod.cluster.local"}, False),
    ({"type": "ExternalName", "externalName": "db.a.svc.cluster.local"}, True),
    ({"type": "ExternalName", "externalName": "db.example.org"}, True),
    ({"type": "ExternalName", "externalName": "svc.example.org"}, True),
    ({"type": "ClusterIP", "selector": {"app": "agent"}}, True),
    # only an ExternalName is an alias
    ({"type": "ClusterIP", "externalName": "secret.kube-system.svc.cluster.local"}, True),
    ("no mapping", True),
    ({}, True),
]


@pytest.mark.parametrize(("spec", "taken"), SERVICES)
def test_an_alias_of_another_namespace_is_a_reference(spec: Any, taken: bool) -> None:
    one = replace(manifest("1", Key("", "Service", "a", "alias")), body={"spec": spec})
    assert (permissions.not_appliable(one, BY_NAMESPACE) is None) is taken


def test_only_the_subjects_of_a_rolebinding_and_references_name_other_namespaces() -> None:
    subjects = [{"kind": "ServiceAccount", "name": "x", "namespace": "b"}]
    users = [{"kind": "User", "name": "system:serviceaccount:c:x"}, {"kind": "User", "name": "ada"}]
    binding = Key("rbac.authorization.k8s.io", "RoleBinding", "a", "x")
    custom = Key("example.com", "Custom", "a", "x")
    body: dict[str, Any] = {"subjects": [*subjects, *users, "no mapping"]}
    assert references.beyond(binding, body) == ["namespace b", "namespace c"]
    assert references.beyond(custom, body) == []
    assert references.beyond(binding, {"subjects": "no list"}) == []
    body = {
        "secretRef": {"name": "x", "namespace": "a"},
        "plain": {"namespace": "e"},
        "spec": {"parentRefs": [{"namespace": "b"}, {"name": "own"}], "items": [{"xRef": {}}]},
        "other": [{"deep": {"issuerRef": {"namespace": "c"}}}],
    }
    assert references.beyond(custom, body) == ["namespace b", "namespace c"]
