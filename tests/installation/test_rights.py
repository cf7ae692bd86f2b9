"""The service, with a token of its account and nothing else: no request is refused, and nothing
that was granted is left unused.

Each power plays the scenes that it is for; the API server's audit log is read at the end.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

from tests import controlplane, gitservers
from tests.cluster import program
from tests.installation import rights, scenes, used_rights
from tests.installation.rights import NOTHING_AMISS, PATIENCE
from tests.plan.world import daemonset
from tests.service.test_service import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.controlplane,
    pytest.mark.system,
    pytest.mark.xdist_group("rights"),
]
# What the controller of the service itself writes for agents with a rollout policy.
ROLLOUTS = {"pods", "pods/status", "controllerrevisions", "daemonsets/finalizers"}
_DENIED = "require the component rights/kube-system"
# What is written, by verb, kind and namespace, and a part of the refusal.
_CLOSED = {
    ("create", "ConfigMap", "kube-system"): _DENIED,
    ("patch", "ConfigMap", "kube-system"): _DENIED,
    ("delete", "ConfigMap", "kube-system"): _DENIED,
    ("create", "Service", "kube-system"): _DENIED,
    ("create", "ConfigMap", "kube-public"): _DENIED,
}
_OPEN = {
    ("create", "ConfigMap", "default"): "",
    ("create", "Service", "default"): "",
    ("create", "ServiceAccount", "kube-system"): "",
}
# Of pace, which `full` includes: keeps the place of a pod that waits for an earlier one.
_PLACES = frozenset({rights.Right("patch", "", "pods/status")})
QUICK = {"duration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms", "enabled": True}


def all_are_used(
    plane: controlplane.ControlPlane, since: int, but: frozenset[rights.Right] = frozenset()
) -> None:
    """Waits for the other writes of the service: events, and the status of agents."""
    until(
        lambda: not rights.judge(plane, since, but).unused,
        lambda: str(rights.judge(plane, since, but)),
        PATIENCE,
    )


def test_observe_needs_no_more_than_it_is_granted(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    since = rights.installed(plane, tmp_path / "overlay", "observe")
    with rights.service(plane, tmp_path / "run", "observe", {"election": QUICK}) as service:
        plane.request(
            "POST",
            "/apis/apps/v1/namespaces/default/daemonsets",
            daemonset("seen", scenes.image(1), "default"),
        )
        program.rolled_out(plane, "default", "seen")
        service.wait_for_log("DaemonSet default/seen: RolloutCompleted")
        scenes.a_lease_is_stolen(plane, service)
        all_are_used(plane, since)
    assert rights.judge(plane, since) == NOTHING_AMISS


def test_pace_needs_no_more_than_it_is_granted(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    """A day without pruning; docs/install.md has what used each permission first."""
    since = rights.installed(plane, tmp_path / "overlay", "pace")
    begins = a_day(plane, tmp_path, "pace", since, prune=False)
    end = plane.audit_log.stat().st_size
    assert set(rights.doctor(tmp_path / "run").values()) == {"ok"}
    assert rights.judge(plane, since) == NOTHING_AMISS
    used_rights.check_page(rights.used_by(plane, begins, end))


def test_pruning_needs_no_more_than_it_is_granted(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    rights.installed(plane, tmp_path / "overlay", "pace")
    proven = rights.granted(plane)
    since = rights.installed(plane, tmp_path / "overlay", "pace", "rights/pruning")
    assert {right.verb for right in rights.granted(plane) - proven} == {"delete"}
    upstream = gitservers.Upstream(tmp_path / "fleet")
    upstream.commit(scenes.agents(1, "one"))
    with rights.service(plane, tmp_path / "run", "pace", scenes.following(upstream)) as service:
        service.wait_for_log("created DaemonSet fleet/agent")
        scenes.it_leaves_git(plane, upstream, service)
    plane.kubectl("delete", "namespace", "kept", "--wait=false")
    assert rights.judge(plane, since, proven) == NOTHING_AMISS


def a_day(
    plane: controlplane.ControlPlane, tmp_path: Path, power: str, since: int, *, prune: bool
) -> dict[str, int]:
    """What happens to a fleet, with the length of the audit log at the begin of each part."""
    upstream = gitservers.Upstream(tmp_path / "fleet")
    upstream.commit(scenes.agents(1, "one"))
    begins = {"start and commits": since}

    def begin(part: str) -> None:
        begins[part] = plane.audit_log.stat().st_size

    settings = scenes.following(upstream, prune=prune)
    with rights.service(plane, tmp_path / "run", power, settings) as service:
        scenes.a_fleet_lives(plane, upstream, service)
        if power == "pace":
            begin("staged rollout")
            scenes.a_staged_rollout(plane, upstream, service)
        begin("pod without a node")
        scenes.a_pod_finds_no_room(plane)
        begin("request")
        scenes.annotations_control_the_loop(plane, upstream, service)
        begin("other leader")
        scenes.another_leads(plane, upstream, service)
        if prune:
            scenes.it_leaves_git(plane, upstream, service)
            plane.kubectl("delete", "namespace", "kept", "--wait=false")
        else:
            begin("manual deletion")
            scenes.a_person_deletes_what_left_git(plane, upstream, service)
        if power == "pace":
            all_are_used(plane, since)
    return begins


def test_configuration_of_the_cluster_in_kube_system_is_out_of_reach_without_its_component(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    """By the account itself, which RBAC permits all ConfigMaps and Services."""
    for component, expected in (("", _CLOSED), ("rights/kube-system", dict.fromkeys(_CLOSED, ""))):
        rights.removed(plane)
        rights.installed(plane, tmp_path / "overlay", "pace", *filter(None, [component]))
        account = rights.kubeconfig(plane, tmp_path)
        written = partial(_written, plane, account)
        until(lambda: written() == expected, lambda: str(written()), PATIENCE)  # noqa: B023
        assert asyncio.run(scenes.writes(account, _OPEN)) == dict.fromkeys(_OPEN, "")
    plane.kubectl("-n", "kube-system", "delete", "configmap", "kept", "--ignore-not-found")


def _written(plane: controlplane.ControlPlane, account: Path) -> dict[tuple[str, str, str], str]:
    kept = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}}
    plane.kubectl("-n", "kube-system", "apply", "-f", "-", stdin=json.dumps(kept))
    return asyncio.run(scenes.writes(account, _CLOSED))


def test_full_needs_no_more_than_it_is_granted(
    tmp_path: Path, plane_for_deploy: controlplane.ControlPlane
) -> None:
    plane = plane_for_deploy
    since = rights.installed(plane, tmp_path / "overlay", "full", "rights/pruning")
    a_day(plane, tmp_path, "full", since, prune=True)
    scenes.another_controller_was_here(plane)
    with rights.service(
        plane, tmp_path / "alone", "full", {"controller": {"scheduling": "direct"}}, replicas=1
    ) as service:
        scenes.names_that_are_taken(plane, service)
        scenes.a_history(plane)
        scenes.pods_that_lost_their_owner(plane)
        scenes.nodes_that_change(plane)
        all_are_used(plane, since, _PLACES)
    assert rights.judge(plane, since, _PLACES) == NOTHING_AMISS


def test_the_components_of_deploy_grant_exactly_what_settings_need(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    rights.installed(plane, tmp_path / "overlay", "pace", "rights/pruning")
    proven = rights.granted(plane)
    plane.kubectl("create", "namespace", "tools")
    parts = [
        f"rights/{part}"
        for part in ("pruning", "secrets", "rbac", "credentials", "templates", "template-secrets")
    ]
    rights.installed(plane, tmp_path / "overlay", "pace", *parts)
    rights.bound(plane, "tools", "gitops-ds-templates")
    since = rights.bound(plane, "tools", "gitops-ds-template-secrets")
    with gitservers.http_git_server(tmp_path / "git") as server:
        upstream = server.repository("fleet")
        upstream.commit({"all.json": scenes.documents(*scenes.powerful("more", "one"))})
        login = {
            "username": server.user,
            "password": server.password,
            "ca.crt": server.authority.decode(),
        }
        scenes.keep(plane, scenes.secret(rights.NAMESPACE, "git-agents", login))
        scenes.keep_templates(plane)
        settings = {
            "repository": {
                "url": f"{server.url}/fleet",
                "interval": "1s",
                "credentials": {"secretRef": {"name": "git-agents"}},
            },
            "apply": {"prune": True, "guards": {"maxNodesLost": "100%", "maxDeletes": "100%"}},
            "templates": {"namespaces": [rights.NAMESPACE, "tools"]},
        }
        with rights.service(plane, tmp_path / "run", "pace", settings) as service:
            scenes.roles_come_change_and_go(upstream, service)
            scenes.a_template_goes(plane, service)
            all_are_used(plane, since, proven)
    assert rights.judge(plane, since, proven) == NOTHING_AMISS


def test_with_impersonation_the_own_account_of_the_service_only_reads_and_performs_rollouts(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    rights.installed(plane, tmp_path / "overlay", "pace", "rights/impersonation")
    scenes.keep(plane, *scenes.deployers("theirs"))
    rights.bound(plane, "theirs", "gitops-ds-impersonation")
    since = rights.bound(plane, rights.NAMESPACE, "gitops-ds-impersonation")
    granted = rights.granted(plane)
    writing = {
        right.resource
        for right in granted
        if right.verb in ("create", "patch", "update", "delete") and not right.namespace
    }
    assert writing == {"events", *ROLLOUTS}
    # The other account creates the target revisions of rollouts, and deletes them.
    theirs = ("create", "delete")
    but = frozenset(
        one for one in granted if one.resource == "controllerrevisions" and one.verb in theirs
    )
    upstream = gitservers.Upstream(tmp_path / "fleet")
    upstream.commit(scenes.agents(1, "one", "theirs"))
    impersonate = {
        "serviceAccount": "deployer",
        "clusterServiceAccount": f"{rights.NAMESPACE}/cluster",
    }
    settings = scenes.following(
        upstream, impersonate=impersonate, guards={"maxNodesLost": "100%", "maxDeletes": "100%"}
    )
    with rights.service(plane, tmp_path / "run", "pace", settings) as service:
        service.wait_for_log("created DaemonSet theirs/agent")
        program.rolled_out(plane, "theirs", "agent")
        upstream.commit(scenes.agents(2, "two", "theirs"))
        service.wait_for_log("updated DaemonSet theirs/agent")
        scenes.a_staged_rollout(plane, upstream, service, "theirs")
        for times in (2, 3):
            plane.kubectl("-n", "theirs", "delete", "ds/agent")
            service.wait_for_log("created DaemonSet theirs/agent", times)
        upstream.commit(
            {
                "agents/agent/agent.yaml": None,
                "agents/agent/daemonset.json": None,
                "agents/agent/config/agent.conf": None,
            }
        )
        service.wait_for_log("deleted DaemonSet theirs/agent")
        scenes.a_pod_finds_no_room(plane)
        all_are_used(plane, since, but)
    assert rights.judge(plane, since, but) == NOTHING_AMISS
