"""The ways back: an older commit requires consent, and a manually edited template can be committed
to Git.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import controlplane
from tests.cluster import program

pytestmark = pytest.mark.controlplane

MANIFEST = """\
# The agent of every node.
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: agent, namespace: {space}}}
spec:
  selector: {{matchLabels: {{app: agent}}}}
  template:
    metadata: {{labels: {{app: agent}}}}
    spec:
      containers:
        - name: agent
          image: 'registry.example.com/agent:{tag}'  # bump me
"""


def test_a_branch_that_went_back_is_applied_only_by_name(
    tmp_path: Path, control_plane: controlplane.ControlPlane
) -> None:
    control_plane.kubectl("create", "namespace", "going-back")
    at = program.desk(tmp_path, control_plane.kubeconfig)
    old = at.commit("one", agent=MANIFEST.format(space="going-back", tag=1))
    at.commit("two", agent=MANIFEST.format(space="going-back", tag=2))
    assert at.run("apply").code == 0
    at.git("reset", "--hard", "--quiet", old)
    refused = at.run("apply")
    assert refused.code == 3
    assert f"approve it with `gitops-ds apply --revision {old[:12]}`" in refused.err
    assert at.run("apply", "--revision", old).code == 0
    assert at.run("plan", "--exit-code").code == 0


def test_a_manually_edited_template_is_written_into_its_file(
    tmp_path: Path, control_plane: controlplane.ControlPlane
) -> None:
    control_plane.kubectl("create", "namespace", "by-hand")
    at = program.desk(tmp_path, control_plane.kubeconfig)
    at.commit("one", agent=MANIFEST.format(space="by-hand", tag=1))
    assert at.run("apply", "--wait").code == 0
    control_plane.kubectl(
        "-n", "by-hand", "set", "image", "ds/agent", "agent=registry.example.com/agent:9"
    )
    program.rolled_out(control_plane, "by-hand", "agent")
    none = at.run(
        "rollback", "ds/agent", "-n", "by-hand", "--to-revision", "2", "--to-commit", "main"
    )
    assert (none.code, "exclude each other" in none.err) == (2, True)
    done = at.run(
        "rollback", "ds/agent", "-n", "by-hand", "--to-revision", "2", "--push", "-C", at.origin
    )
    assert done.code == 0, done.err
    at.git("pull", "--quiet", "origin", "main")
    assert (at.tree / "agent.yaml").read_text() == MANIFEST.format(space="by-hand", tag=9)
    again = at.run("rollback", "ds/agent", "-n", "by-hand", "--to-revision", "2")
    assert again.code == 1
    assert "nothing to restore" in again.err


def test_every_clone_of_a_repository_is_the_same_owner(
    tmp_path: Path, control_plane: controlplane.ControlPlane
) -> None:
    control_plane.kubectl("create", "namespace", "two-clones")
    one = program.desk(tmp_path, control_plane.kubeconfig)
    one.commit("one", agent=MANIFEST.format(space="two-clones", tag=1))
    assert one.run("apply").code == 0
    one.git("clone", "--quiet", str(tmp_path / "origin.git"), str(tmp_path / "other/tree"))
    other = program.Desk(tmp_path / "other", one.kubeconfig, one.environment)
    for applied in (other.run("apply"), other.run("apply", one.origin)):
        assert (applied.code, "0 written, 1 unchanged" in applied.out) == (0, True), applied.err
