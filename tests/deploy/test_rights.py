"""The service, with a token of its account and nothing else: no request is refused, and nothing
that was granted is left unused.

Each power plays the scenes that it is for; the API server's audit log is read at the end.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import controlplane, gitservers
from tests.cluster import program
from tests.deploy import rights, scenes
from tests.deploy.rights import NOTHING_AMISS, PATIENCE
from tests.plan.world import daemonset
from tests.service.test_service import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.controlplane,
    pytest.mark.system,
    pytest.mark.xdist_group("rights"),
]
# What the controller of the service itself writes for agents with a rollout policy.
ROLLOUTS = {"pods", "controllerrevisions", "daemonsets/finalizers"}
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
    since = rights.installed(plane, tmp_path / "overlay", "pace")
    a_whole_life(plane, tmp_path, "pace", since)
    assert set(rights.doctor(tmp_path / "run").values()) == {"ok"}
    assert rights.judge(plane, since) == NOTHING_AMISS


def a_whole_life(plane: controlplane.ControlPlane, tmp_path: Path, power: str, since: int) -> None:
    upstream = gitservers.Upstream(tmp_path / "fleet")
    upstream.commit(scenes.agents(1, "one"))
    with rights.service(plane, tmp_path / "run", power, scenes.following(upstream)) as service:
        scenes.a_fleet_lives(plane, upstream, service)
        if power == "pace":
            scenes.a_staged_rollout(plane, upstream, service)
        scenes.a_pod_finds_no_room(plane)
        scenes.annotations_control_the_loop(plane, upstream, service)
        scenes.another_leads(plane, upstream, service)
        scenes.it_leaves_git(plane, upstream, service)
        if power == "pace":
            all_are_used(plane, since)
    plane.kubectl("delete", "namespace", "kept", "--wait=false")


def test_full_needs_no_more_than_it_is_granted(
    tmp_path: Path, plane_for_deploy: controlplane.ControlPlane
) -> None:
    plane = plane_for_deploy
    since = rights.installed(plane, tmp_path / "overlay", "full")
    a_whole_life(plane, tmp_path, "full", since)
    scenes.another_controller_was_here(plane)
    with rights.service(
        plane, tmp_path / "alone", "full", {"controller": {"scheduling": "direct"}}, replicas=1
    ) as service:
        scenes.names_that_are_taken(plane, service)
        scenes.a_history(plane)
        scenes.pods_that_lost_their_owner(plane)
        scenes.nodes_that_change(plane)
        all_are_used(plane, since)
    assert rights.judge(plane, since) == NOTHING_AMISS


def test_the_components_of_deploy_grant_exactly_what_settings_need(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    rights.installed(plane, tmp_path / "overlay", "pace")
    proven = rights.granted(plane)
    plane.kubectl("create", "namespace", "tools")
    parts = [
        f"rights/{part}"
        for part in ("secrets", "rbac", "credentials", "templates", "template-secrets")
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
