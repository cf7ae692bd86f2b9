"""The group `apply` of the settings."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.errors import SettingsError
from gitops_ds.model.change import Drift
from gitops_ds.model.cluster import Identity
from gitops_ds.model.objects import Key
from gitops_ds.plan.identity import Impersonation
from gitops_ds.plan.ignoring import Rule
from gitops_ds.plan.prune import Guards, Limit, Policy
from gitops_ds.settings import applying


def test_every_key_has_its_effect() -> None:
    found = applying.parse(
        {
            "prune": True,
            "deletion": "orphan",
            "guards": {"maxNodesLost": "5%", "maxDeletes": 3, "emptyRender": False},
            "drift": "hold",
            "holdFor": "2h",
            "compareInterval": "30s",
            "ignore": [{"paths": ["/spec/replicas"], "managers": ["vpa"], "target": {"kind": "Daemon*", "namespace": "a"}}],
        }
    )
    assert found.guards == Guards(prune=True, share=0.05, deletes=Limit(number=3), empty=False, policy=Policy.ORPHAN)
    assert (found.drift, found.hold_for, found.compare_every) == (Drift.HOLD, 7200.0, 30.0)
    assert found.ignore == (Rule(("/spec/replicas",), ("vpa",), kind="Daemon*", namespace="a"),)
    assert applying.parse({}).guards == Guards()


IN_A, OF_CLUSTER = Key("apps", "DaemonSet", "a", "x"), Key("", "Namespace", "", "a")


@pytest.mark.parametrize(
    ("told", "agent", "key", "who"),
    [
        ({"serviceAccount": "deployer"}, "", IN_A, "system:serviceaccount:a:deployer"),
        ({"serviceAccount": "ops/deployer"}, "", IN_A, "system:serviceaccount:ops:deployer"),
        ({"serviceAccount": "deployer", "agents": {"cni": "net"}}, "cni", IN_A, "system:serviceaccount:a:net"),
        ({"serviceAccount": "deployer", "agents": {"cni": "net"}}, "log", IN_A, "system:serviceaccount:a:deployer"),
        ({"serviceAccount": "d", "clusterServiceAccount": "ops/c"}, "", OF_CLUSTER, "system:serviceaccount:ops:c"),
        ({"serviceAccount": "deployer"}, "", OF_CLUSTER, None),
        ({"clusterServiceAccount": "ops/c"}, "", IN_A, None),
        ({"serviceAccount": "d"}, "", Key("apps", "DaemonSet", "a:b", "x"), None),
        ({"user": "ada"}, "", OF_CLUSTER, "ada"),
    ],
)
def test_who_applies_what(told: dict[str, Any], agent: str, key: Key, who: str | None) -> None:
    impersonation = applying.parse({"impersonate": told}).impersonation
    assert impersonation is not None
    found = impersonation.of(key, agent)
    assert (found.user if isinstance(found, Identity) else None) == who


def test_a_user_has_the_groups_that_are_named() -> None:
    found = applying.parse({"impersonate": {"user": "ada", "groups": ["ops"]}, "allowCrossNamespace": True}).impersonation
    assert found == Impersonation("ada", ("ops",), cross_namespace=True)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"user": " "},
        {"serviceAccount": ""},
        {"groups": ["system:masters"]},
        {"serviceAccount": "system:admin"},
        {"serviceAccount": "a/b/c"},
        {"clusterServiceAccount": "name-alone"},
        {"agents": {"cni": "A"}},
        {"user": "ada", "serviceAccount": "deployer"},
    ],
)
def test_an_identity_that_names_nobody_is_refused(told: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"apply\.impersonate"):
        applying.parse({"impersonate": told})
