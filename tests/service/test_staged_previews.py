"""What `plan` lists is what happens: random policies on a real control plane, beside the
DaemonSet controller of Kubernetes.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.model import names
from tests import controlplane
from tests.gitservers import Upstream
from tests.service import staged
from tests.service.staged import POOLS, Soaks
from tests.service.test_service import running
from tests.service.test_uninstall import program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.controlplane,
    pytest.mark.system,
    pytest.mark.xdist_group("staged-previews"),
]
NODES, POLICIES, SEED = 12, 4, 21


@dataclass(frozen=True)
class Stages:
    """A policy, and the size of each of its batches by the name of the stage."""

    document: dict[str, Any]
    sizes: dict[str, int]


def any_stages(chance: random.Random) -> Stages:
    """Stages over pools, counts and preferred nodes, in batches of a fixed size."""
    pools = chance.sample(POOLS, chance.randrange(len(POOLS)))
    stages: list[dict[str, Any]] = [{"name": pool, "where": {"pool": pool}} for pool in pools]
    if chance.random() < 0.7:
        prefer = {"prefer": {"pool": chance.choice(POOLS)}} if chance.random() < 0.5 else {}
        count = chance.randint(1, 4)
        stages.insert(0, {"name": "canary", "nodes": {"count": count, **prefer}, "soak": "1s"})
    stages.append({"name": "rest"})
    sizes = {stage["name"]: chance.randint(1, 5) for stage in stages}
    for stage in stages:
        size = sizes[stage["name"]]
        stage |= {"pace": {"start": size, "factor": 1, "max": size}, "soak": "0s", **stage}
    document = {
        "stages": stages,
        "limits": {"atRisk": {"cluster": "100%"}},
        "onFailure": {"revert": {"how": "none"}},
    }
    return Stages(document, sizes)


def test_the_nodes_are_updated_in_the_order_of_the_plan(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path / "fleet")
    upstream.commit(staged.files("0", staged.policy(Soaks(canary=0))))
    with (
        staged.plane_with(tmp_path, NODES) as plane,
        running(tmp_path, plane, *staged.words(upstream), "--branch", "main") as (_, log),
    ):
        asyncio.run(_rollouts(plane, upstream, log))


async def _rollouts(plane: controlplane.ControlPlane, upstream: Upstream, log: Path) -> None:
    chance = random.Random(SEED)
    async with staged.watching(plane, Soaks(canary=0)) as watch:
        await watch.until(lambda: len(watch.on("0")) == NODES, log)
        for number in range(1, POLICIES + 1):
            stages, tag = any_stages(chance), str(number)
            upstream.git("checkout", "--quiet", "-B", "next")
            upstream.commit(staged.files(tag, json.dumps(stages.document)))
            preview = await asyncio.to_thread(_preview, plane, upstream)
            upstream.git("branch", "--force", "main", "next")
            await watch.until(lambda tag=tag: len(watch.on(tag)) == NODES, log)  # type: ignore[misc]
            await staged.until(lambda tag=tag: _is_complete(plane, tag), log.read_text)  # type: ignore[misc]
            # A lost race against the built-in controller is a further pod of the same node.
            created = (node for one, node in watch.created.values() if one == tag)
            order = list(dict.fromkeys(created))
            assert _batches(order, preview, stages) == _batches(
                [node for stage in preview for node in stage["nodes"]], preview, stages
            ), (number, stages.document)


def _preview(plane: controlplane.ControlPlane, upstream: Upstream) -> list[dict[str, Any]]:
    """The stages of the rollout in the plan of the branch `next`."""
    options = ("-C", upstream.path, "--revision", "next", "-o", "json")
    done = program(plane, staged.STATES, "plan", *options)
    assert done.code == 0, done.err
    changes = done.json["changes"]
    (stages,) = (change["stages"] for change in changes if "stages" in change)
    previews: list[dict[str, Any]] = stages["stages"]
    return previews


def _batches(
    order: Sequence[str], preview: Sequence[dict[str, Any]], stages: Stages
) -> list[set[str]]:
    """The nodes in the order of their new pods, divided into the batches of the policy."""
    found, left = list[set[str]](), list(order)
    for stage in preview:
        nodes, left = left[: len(stage["nodes"])], left[len(stage["nodes"]) :]
        size = stages.sizes[stage["name"]]
        found += [set(nodes[start : start + size]) for start in range(0, len(nodes), size)]
    return found


def _is_complete(plane: controlplane.ControlPlane, tag: str) -> bool:
    annotations = staged.agent(plane)["metadata"]["annotations"]
    return staged.tag_of(plane) == tag and names.TARGET not in annotations
