"""A template that the DaemonSet gets before every node is proved (`template.commit: late`), beside
Kubernetes' own DaemonSet controller.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from gitops_ds.model import names
from tests import controlplane
from tests.gitservers import Upstream
from tests.plan.world import daemonset
from tests.service import staged
from tests.service.test_service import running, until

pytestmark = [pytest.mark.controlplane, pytest.mark.system]
SPACE = "early-templates"
POLICY = """\
stages:
  - {name: canary, nodes: {count: 1}, soak: 1s}
  - {name: second, nodes: {count: 1}, soak: 1s}
  - {name: rest, soak: 1s, approval: {from: [people]}}
limits: {atRisk: {cluster: 100%}}
template: {commit: late}
"""
NODES = 3


@dataclass(frozen=True)
class LivePod:
    """A pod that does not end."""

    uid: str
    name: str
    tag: str


def files(tag: str) -> dict[str, str]:
    body = daemonset("agent", staged.image(tag), SPACE)
    return {
        "gitops-ds.yaml": f"version: v1\nname: {SPACE}\n",
        "agents/agent/daemonset.json": json.dumps(body, indent=2),
        "agents/agent/rollout.yaml": POLICY,
    }


def test_nodes_that_are_left_get_the_new_template_and_a_revert_brings_all_back(
    tmp_path: Path, control_plane: controlplane.ControlPlane
) -> None:
    plane, upstream = control_plane, Upstream(tmp_path / "fleet")
    plane.kubectl("create", "namespace", SPACE)

    def pods() -> list[LivePod]:
        found = plane.items(SPACE, "pods")
        return [
            LivePod(
                one["metadata"]["uid"],
                one["metadata"]["name"],
                str(one["spec"]["containers"][0]["image"]).rpartition(":")[2],
            )
            for one in found
            if "deletionTimestamp" not in one["metadata"]
        ]

    def tags() -> str:
        return "".join(sorted(one.tag for one in pods()))

    def template() -> str:
        spec = plane.read(SPACE, "daemonsets", "agent")["spec"]["template"]["spec"]
        return str(spec["containers"][0]["image"]).rpartition(":")[2]

    def target() -> str:
        annotations = plane.read(SPACE, "daemonsets", "agent")["metadata"]["annotations"]
        return str(annotations.get(names.TARGET, ""))

    upstream.commit(files("1"))
    with running(tmp_path, plane, *staged.words(upstream)) as (_, log):
        until(lambda: tags() == "111", log.read_text)
        upstream.commit(files("2"))
        # Two of three nodes are proved, so the template is written; the last stage is closed.
        until(lambda: template() == "2", log.read_text)
        assert target()
        assert tags() == "122"
        assert "approval by people" in log.read_text()
        pinned = {one.uid for one in pods() if one.tag == "2"}
        # A pod that is deleted meanwhile is of the new template; no pinned pod restarts.
        (old,) = (one for one in pods() if one.tag == "1")
        plane.kubectl("-n", SPACE, "delete", "pod", old.name)
        until(lambda: tags() == "222", log.read_text)
        assert pinned < {one.uid for one in pods()}
        upstream.commit(files("1"))
        until(lambda: (tags(), template(), target()) == ("111", "1", ""), log.read_text)
        assert "Traceback" not in log.read_text()
