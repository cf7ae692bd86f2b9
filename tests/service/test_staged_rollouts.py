"""Staged rollouts with the installed service beside Kubernetes' own DaemonSet controller, scheduler
and garbage collector.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.model import names
from tests import controlplane
from tests.gitservers import Upstream
from tests.service import staged
from tests.service.staged import CANARIES, Soaks
from tests.service.test_service import running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.controlplane,
    pytest.mark.system,
    pytest.mark.xdist_group("staged"),
]
NODES, ADDED, KILLED = 30, 5, 5
SOAKS = Soaks(canary=10)


def test_a_commit_reaches_the_nodes_stage_by_stage_and_a_bad_one_its_canaries_only(
    tmp_path: Path,
) -> None:
    upstream = Upstream(tmp_path / "fleet")
    upstream.commit(staged.files("1", staged.policy(SOAKS)))
    with (
        staged.plane_with(tmp_path, NODES) as plane,
        running(tmp_path, plane, *staged.words(upstream)) as (process, log),
    ):
        asyncio.run(_scene(plane, upstream, log))
        assert process.poll() is None
        assert "Traceback" not in log.read_text()


async def _scene(plane: controlplane.ControlPlane, upstream: Upstream, log: Path) -> None:
    async with staged.watching(plane, SOAKS) as watch:
        await watch.until(lambda: len(watch.on("1")) == NODES, log)
        await _a_rollout_while_the_fleet_changes(plane, upstream, watch, log)
        await _a_bad_commit(plane, upstream, watch, log)


async def _a_rollout_while_the_fleet_changes(
    plane: controlplane.ControlPlane, upstream: Upstream, watch: staged.PodWatch, log: Path
) -> None:
    total = NODES + ADDED
    watch.expect("2")
    upstream.commit(staged.files("2", staged.policy(SOAKS)))
    await watch.until(lambda: len(watch.on("2")) == CANARIES, log)
    await asyncio.to_thread(plane.add_nodes, list(staged.nodes(range(NODES, total))))
    for uid in sorted(watch.uids("1"))[:KILLED]:
        name = watch.pods[uid][1].name
        await asyncio.to_thread(plane.kubectl, "delete", "pod", name, "--wait=false")
    await watch.until(lambda: len(watch.on("1")) == total - CANARIES, log)
    assert len(watch.on("2")) == CANARIES, "the canary's soak is over too early"
    assert staged.tag_of(plane) == "1"
    await watch.until(lambda: len(watch.on("2")) == total, log)
    await staged.until(lambda: _is_complete(plane, "2", total), log.read_text)
    assert not watch.wrong, watch.wrong[:5]
    await watch.quiet(5)
    history = plane.kubectl("rollout", "history", "ds/agent").split("\n")
    assert [line.split()[0] for line in history if line[:1].isdigit()] == ["1", "2"]
    assert len(staged.get(plane, "controllerrevisions")["items"]) == 2
    _differs_from_git_as_promised(plane, "2")


async def _a_bad_commit(
    plane: controlplane.ControlPlane, upstream: Upstream, watch: staged.PodWatch, log: Path
) -> None:
    total = NODES + ADDED
    before = watch.uids("2")
    watch.expect("broken")
    upstream.commit(staged.files("broken", staged.policy(SOAKS)))
    await watch.until(lambda: bool(watch.uids("broken")), log)
    await staged.until(lambda: "halted" in log.read_text(), log.read_text)
    touched = len(before - watch.uids("2"))
    assert 0 < touched <= CANARIES
    await watch.quiet(SOAKS.canary)
    revisions = {one["metadata"]["uid"] for one in _owned(plane)}
    watch.expect("")
    upstream.commit(staged.files("2", staged.policy(SOAKS)))
    await watch.until(lambda: len(watch.on("2")) == total, log)
    assert len(before - watch.uids("2")) == touched
    await staged.until(lambda: _is_complete(plane, "2", total), log.read_text)
    await watch.quiet(5)
    assert {
        one["metadata"]["uid"] for one in staged.get(plane, "controllerrevisions")["items"]
    } == revisions
    assert len(before - watch.uids("2")) == touched
    _differs_from_git_as_promised(plane, "2")


def _owned(plane: controlplane.ControlPlane) -> list[dict[str, Any]]:
    """The revisions that the DaemonSet owns; a target revision is none of them."""
    return [
        one
        for one in staged.get(plane, "controllerrevisions")["items"]
        if one["metadata"]["ownerReferences"][0].get("controller")
    ]


def _is_complete(plane: controlplane.ControlPlane, tag: str, total: int) -> bool:
    body = staged.get(plane, "ds/agent")
    annotations = body["metadata"]["annotations"]
    status = body.get("status") or {}
    return (
        staged.tag_of(plane) == tag
        and names.TARGET not in annotations
        and status.get("observedGeneration") == body["metadata"]["generation"]
        and status.get("updatedNumberScheduled") == total
        and status.get("numberAvailable") == total
        and len(staged.get(plane, "controllerrevisions")["items"]) == len(_owned(plane))
    )


def _differs_from_git_as_promised(plane: controlplane.ControlPlane, tag: str) -> None:
    """Beside status, strategy and metadata of ours, the DaemonSet is what Git holds, with the API
    server's defaults.
    """
    live = staged.get(plane, "ds/agent")
    body = staged.manifest(tag)
    path = "/apis/apps/v1/namespaces/default/daemonsets?dryRun=All"
    renamed = {**body, "metadata": {**body["metadata"], "name": "as-in-git"}}
    wanted = plane.request("POST", path, renamed)
    assert live["spec"].pop("updateStrategy") == {"type": "OnDelete"}
    del wanted["spec"]["updateStrategy"]
    assert live["spec"] == wanted["spec"]
    ours = (names.DOMAIN, names.TEMPLATE_GENERATION, names.CHANGE_CAUSE)
    for group in ("annotations", "labels"):
        for name, value in (live["metadata"].get(group) or {}).items():
            known = (wanted["metadata"].get(group) or {}).get(name)
            is_ours = name.startswith(ours) or name.startswith("app.kubernetes.io/managed-by")
            assert known == value or is_ours, (name, value)
