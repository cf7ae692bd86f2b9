"""The group `apply` of the settings."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.cluster import Identity
from gitops_ds.core.errors import SettingsError
from gitops_ds.core.objects import Key
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.ownership.ignore_differences import IgnoreRule
from gitops_ds.ownership.options import ApplyOptions, Guards, Limit, Policy
from gitops_ds.ownership.permissions import Impersonation
from gitops_ds.service.settings import service
from gitops_ds.service.settings.apply import ApplySettings
from gitops_ds.service.settings.base import decode


def test_every_key_has_its_effect() -> None:
    parsed = options(
        {
            "prune": True,
            "deletion": "orphan",
            "guards": {"maxNodesLost": "5%", "maxDeletes": 3, "emptyRender": False},
            "drift": "hold",
            "holdFor": "2h",
            "compareInterval": "30s",
            "ignore": [
                {
                    "paths": ["/spec/replicas"],
                    "managers": ["vpa"],
                    "target": {"kind": "Daemon*", "namespace": "a"},
                }
            ],
        }
    )
    assert parsed.guards == Guards(
        prune=True, share=0.05, deletes=Limit(number=3), empty=False, policy=Policy.ORPHAN
    )
    assert (parsed.drift, parsed.hold_for, parsed.compare_every) == (DriftPolicy.HOLD, 7200.0, 30.0)
    assert parsed.ignore == (
        IgnoreRule(("/spec/replicas",), ("vpa",), kind="Daemon*", namespace="a"),
    )
    assert options({}).guards == Guards()


def options(document: dict[str, Any]) -> ApplyOptions:
    return decode(ApplySettings, document).options()


IN_A, OF_CLUSTER = Key("apps", "DaemonSet", "a", "x"), Key("", "Namespace", "", "a")


@pytest.mark.parametrize(
    ("document", "agent", "key", "who"),
    [
        ({"serviceAccount": "deployer"}, "", IN_A, "system:serviceaccount:a:deployer"),
        ({"serviceAccount": "ops/deployer"}, "", IN_A, "system:serviceaccount:ops:deployer"),
        (
            {"serviceAccount": "deployer", "agents": {"cni": "net"}},
            "cni",
            IN_A,
            "system:serviceaccount:a:net",
        ),
        (
            {"serviceAccount": "deployer", "agents": {"cni": "net"}},
            "log",
            IN_A,
            "system:serviceaccount:a:deployer",
        ),
        (
            {"serviceAccount": "d", "clusterServiceAccount": "ops/c"},
            "",
            OF_CLUSTER,
            "system:serviceaccount:ops:c",
        ),
        ({"serviceAccount": "deployer"}, "", OF_CLUSTER, None),
        ({"clusterServiceAccount": "ops/c"}, "", IN_A, None),
        ({"serviceAccount": "d"}, "", Key("apps", "DaemonSet", "a:b", "x"), None),
        ({"user": "ada"}, "", OF_CLUSTER, "ada"),
    ],
)
def test_the_impersonated_user_of_each_object(
    document: dict[str, Any], agent: str, key: Key, who: str | None
) -> None:
    impersonation = options({"impersonate": document}).impersonation
    assert impersonation is not None
    identity = impersonation.of(key, agent)
    assert (identity.user if isinstance(identity, Identity) else None) == who


def test_a_user_has_the_groups_that_are_named() -> None:
    parsed = options(
        {"impersonate": {"user": "ada", "groups": ["ops"]}, "allowCrossNamespace": True}
    ).impersonation
    assert parsed == Impersonation("ada", ("ops",), cross_namespace=True)


@pytest.mark.parametrize(
    "document",
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
def test_an_identity_without_a_user_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"apply\.impersonate"):
        service.parse({"apply": {"impersonate": document}})


URLS = [{"url": "https://git.example.com/a.git"}, {"url": "https://git.example.com/b.git"}]


def repositories(*own: dict[str, Any], **common: Any) -> tuple[ApplyOptions, ...]:
    settings = [
        {**one, "apply": more} if more else one for one, more in zip(URLS, own, strict=True)
    ]
    parsed = service.parse({"repositories": settings, "apply": common})
    return tuple(parsed.apply_options_of(repository) for repository in parsed.repositories)


@pytest.mark.parametrize(
    ("own", "allowed"),
    [
        ({}, True),
        ({"allow": {"namespaces": ["node-agents"]}}, True),
        ({"allow": {"clusterScoped": False}}, False),
        ({"allow": {"clusterScoped": False, "requiredForWork": True}}, True),
        ({"allow": {"requiredForWork": False}}, False),
        ({"impersonate": {"serviceAccount": "a/b"}}, False),
        ({"impersonate": {"serviceAccount": "a/b", "clusterServiceAccount": "a/c"}}, True),
        ({"impersonate": {"user": "ada"}}, True),
    ],
)
def test_who_applies_no_object_of_the_cluster_lets_no_node_wait(
    own: dict[str, Any], allowed: bool
) -> None:
    _, options = repositories({}, own)
    assert options.allowed.required_for_work is allowed


def test_a_repository_has_its_own_account_lists_and_guards_else_the_common_ones() -> None:
    own = {
        "prune": False,
        "guards": {"maxNodesLost": 1},
        "impersonate": {"serviceAccount": "team-b/deployer"},
        "allow": {"namespaces": ["team-b"]},
        "allowCrossNamespace": True,
    }
    common = {
        "prune": True,
        "guards": {"maxNodesLost": "50%", "maxDeletes": 3},
        "impersonate": {"serviceAccount": "a/b"},
        "drift": "report",
    }
    a, b = repositories({}, own, **common)
    assert (a.guards, a.impersonation) == (
        Guards(prune=True, share=0.5, deletes=Limit(number=3)),
        Impersonation(service_account="a/b"),
    )
    assert b.guards == Guards(prune=False, share=1.0, nodes=1, deletes=Limit(number=3))
    assert b.impersonation == Impersonation(service_account="team-b/deployer", cross_namespace=True)
    assert b.allowed.namespaces == {"team-b"}
    assert (a.allowed.namespaces, a.drift, b.drift) == (
        None,
        DriftPolicy.REPORT,
        DriftPolicy.REPORT,
    )
    assert a.allowed.own.homes == b.allowed.own.homes == {"gitops-ds"}


@pytest.mark.parametrize(
    ("own", "common", "refused"),
    [
        (({}, {}), {"impersonate": {"serviceAccount": "deployer"}}, True),
        (({}, {}), {"impersonate": {"serviceAccount": "ops/deployer"}}, False),
        (({}, {}), {"impersonate": {"serviceAccount": "ops/d", "agents": {"cni": "net"}}}, True),
        (({}, {}), {"impersonate": {"user": "ada"}}, False),
        (({}, {}), {}, False),
        (
            ({}, {}),
            {"impersonate": {"serviceAccount": "deployer"}, "allow": {"namespaces": ["a"]}},
            False,
        ),
        (
            ({"allow": {"namespaces": ["a"]}}, {}),
            {"impersonate": {"serviceAccount": "deployer"}},
            True,
        ),
        (
            ({"allow": {"namespaces": ["a"]}}, {"allow": {"namespaces": ["b"]}}),
            {"impersonate": {"serviceAccount": "deployer"}},
            False,
        ),
        (
            (
                {"impersonate": {"serviceAccount": "a/d"}},
                {"impersonate": {"serviceAccount": "b/d"}},
            ),
            {},
            False,
        ),
    ],
)
def test_two_repositories_do_not_share_the_account_of_every_namespace(
    own: Any, common: dict[str, Any], refused: bool
) -> None:
    if not refused:
        assert len(repositories(*own, **common)) == 2
        return
    with pytest.raises(SettingsError, match=r"apply\.allow\.namespaces"):
        repositories(*own, **common)


def test_one_repository_may_use_the_account_of_every_namespace() -> None:
    parsed = service.parse(
        {"repository": URLS[0], "apply": {"impersonate": {"serviceAccount": "deployer"}}}
    )
    assert parsed.apply_options_of(parsed.repositories[0]).impersonation == Impersonation(
        service_account="deployer"
    )


def test_git_alone_may_steer_objects() -> None:
    assert options({}).live_annotations
    assert options({"driftFrom": "live"}).live_annotations
    assert not options({"driftFrom": "git"}).live_annotations


@pytest.mark.parametrize(
    ("verify", "follows"),
    [
        ({}, True),
        ({"mode": "head"}, True),
        ({"mode": "all"}, False),
        ({"mode": "all", "forcePush": "follow"}, True),
        ({"mode": "head", "forcePush": "refuse"}, False),
        ({"forcePush": "refuse"}, False),
    ],
)
def test_a_force_push_waits_for_consent_where_every_commit_is_to_be_signed(
    verify: dict[str, str], follows: bool
) -> None:
    keys = {"allowedSignersFile": "signers"} if "mode" in verify else {}
    parsed = service.parse({"repository": {**URLS[0], "verify": {**verify, **keys}}})
    assert parsed.repositories[0].verify.follows_rewrites is follows


@pytest.mark.parametrize(
    ("common", "own", "expected"),
    [({}, {}, False), ({"prune": True}, {}, True), ({}, {"prune": True}, True)],
)
def test_a_service_prunes_if_any_repository_does(
    common: dict[str, object], own: dict[str, object], expected: bool
) -> None:
    repositories = [{"url": "https://git.example.com/a"}, {"url": "https://git.example.com/b"}]
    settings = {
        "apply": common,
        "repositories": [repositories[0], {**repositories[1], "apply": own}],
    }
    assert service.parse(settings).prunes is expected
