"""What the installed service does to DaemonSets under each of its powers, where no other DaemonSet
controller runs.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import controlplane, gitservers
from tests.cluster import program
from tests.plan.world import daemonset
from tests.service.test_service import running, settings, until

pytestmark = pytest.mark.controlplane
_numbers = itertools.count()


@pytest.fixture
def plane(control_plane_without_daemonsets: controlplane.ControlPlane) -> controlplane.ControlPlane:
    return control_plane_without_daemonsets


def image(tag: int) -> str:
    return f"registry.example.com/agent:{tag}"


def make(plane: controlplane.ControlPlane, space: str, name: str) -> None:
    plane.request(
        "POST", f"/apis/apps/v1/namespaces/{space}/daemonsets", daemonset(name, image(1), space)
    )


def images_by_node(plane: controlplane.ControlPlane, space: str) -> list[tuple[str, str]]:
    pods = plane.items(space, "pods")
    return sorted(
        (pod["spec"].get("nodeName", ""), pod["spec"]["containers"][0]["image"]) for pod in pods
    )


def on_every_node(tag: int) -> list[tuple[str, str]]:
    return [(f"node-{number:03d}", image(tag)) for number in range(3)]


def revisions(plane: controlplane.ControlPlane, space: str) -> list[int]:
    return sorted(revision["revision"] for revision in plane.items(space, "controllerrevisions"))


def change_and_poll(
    plane: controlplane.ControlPlane, process: subprocess.Popen[bytes]
) -> int | None:
    """The exit code of a process, None while it runs; first the DaemonSet gets a new generation."""
    limit = {"spec": {"revisionHistoryLimit": 100 + next(_numbers)}}
    path = "/apis/apps/v1/namespaces/default/daemonsets/agent"
    plane.request("PATCH", path, limit, "application/merge-patch+json")
    return process.poll()


def is_untouched(plane: controlplane.ControlPlane, space: str, name: str) -> bool:
    counters = plane.read(space, "daemonsets", name)["status"]
    return (
        not any(counters.values())
        and not plane.items(space, "pods")
        and not revisions(plane, space)
    )


def test_with_full_powers_it_is_the_daemonset_controller(
    tmp_path: Path, plane: controlplane.ControlPlane, space: str
) -> None:
    make(plane, space, "agent")
    with running(tmp_path, plane, "--powers", "full") as (_, log):
        program.rolled_out(plane, space, "agent")
        assert images_by_node(plane, space) == on_every_node(1)

        plane.kubectl("-n", space, "set", "image", "ds/agent", f"agent={image(2)}")
        program.rolled_out(plane, space, "agent")
        assert (images_by_node(plane, space), revisions(plane, space)) == (on_every_node(2), [1, 2])

        plane.kubectl("-n", space, "rollout", "undo", "ds/agent")
        program.rolled_out(plane, space, "agent")
        assert (images_by_node(plane, space), revisions(plane, space)) == (on_every_node(1), [2, 3])
        assert "skipped rollback" in plane.kubectl(
            "-n", space, "rollout", "undo", "ds/agent", "--to-revision=3"
        )
        assert "Traceback" not in log.read_text()


def test_with_the_power_to_observe_it_decides_and_touches_nothing(
    tmp_path: Path, plane: controlplane.ControlPlane, space: str
) -> None:
    make(plane, space, "first")
    with running(tmp_path, plane, "--powers", "observe", "--log-format", "json") as (_, log):
        for name in ("first", "second"):
            if name == "second":
                make(plane, space, name)
            until(lambda name=name: f"{space}/{name}" in decided(log), log.read_text)  # type: ignore[misc]
        # The second was taken up after the first was, so that what the first would have got is
        # there by now.
        assert is_untouched(plane, space, "first")
        assert all(json.loads(line)["kind"] for line in log.read_text().splitlines()[:-1])
        assert not any(record["kind"] in {"Performed", "StatusWritten"} for record in records(log))


def test_with_the_power_to_pace_it_applies_and_leaves_agents_without_a_rollout_policy_alone(
    tmp_path: Path, plane: controlplane.ControlPlane, space: str
) -> None:
    upstream = gitservers.Upstream(tmp_path / "fleet")
    upstream.commit({"first.json": json.dumps(daemonset("first", image(1), space))})
    words = ("-C", str(upstream.path), "--interval", "1s", "--powers", "pace")
    with running(tmp_path, plane, *words) as (_, log):
        until(lambda: f"created DaemonSet {space}/first" in log.read_text(), log.read_text)
        upstream.commit({"second.json": json.dumps(daemonset("second", image(1), space))})
        until(lambda: f"created DaemonSet {space}/second" in log.read_text(), log.read_text)
        assert is_untouched(plane, space, "first")


def records(log: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in log.read_text().splitlines()
        if line.startswith("{") and line.endswith("}")
    ]


def decided(log: Path) -> set[str]:
    return {record["object"].split()[-1] for record in records(log) if record["kind"] == "Decided"}


def test_with_full_powers_it_refuses_to_start_beside_kubernetes_own_controller(
    tmp_path: Path, control_plane: controlplane.ControlPlane
) -> None:
    with running(tmp_path, control_plane, "--powers", "full") as (process, log):
        assert process.wait(120) == 1, log.read_text()
        assert "kube-controller-manager writes the status of DaemonSets" in log.read_text()
        assert "use powers pace" in log.read_text()


def test_with_full_powers_it_ends_when_the_controller_of_kubernetes_returns(tmp_path: Path) -> None:
    plane = controlplane.ControlPlane(
        tmp_path / "plane", controlplane.Wanted(nodes=3, daemonset_controller=False)
    )
    try:
        plane.start()
        make(plane, "default", "agent")
        with running(tmp_path, plane, "--powers", "full") as (process, log):
            program.rolled_out(plane, "default", "agent")
            plane.start_daemonset_controller()
            # Changes without a new template: if both make a revision of one template, the built-in
            # controller gives every pod its hash, and never updates the earlier ones
            # (kubernetes/kubernetes#111280).
            until(lambda: change_and_poll(plane, process) is not None, log.read_text)
            assert process.poll() == 1, log.read_text()
            assert (
                "another DaemonSet controller is active: kube-controller-manager" in log.read_text()
            )
        plane.kubectl("-n", "default", "set", "image", "ds/agent", f"agent={image(2)}")
        # Not by `rollout status`: the two controllers may have reported different states to it.
        until(
            lambda: images_by_node(plane, "default") == on_every_node(2),
            lambda: str(images_by_node(plane, "default")),
            120,
        )
    finally:
        plane.stop()


def test_a_template_that_a_newer_api_server_shows_with_more_fields_restarts_no_pod(
    tmp_path: Path, plane: controlplane.ControlPlane, space: str
) -> None:
    make(plane, space, "agent")
    with running(tmp_path, plane, "--powers", "full"):
        program.rolled_out(plane, space, "agent")
    before = {pod["metadata"]["uid"] for pod in plane.items(space, "pods")}
    # As an older API server, which did not know these defaults, would have had it.
    (revision,) = plane.items(space, "controllerrevisions")
    del revision["data"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    del revision["data"]["spec"]["template"]["spec"]["containers"][0]["terminationMessagePolicy"]
    path = f"/apis/apps/v1/namespaces/{space}/controllerrevisions"
    plane.request("DELETE", f"{path}/{revision['metadata']['name']}")
    kept = {
        name: revision["metadata"][name]
        for name in ("name", "labels", "annotations", "ownerReferences")
    }
    plane.request("POST", path, {**revision, "metadata": kept})
    with running(tmp_path, plane, "--powers", "full"):
        plane.kubectl("-n", space, "label", "node", "node-000", f"touched-{space}=yes")
        make(plane, space, "later")
        program.rolled_out(plane, space, "later")
        assert len(plane.items(space, "controllerrevisions")) == 2  # one of each
        assert before <= {pod["metadata"]["uid"] for pod in plane.items(space, "pods")}


def test_placed_directly_pods_need_no_scheduler(
    tmp_path: Path, plane: controlplane.ControlPlane, space: str
) -> None:
    direct = {"powers": "full", "scheduling": "direct"}
    body = daemonset("agent", image(1), space)
    body["spec"]["template"]["spec"]["containers"][0]["ports"] = [
        {"containerPort": 9100, "hostPort": 9100}
    ]
    with running(tmp_path, plane, *settings(tmp_path, controller=direct)):
        plane.request("POST", f"/apis/apps/v1/namespaces/{space}/daemonsets", body)
        program.rolled_out(plane, space, "agent")
        plane.kubectl("-n", space, "set", "image", "ds/agent", f"agent={image(2)}")
        program.rolled_out(plane, space, "agent")
    pods = plane.items(space, "pods")
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == [node for node, _ in on_every_node(2)]
    # A pod that the scheduler bound has a condition for it, and an affinity to its node.
    assert not any("affinity" in pod["spec"] for pod in pods)
    assert not any(
        condition["type"] == "PodScheduled"
        for pod in pods
        for condition in pod["status"]["conditions"]
    )
