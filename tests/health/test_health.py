"""The health checks for Argo CD and Flux, run by gopher-lua and by Flux's evaluator on the objects
of a rollout in each phase.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.rollouts.state import keys
from gitops_ds.testing.simulator import PodFault, Trouble
from tests.deploy.rollout_scene import NODES, POLICY, Scene, play, spoil

pytestmark = [pytest.mark.slow, pytest.mark.renderers]
ROOT = Path(__file__).resolve().parents[2]
RULES = {
    "lua": ROOT / "deploy/health/argo-cd.lua",
    "cel": ROOT / "deploy/health/flux.yaml",
}
FLUX = {"Healthy": "Current", "Progressing": "InProgress", "Degraded": "Failed"}


@cache
def program() -> Path:
    """The evaluator, built if it does not exist yet."""
    done = subprocess.run(
        [ROOT / "scripts/health"], stdout=subprocess.PIPE, text=True, check=True, env=os.environ
    )
    return Path(done.stdout.strip()) / "evaluate"


def judged(kind: str, body: dict[str, Any], directory: Path) -> str:
    """The status of an object by one of the tools."""
    path = directory / "object.json"
    path.write_text(json.dumps(body))
    done = subprocess.run(
        [program(), kind, RULES[kind], path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["status"])


@cache
def recorded() -> dict[str, tuple[str, dict[str, Any]]]:
    """The DaemonSet in each phase of its rollouts, with its health."""
    result: dict[str, tuple[str, dict[str, Any]]] = {}

    async def script(scene: Scene) -> None:
        async def record(phase: str, health: str) -> None:
            result[phase] = health, copy.deepcopy(dict(await scene.daemonset()))

        await record("at rest", "Healthy")
        scene.push("2")
        await asyncio.sleep(60)
        await record("in the canary", "Progressing")
        await scene.until(lambda: len(scene.on("2")) > NODES // 2)
        await record("in the rest", "Progressing")
        await scene.until(lambda: len(scene.on("2")) == NODES)
        await asyncio.sleep(300)
        await record("complete", "Healthy")
        spoil(scene, PodFault("*:3", Trouble.NEVER_PULLED))
        scene.push("3")
        await asyncio.sleep(300)
        await record("halted", "Degraded")
        scene.push("2")
        await asyncio.sleep(300)
        await record("reverted", "Healthy")

    play(script, policy=f"{POLICY}onFailure: {{revert: {{how: none}}}}\n")
    return result


def changed(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The DaemonSet at rest, without a policy, after a change."""
    body = copy.deepcopy(recorded()["at rest"][1])
    for name in (keys.PHASE, keys.ROLLOUT_POLICY):
        body["metadata"]["annotations"].pop(name)
    body["spec"]["updateStrategy"] = {"type": "RollingUpdate"}
    change(body)
    return body


@pytest.mark.parametrize("kind", RULES)
def test_each_phase_has_its_health(kind: str, tmp_path: Path) -> None:
    for phase, (health, body) in recorded().items():
        expected = health if kind == "lua" else FLUX[health]
        assert judged(kind, body, tmp_path) == expected, phase


@pytest.mark.parametrize("kind", RULES)
def test_a_daemonset_without_a_policy_is_judged_by_its_status(kind: str, tmp_path: Path) -> None:
    cases: list[tuple[str, Callable[[dict[str, Any]], None]]] = [
        ("Healthy", lambda body: None),
        ("Progressing", lambda body: body["metadata"].update(generation=99)),
        ("Progressing", lambda body: body["status"].update(updatedNumberScheduled=1)),
        ("Progressing", lambda body: body["status"].pop("numberAvailable")),
        ("Healthy", lambda body: body["metadata"].pop("annotations")),
    ]
    for number, (health, change) in enumerate(cases):
        expected = health if kind == "lua" else FLUX[health]
        assert judged(kind, changed(change), tmp_path) == expected, number
