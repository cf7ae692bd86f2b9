"""Changes of a DaemonSet by kubectl on a real API server: corrected, reported or paused."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core.events.drift import DriftDetected
from gitops_ds.core.objects import DAEMONSET
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.kube.client import config, rest
from gitops_ds.ownership.options import ApplyOptions
from tests import controlplane, gitservers
from tests.cluster.program import in_this_process
from tests.plan.world import World, daemonset
from tests.service.test_service import following, running, settings, until

pytestmark = [
    pytest.mark.controlplane,
    pytest.mark.system,
]
IMAGE = "spec.template.spec.containers[agent].image"


def agent(space: str, tag: int = 2) -> dict[str, Any]:
    container = {
        "name": "agent",
        "image": f"registry.example.com/agent:{tag}",
        "resources": {"limits": {"memory": "64Mi"}},
    }
    body = daemonset("agent", namespace=space, containers=[container])
    body["metadata"] |= {"labels": {"team": "ours"}, "annotations": {"example.com/note": "ours"}}
    return body


def deploying(
    plane: controlplane.ControlPlane, space: str, scene: Callable[[World], Awaitable[None]]
) -> None:
    async def whole() -> None:
        async with rest.HttpCluster(config.access(str(plane.kubeconfig), None)) as cluster:
            await scene(World(cluster, owner=space, state_namespace=space))

    asyncio.run(whole())


def asked(choice: DriftPolicy) -> ApplyOptions:
    return ApplyOptions(drift=choice, patience=0)


def edit(plane: controlplane.ControlPlane, space: str) -> None:
    """`kubectl edit` with an editor that is a program."""
    command = [
        str(controlplane.programs() / "kubectl"),
        "--kubeconfig",
        str(plane.kubeconfig),
        "-n",
        space,
        "edit",
        "ds/agent",
    ]
    environment = {**os.environ, "KUBE_EDITOR": "sed -i s,agent:2,agent:9,"}
    subprocess.run(command, env=environment, check=True, capture_output=True)


def run_kubectl(plane: controlplane.ControlPlane, space: str, *words: str) -> None:
    plane.kubectl("-n", space, *words)


PATCH = json.dumps(
    {
        "spec": {
            "template": {
                "spec": {"containers": [{"name": "agent", "image": "registry.example.com/agent:9"}]}
            }
        }
    }
)
SCENES: list[tuple[str, Callable[[controlplane.ControlPlane, str], None], str]] = [
    (
        "kubectl set image",
        lambda p, s: run_kubectl(
            p, s, "set", "image", "ds/agent", "agent=registry.example.com/agent:9"
        ),
        IMAGE,
    ),
    (
        "kubectl set resources",
        lambda p, s: run_kubectl(p, s, "set", "resources", "ds/agent", "--limits=memory=1Gi"),
        "spec.template.spec.containers[agent].resources.limits.memory",
    ),
    ("kubectl edit", edit, IMAGE),
    (
        "kubectl label",
        lambda p, s: run_kubectl(p, s, "label", "--overwrite", "ds/agent", "team=theirs"),
        "metadata.labels.team",
    ),
    (
        "kubectl annotate",
        lambda p, s: run_kubectl(
            p, s, "annotate", "--overwrite", "ds/agent", "example.com/note=theirs"
        ),
        'metadata.annotations["example.com/note"]',
    ),
    ("kubectl patch", lambda p, s: run_kubectl(p, s, "patch", "ds/agent", "-p", PATCH), IMAGE),
    ("kubectl rollout undo", lambda p, s: run_kubectl(p, s, "rollout", "undo", "ds/agent"), IMAGE),
]


@pytest.mark.parametrize(
    ("words", "change", "field"), SCENES, ids=[words for words, _, _ in SCENES]
)
def test_an_action_of_kubectl_is_named_held_and_corrected(
    control_plane: controlplane.ControlPlane,
    space: str,
    words: str,
    change: Callable[[controlplane.ControlPlane, str], None],
    field: str,
) -> None:
    async def scene(world: World) -> None:
        for tag in (1, 2):
            await world.apply({"agent.yaml": agent(space, tag)}, f"{tag}", asked(DriftPolicy.HOLD))
            until(lambda tag=tag: history(control_plane, space) >= tag, lambda: "no revision")  # type: ignore[misc]
        change(control_plane, space)
        for choice in (DriftPolicy.REPORT, DriftPolicy.HOLD):
            left = await world.apply({"agent.yaml": agent(space)}, "2", asked(choice))
            assert (left.writes, left.guards) == (0, ["drift"])
        (first, *_) = [event for event in world.records if isinstance(event, DriftDetected)]
        assert first.drifted.looks_like == words
        assert first.drifted.by[0].manager.startswith("kubectl")
        assert field in first.words
        back = await world.apply({"agent.yaml": agent(space)}, "2", asked(DriftPolicy.CORRECT))
        assert (back.writes, back.refusals) == (1, ())
        again = await world.apply({"agent.yaml": agent(space)}, "2", asked(DriftPolicy.CORRECT))
        assert (again.writes, again.plan.drifted) == (0, {})

    deploying(control_plane, space, scene)


def history(plane: controlplane.ControlPlane, space: str) -> int:
    return len(plane.items(space, "controllerrevisions"))


@pytest.mark.parametrize("choice", list(DriftPolicy))
def test_a_restart_by_kubectl_is_never_fought(
    control_plane: controlplane.ControlPlane, space: str, choice: DriftPolicy
) -> None:
    async def scene(world: World) -> None:
        await world.apply({"agent.yaml": agent(space, 1)}, options=asked(choice))
        control_plane.kubectl("-n", space, "rollout", "restart", "ds/agent")
        done = await world.apply({"agent.yaml": agent(space, 1)}, options=asked(choice))
        assert (done.writes, done.refusals, done.plan.drifted) == (0, (), {})
        await world.apply({"agent.yaml": agent(space, 2)}, "second", asked(choice))
        template = (await world.cluster.get(DAEMONSET, space, "agent"))["spec"]["template"]
        assert "kubectl.kubernetes.io/restartedAt" in template["metadata"]["annotations"]

    deploying(control_plane, space, scene)


def test_the_service_detects_drift_within_seconds_and_a_commit_adds_it_to_git(
    tmp_path: Path, control_plane: controlplane.ControlPlane, space: str
) -> None:
    upstream = gitservers.Upstream(tmp_path / "fleet")
    upstream.commit({"agent.yaml": yaml(space)})
    repository = following(upstream, interval="1h")
    options = settings(tmp_path, repository=repository, apply={"drift": "hold"})
    with running(tmp_path, control_plane, *options) as (_, log):
        until(lambda: "is applied" in log.read_text(), log.read_text)
        control_plane.kubectl(
            "-n", space, "set", "image", "ds/agent", "agent=registry.example.com/agent:9"
        )
        until(lambda: "kubectl set image" in log.read_text(), log.read_text)
        until(
            lambda: "DriftHeld" in control_plane.kubectl("-n", space, "describe", "ds/agent"),
            log.read_text,
        )
        connection = (
            "--kubeconfig",
            str(control_plane.kubeconfig),
            "--state-namespace",
            "service-test",
        )
        until(
            lambda: '"state": "Held"' in program("get", "-n", space, "-o", "json", *connection),
            log.read_text,
        )
        where = ("-C", str(upstream.path), *connection)
        shown = program("drift", "ds/agent", *where)
        assert "kubectl set image" in shown
        assert (
            "'registry.example.com/agent:1' in Git, 'registry.example.com/agent:9' in the cluster"
            in shown
        )
        patch = program("drift", "ds/agent", "--print", *where)
        assert "-          image: registry.example.com/agent:1  # the agent" in patch
        assert "+          image: registry.example.com/agent:9  # the agent" in patch


def program(*words: str) -> str:
    environment = {**os.environ, **gitservers.GIT_ENVIRONMENT}
    ended = in_this_process(words, Path.cwd(), environment)
    assert ended.code == 0, ended.err
    return ended.out


def yaml(space: str) -> str:
    return f"""apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: agent
  namespace: {space}
spec:
  selector:
    matchLabels: {{app: agent}}
  template:
    metadata:
      labels: {{app: agent}}
    spec:
      containers:
        - name: agent
          image: registry.example.com/agent:1  # the agent
"""


def test_an_added_field_of_a_staged_agent_is_named_with_its_manager_and_removed_by_default(
    tmp_path: Path, control_plane: controlplane.ControlPlane, space: str
) -> None:
    upstream = gitservers.Upstream(tmp_path / "fleet")
    upstream.commit(
        {
            "gitops-ds.yaml": "version: v1\n",
            "agents/agent/daemonset.yaml": yaml(space),
            "agents/agent/rollout.yaml": "stages: [rest]\n",
        }
    )
    where = ("--kubeconfig", str(control_plane.kubeconfig), "--state-namespace", "service-test")
    named = ("ds/agent", "-n", space, *where)

    def env() -> Any:
        body = control_plane.read(space, "daemonsets", "agent")
        return body["spec"]["template"]["spec"]["containers"][0].get("env")

    repository = following(upstream, interval="1h")
    options = settings(tmp_path, repository=repository, apply={"drift": "report"})
    with running(tmp_path, control_plane, *options) as (_, log):
        until(lambda: "is applied" in log.read_text(), log.read_text)
        control_plane.kubectl("-n", space, "set", "env", "ds/agent", "EXTRA=1")
        until(lambda: "kubectl set env" in log.read_text(), log.read_text)
        until(lambda: "changed by" in program("status", *named), log.read_text)
        status = program("status", *named)
        drift = in_this_process(
            ("drift", *named, "-C", str(upstream.path)), tmp_path, gitservers.GIT_ENVIRONMENT
        )
    for text in (status, drift.out, log.read_text()):
        assert "changed by kubectl set env (kubectl-set, " in text
        assert "): spec.template.spec.containers[agent].env" in text
    assert "`gitops-ds drift` names the fields" in status
    assert "None in Git, [{'name': 'EXTRA', 'value': '1'}] in the cluster" in drift.out
    assert drift.err == (
        "to keep a change of a DaemonSet, commit it: gitops-ds drift ds/NAME --push\n"
    )
    assert env() == [{"name": "EXTRA", "value": "1"}]
    with running(tmp_path, control_plane, *settings(tmp_path, repository=repository)) as (_, log):
        until(lambda: env() is None, log.read_text)
        until(lambda: "corrected" in log.read_text(), log.read_text)
