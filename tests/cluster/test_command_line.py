"""Scenes of the user stories, played with the installed program against a real control plane."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core import names
from tests import controlplane, schemas
from tests.cluster import program
from tests.cluster.program import Desk
from tests.plan.world import config_map, daemonset

pytestmark = pytest.mark.controlplane


@pytest.fixture
def at(tmp_path: Path, control_plane: controlplane.ControlPlane) -> Desk:
    return program.desk(tmp_path, control_plane.kubeconfig)


def agent(space: str, image: str = "registry.example.com/agent:1", **spec: Any) -> dict[str, Any]:
    return daemonset("agent", image, space, **spec)


def live(plane: controlplane.ControlPlane, space: str, what: str = "ds/agent") -> Any:
    return json.loads(plane.kubectl("-n", space, "get", what, "-o", "json"))


def image_of(body: Any) -> str:
    return str(body["spec"]["template"]["spec"]["containers"][0]["image"])


def test_one_agent_on_every_node(
    at: Desk, space: str, control_plane: controlplane.ControlPlane
) -> None:
    commit = at.commit("An agent", agent=agent(space))
    planned = at.run_program("plan", "--exit-code")
    assert (planned.code, f"+ create DaemonSet {space}/agent" in planned.out) == (1, True)
    applied = at.run_program("apply", "--wait", "--timeout", "90")
    assert applied.code == 0, applied.err
    assert f"created DaemonSet {space}/agent" in applied.out
    pods = live(control_plane, space, "pods")["items"]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == len(pods) == 3
    got = at.run_program("get", "-n", space)
    assert got.out.split("\n")[0].split("   ")[0] == "NAMESPACE"
    assert got.out.split("\n")[1].split()[:7] == [space, "agent", "3", "3", "3", "3", "3"]
    item = at.run_program("get", "-n", space, "-o", "json").json["items"][0]
    assert (item["commit"], item["revision"], item["sync"]["state"], item["health"]["state"]) == (
        commit,
        1,
        "Unknown",
        "Healthy",
    )
    again = at.run_program("apply")
    assert (again.code, "0 written, 1 unchanged" in again.out) == (0, True)
    assert at.run_program("plan", "--exit-code").code == 0


def test_an_object_without_a_namespace_is_in_default_as_with_kubectl(at: Desk, space: str) -> None:
    body = config_map(f"unspaced-{space}", "", n="1")
    del body["metadata"]["namespace"]
    at.commit("No namespace", a=body)
    assert f"ConfigMap default/unspaced-{space}" in at.run("plan").out
    assert at.run("apply").code == 0
    again = at.run("apply", "-n", "default")
    assert (again.code, "0 written, 1 unchanged" in again.out) == (0, True), again.out
    checked = at.run("check", "--all")
    assert (checked.code, "DS014: the namespace is default" in checked.out) == (0, True)


def test_a_change_that_a_guard_holds_is_counted_and_ends_with_1(at: Desk, space: str) -> None:
    body = agent(space)
    at.commit("An agent", agent=body)
    assert at.run("apply", "--wait").code == 0
    body["spec"]["template"]["spec"]["nodeSelector"] = {"no": "node"}
    at.commit("No nodes", agent=body)
    planned = at.run("plan", "--exit-code")
    assert planned.code == 1
    assert "0 unchanged, 1 held" in planned.out


def test_a_pushed_revert_of_a_bad_image_becomes_revision_3(
    at: Desk, space: str, control_plane: controlplane.ControlPlane
) -> None:
    at.commit("An agent", agent=agent(space))
    assert at.run("apply", "--wait").code == 0
    second = at.commit("A bad image", agent=agent(space, "registry.example.com/agent:bad"))
    planned = at.run("plan", "--revision", "main", "-o", "json")
    plan = planned.json
    schemas.check(plan, "plan")
    rollout = plan["changes"][0]["rollout"]
    assert (rollout["from"], rollout["to"], rollout["knownAs"], len(rollout["restarts"])) == (
        1,
        2,
        None,
        3,
    )
    assert at.run("apply", "--wait").code == 0
    shown = at.run("rollback", "ds/agent", "-n", space, "--to-revision", "1")
    assert (shown.code, "not pushed" in shown.err, "agent:1" in shown.out) == (0, True, True)
    assert at.git("ls-remote", "origin", "main").startswith(second), (
        "without --push nothing is pushed"
    )
    # to the one before, at the remote origin of the work tree
    pushed = at.run("rollback", "ds/agent", "-n", space, "--push", "-o", "json")
    assert pushed.code == 0, pushed.err
    assert pushed.json["reverts"] == second
    at.git("pull", "--quiet", "origin", "main")
    assert "Back to revision 1" in at.git("log", "-1", "--format=%B")
    back = at.run("plan", "-o", "json").json["changes"][0]["rollout"]
    assert (back["from"], back["to"], back["knownAs"]) == (2, 3, 1)
    assert "back to revision 1, which becomes revision 3" in at.run("plan").out
    assert at.run("apply", "--wait").code == 0
    history = at.run("history", "ds/agent", "-n", space, "-o", "json").json["items"]
    third = at.git("rev-parse", "HEAD")
    assert [(i["revision"], i["commit"], i["nodes"], i["current"]) for i in history] == [
        (2, second, 0, False),
        (3, third, 3, True),
    ]
    assert [i["author"] for i in history] == ["Ada <ada@example.com>", "Ada <ada@example.com>"]
    for limit, revisions_shown in ((1, [3]), (2, [2, 3]), (9, [2, 3])):
        newest = at.run("history", "ds/agent", "-n", space, "--limit", str(limit), "-o", "json")
        assert [i["revision"] for i in newest.json["items"]] == revisions_shown, limit
    assert at.run("history", "ds/agent", "-n", space, "--limit", "0").code == 2
    assert image_of(live(control_plane, space)) == "registry.example.com/agent:1"
    revisions = live(control_plane, space, "controllerrevisions")["items"]
    by_number = {item["revision"]: item["metadata"]["annotations"] for item in revisions}
    assert by_number[2][names.COMMIT] == second
    assert by_number[2][names.CHANGE_CAUSE] == "A bad image"
    assert len(by_number) == 2, "the template of revision 1 is kept once, under its new number"


def test_an_object_removed_from_git_stays_until_pruning_is_requested_and_approved(
    at: Desk, space: str, control_plane: controlplane.ControlPlane
) -> None:
    at.commit("An agent", agent=agent(space), settings=config_map("settings", space, a="1"))
    assert at.run("apply", "--wait").code == 0
    at.commit("No agent", agent=None)
    kept = at.run("apply")
    assert (kept.code, "pruning is off (--prune)" in kept.err) == (0, True)
    guarded = at.run("apply", "--prune")
    assert "3 of 3 nodes would lose an agent" in guarded.err
    assert live(control_plane, space)
    hash = at.run("plan", "--revision", "main", "--prune", "-o", "json").json["hash"]
    gone = at.run("apply", "--prune", "--approve", hash)
    assert (gone.code, f"deleted DaemonSet {space}/agent" in gone.out) == (0, True), gone.err
    assert "agent" not in control_plane.kubectl("-n", space, "get", "ds", "-o", "name")


def test_two_applies_at_once_leave_one_whole_state(
    at: Desk, space: str, control_plane: controlplane.ControlPlane
) -> None:
    import concurrent.futures

    at.commit("Many", **{f"c{n}": config_map(f"c{n}", space, n=str(n)) for n in range(8)})
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(lambda _: at.run_program("apply"), range(2)))
    assert [end.code for end in ends] == [0, 0], [end.err for end in ends]
    assert "0 written, 8 unchanged" in at.run("apply").out


def test_a_node_of_an_explained_value_and_what_is_rendered(at: Desk, space: str) -> None:
    at.commit("An agent", agent=agent(space))
    explained = at.run(
        "explain",
        "agent",
        "spec.template.spec.containers[0].image",
        "--node",
        "node-000",
        "-o",
        "json",
    )
    assert explained.code == 0, explained.err
    assert explained.json["value"] == "registry.example.com/agent:1"
    assert explained.json["setBy"][0]["file"] == "agent.yaml"
    rendered = at.run("render", "-o", "json")
    assert [item["metadata"]["name"] for item in rendered.json["items"]] == ["agent"]


def test_a_check_reads_the_cluster_from_a_snapshot_or_the_api_server(
    at: Desk, space: str, control_plane: controlplane.ControlPlane
) -> None:
    at.commit("An agent", agent=agent(space))
    assert at.run("apply", "--wait").code == 0
    at.git("checkout", "--quiet", "-b", "change")
    at.commit("Another image", agent=agent(space, "registry.example.com/agent:2"))
    taken = at.run("snapshot")
    assert (taken.code, "3 nodes" in taken.err) == (0, True), taken.err
    (at.directory / "cluster.json").write_text(taken.out)
    by_file = at.run("check", "--base", "main", "--snapshot", str(at.directory / "cluster.json"))
    by_asking = at.run("check", "--base", "main", "--live")
    assert by_file.out == by_asking.out
    assert "restarts 3 nodes" in by_asking.out
    assert "revision 2" in by_asking.out
    control_plane.kubectl(
        "-n", space, "set", "image", "ds/agent", "agent=registry.example.com/agent:by-hand"
    )
    assert "agent:by-hand" in at.run("check", "--base", "main", "--live").out


def test_an_unreadable_cluster_is_a_note_or_an_error(at: Desk, space: str) -> None:
    at.commit("An agent", agent=agent(space))
    checked = at.run("check", "--live", "--context", "nowhere")
    assert (checked.code, "nowhere" in checked.out) == (0, True), checked.out
    required = at.run("check", "--require-live", "--context", "nowhere")
    assert (required.code, "nowhere" in required.err) == (3, True)


def test_apply_names_what_the_work_tree_has_beside_the_commit(at: Desk, space: str) -> None:
    at.commit("An agent", agent=agent(space))
    assert at.run("apply").err == ""
    at.write("agent.yaml", agent(space, "registry.example.com/agent:2"))
    applied = at.run("apply", "--timeout", "90s")
    assert (applied.code, "0 written, 1 unchanged" in applied.out) == (0, True)
    assert (
        "warning: the work tree has changes that are not applied: agent.yaml; commit them first"
        in applied.err
    )
    assert at.run("apply", "--revision", "HEAD").err == ""


def test_a_priority_class_missing_in_the_cluster_is_an_error_of_a_live_check(
    at: Desk, space: str
) -> None:
    at.write("agent.yaml", agent(space, priorityClassName="no-such-class"))
    assert "DS313" not in at.run("check").out
    looked = at.run("check", "--live")
    assert (looked.code, "error DS313: PriorityClass no-such-class not found" in looked.out) == (
        1,
        True,
    ), looked.out
    at.write("agent.yaml", agent(space, priorityClassName="system-node-critical"))
    assert "DS313" not in at.run("check", "--live").out
