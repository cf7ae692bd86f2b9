"""What an account sees that may not list nodes: the built-in ClusterRole view, and the right to
patch, which a dry run needs.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/#user-facing-roles
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import controlplane
from tests.cluster import program
from tests.plan.world import daemonset

pytestmark = pytest.mark.controlplane


def test_a_viewer_without_a_right_to_nodes_sees_the_plan_and_applies_nothing(
    tmp_path: Path, control_plane: controlplane.ControlPlane
) -> None:
    space, plane = "without-node-rights", control_plane
    plane.kubectl("create", "namespace", space)
    person = program.account(plane, space, "viewer", "view", tmp_path / "viewer.json")
    at = program.desk(tmp_path / "desk", plane.kubeconfig)
    at.commit("An agent", agent=daemonset("agent", "registry.example.com/agent:1", space))
    new = at.run("plan", kubeconfig=person)
    assert (
        new.code,
        f"+ create DaemonSet {space}/agent" in new.out,
        "; nodes: unknown." in new.out,
    ) == (0, True, True), new.err
    assert at.run("apply", "--wait").code == 0
    unchanged = at.run("plan", kubeconfig=person)
    assert (unchanged.code, "0 to update, 0 to delete, 1 unchanged." in unchanged.out) == (
        0,
        True,
    ), unchanged
    at.commit("Another image", agent=daemonset("agent", "registry.example.com/agent:2", space))
    denied = at.run("plan", kubeconfig=person)
    assert 'cannot patch resource "daemonsets"' in denied.out, denied
    role = ("role", "dry-run", "--verb=patch", "--resource=daemonsets.apps")
    binding = ("rolebinding", "dry-run", "--role=dry-run", f"--serviceaccount={space}:viewer")
    for words in (role, binding):
        plane.kubectl("-n", space, "create", *words)
    shown = program.eventually(
        lambda: at.run("plan", kubeconfig=person), lambda plan: "cannot patch" not in plan.out
    )
    assert shown.code == 0, shown.err
    assert f"~ update DaemonSet {space}/agent" in shown.out
    assert "new revision 2" in shown.out
    assert (
        'the effect on nodes is unknown: nodes is forbidden: User "system:serviceaccount:'
        in shown.out
    )
    refused = at.run("apply", kubeconfig=person)
    assert (refused.code, "nothing was applied: the effect on nodes is unknown" in refused.err) == (
        3,
        True,
    ), refused
    assert "agent:1" in plane.kubectl("-n", space, "get", "daemonset", "agent", "-o", "yaml")
